"""What the tabs share of the page in gradio's terms: the page itself, look, wiring, checkpoint."""
