"""Training of the bundled checkpoints: tokenizer, data, two-stream masks, losses, loop."""
