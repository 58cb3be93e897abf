"""The Frontier tab: quality against speed of every way that was measured here."""
