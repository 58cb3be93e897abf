"""The forward pass, written here and checked against transformers, and checkpoint loading."""
