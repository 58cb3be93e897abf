"""Prompts to click, for each kind of checkpoint."""
