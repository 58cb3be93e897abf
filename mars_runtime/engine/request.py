"""Requests to the engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mars_runtime.errors import MarsError
from mars_runtime.runs.events import Event
from mars_runtime.settings import DecodeSettings

if TYPE_CHECKING:
    from mars_runtime.decoders.base import SettingsSource, Vocabulary
    from mars_runtime.decoders.forward_costs import ForwardCosts
    from mars_runtime.model.forward import CausalModel

    Costs = ForwardCosts | None
    CustomDecode = Callable[[CausalModel, Vocabulary, SettingsSource, Costs], Iterator[Event]]

DEFAULT_DEADLINE = 300.0
MAX_DEADLINE = 86_400.0


class RequestError(MarsError, ValueError):
    """A request cannot be served."""


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to decode. Raises RequestError.

    deadline: maximum seconds from submission to the end, including waiting and pauses.
    is_checked: whether steps include AR's choices (RowStep.checks), computed outside their time.
    reuses: whether the prefix cache is used; an exclusive run never uses it.
    owner: the client, such as an address.
    """

    prompt_ids: Sequence[int]
    settings: DecodeSettings
    deadline: float = DEFAULT_DEADLINE
    is_checked: bool = False
    reuses: bool = True
    owner: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt_ids", tuple(self.prompt_ids))
        if not self.prompt_ids:
            raise RequestError("The prompt is empty: enter some text.")
        if not all(type(token) is int and token >= 0 for token in self.prompt_ids):
            raise RequestError("The tokens of a prompt must be whole numbers of at least 0.")
        _check(self.settings, self.deadline)


@dataclass(frozen=True, slots=True)
class CustomDecoderRequest:
    """A decoder with any number of rows that uses the device exclusively. ``decode`` yields a
    Prefill and Steps; its costs are None if not measured. Raises RequestError.
    """

    decode: CustomDecode
    settings: DecodeSettings
    deadline: float = DEFAULT_DEADLINE
    owner: str = ""

    def __post_init__(self) -> None:
        _check(self.settings, self.deadline)


AnyRequest = Request | CustomDecoderRequest


def _check(settings: DecodeSettings, deadline: float) -> None:
    if not isinstance(settings, DecodeSettings):
        raise RequestError("The settings of a request must be DecodeSettings.")
    if not math.isfinite(deadline) or not 0 < deadline <= MAX_DEADLINE:
        raise RequestError(
            f"The deadline must be more than 0 and at most {MAX_DEADLINE:g} s, got {deadline:g}."
        )
