"""The Grid tab: one prompt over τ × B."""
