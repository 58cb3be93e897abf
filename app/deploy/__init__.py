"""Makes the folder that is uploaded as a Space."""
