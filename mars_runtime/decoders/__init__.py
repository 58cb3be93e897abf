"""Decoders turn prompts and settings into events, one per forward pass."""
