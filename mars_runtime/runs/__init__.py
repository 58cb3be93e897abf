"""What a run is: its events, its trace, and everything that is computed from them."""
