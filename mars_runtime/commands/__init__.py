"""The commands ``generate`` and ``page``."""
