"""Promises held against evidence: lossless is AR, and AR is what the weights say."""
