"""MARS runtime: several tokens per forward pass from an ordinary autoregressive checkpoint."""
