"""Recorded runs: making them, reading them, and pages of their own that show them anywhere."""
