"""This runtime as a model of lm-evaluation-harness (optional), and benchmarks from local files."""
