"""Where the time of a forward goes, and what the machine could do at best."""
