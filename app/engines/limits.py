"""Limits of what a visitor may request, and the error for a request outside them."""

from __future__ import annotations

from dataclasses import dataclass


class RefusalError(ValueError):
    """An invalid request. ``field`` is the control at fault; the message is one sentence."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of this app and the chosen checkpoint: characters, tokens, trained depth."""

    max_prompt_chars: int
    max_new_tokens: int
    block_size: int
