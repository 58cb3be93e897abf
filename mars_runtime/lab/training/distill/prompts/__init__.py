"""Where training prompts come from: one module per kind, each a seeded stream of conversations."""
