"""Limits of a visitor's request, and the error for a request that exceeds them or is invalid."""

from __future__ import annotations

from dataclasses import dataclass


class RefusalError(ValueError):
    """An invalid request. ``field`` is the name of the invalid control. The message is one
    sentence.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a request: length of the prompt, number of generated tokens, and the largest B of
    the checkpoint.
    """

    max_prompt_chars: int
    max_new_tokens: int
    block_size: int
