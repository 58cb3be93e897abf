"""Real requests to click, family by family, for checkpoints that know how to chat. Data alone."""

from __future__ import annotations

TOO_HARD = "too_hard"
REQUESTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "explain": ("Explain", ("Why is the sky blue?",)),
    TOO_HARD: ("Too hard for it", ("What is 347 times 28?",)),
}
"""Family -> the words on its button and its prompts."""
