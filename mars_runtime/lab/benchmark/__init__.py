"""Paired wall-clock comparison of decoding methods on one machine."""
