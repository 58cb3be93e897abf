"""The demo page: a leaf that renders what the runtime says. Deleting it breaks nothing below."""
