"""The Live tab: MARS against plain AR, steered while it runs."""
