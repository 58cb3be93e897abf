"""Accuracy and tokens per forward over a grid of τ and B."""
