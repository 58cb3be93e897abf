"""What is asked of the engine: a prompt, settings and a time limit. Knows no model or thread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mars_runtime.settings import DecodeSettings

DEFAULT_DEADLINE = 300.0
MAX_DEADLINE = 86_400.0


class RequestError(ValueError):
    """A request that cannot be served; the message is one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to decode.

    prompt_ids: as from ``Tokenizer.encode_prompt``; settings: in force at first.
    deadline: seconds of real time from submission to the end at most, waiting and rests included.
    Raises RequestError.
    """

    prompt_ids: Sequence[int]
    settings: DecodeSettings
    deadline: float = DEFAULT_DEADLINE

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt_ids", tuple(self.prompt_ids))
        if not self.prompt_ids:
            raise RequestError("Type a prompt: it has no tokens.")
        if not all(type(token) is int and token >= 0 for token in self.prompt_ids):
            raise RequestError("The tokens of a prompt must be whole numbers from 0 on.")
        if not isinstance(self.settings, DecodeSettings):
            raise RequestError("Give the request settings.")
        if not math.isfinite(self.deadline) or not 0 < self.deadline <= MAX_DEADLINE:
            raise RequestError(f"The deadline must be more than 0 and at most {MAX_DEADLINE:g} s.")
