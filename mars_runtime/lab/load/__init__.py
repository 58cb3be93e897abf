"""Many requests at their own times: what an engine makes of them, and what follows their load."""
