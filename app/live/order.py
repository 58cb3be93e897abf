"""What the Live tab, an endpoint or a view of the page posted for a run, parsed and checked.

Knows no gradio and no engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.controls import POSTED, Limits, RefusalError, read_live
from app.live.conversation import Histories, read_history
from app.methods import settings_for
from mars_runtime.settings import DecodeSettings

HISTORY = "history"
ORDERED = (*POSTED, HISTORY)
"""What Run posts: the controls, and the conversation that the page keeps."""
FROM_VIEW = ("prompt", "checkpoint", "given", HISTORY)


@dataclass(frozen=True, slots=True)
class LiveOrder:
    """A run as posted: what to decode, in which lanes, how. ``given``: the first tokens of the
    output, which count among max_new_tokens; only what is left of those is generated. histories:
    the turns before this one, by lane. view: the methods to run, a lane each."""

    prompt: str
    settings: DecodeSettings
    view: Sequence[str]
    pace: float
    checkpoint: str
    given: tuple[int, ...] = ()
    histories: Histories = field(default_factory=dict)

    @property
    def lanes(self) -> dict[str, DecodeSettings]:
        """Lane name, which is its method, -> its settings, in the order of the page."""
        left = self.settings.max_new_tokens - len(self.given)
        settings = replace(self.settings, max_new_tokens=left)
        return {name: settings_for(name, settings) for name in self.view}


def read_live_order(values: Mapping[str, Any], limits: Limits) -> LiveOrder:
    """All of the tab's controls as an order. Raises RefusalError."""
    found = read_live(values, limits)
    settings = found["settings"]
    given = read_given(values.get("given"), settings)
    histories = read_history(values.get(HISTORY), limits)
    return LiveOrder(
        *(found["prompt"], settings, found["view"], found["pace"], found["checkpoint"]),
        given=given,
        histories=histories,
    )


def read_given(value: object, settings: DecodeSettings) -> tuple[int, ...]:
    """Ids of the tokens to go on from, none for a plain run; whether the checkpoint knows them is
    looked up later. Raises RefusalError."""
    if value is None or value == "":
        return ()
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        raise RefusalError("given", "The tokens to go on from cannot be read.")
    if len(value) >= settings.max_new_tokens:
        raise RefusalError(
            "given", "Nothing is left to generate from there on: allow more tokens to generate."
        )
    return tuple(value)


def read_from_view(value: object) -> dict[str, Any]:
    """What a view posted beside the controls: the prompt of the run on show, the turns before it,
    tokens to go on from.

    As raw as any control; it is JSON of the page's own script, or of anybody. Raises RefusalError.
    """
    try:
        posted = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        posted = None
    if not isinstance(posted, dict):
        raise RefusalError("given", "What was asked for cannot be read: press Run instead.")
    return {name: posted.get(name) for name in FROM_VIEW}
