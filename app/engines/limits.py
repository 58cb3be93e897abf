"""Limits of a visitor's request, and the error for an invalid one."""

from __future__ import annotations

from dataclasses import dataclass


class RefusalError(ValueError):
    """field: the invalid control. The message is one sentence."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Limits:
    """block_size: the largest B of the checkpoint."""

    max_prompt_chars: int
    max_new_tokens: int
    block_size: int
