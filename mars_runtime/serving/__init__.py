"""An OpenAI-compatible endpoint over engines, with health and metrics."""
