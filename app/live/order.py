"""Controls of the Live tab, and values that views of the page or links post for it.

The page stores its conversation and posts it with each run; the server does not store it. A link
may come from an untrusted source or an older version of the page. Each value of a link is validated
separately, by the rules of its control. Invalid values are ignored and reported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from app.engines.limits import Limits, RefusalError
from app.ui.controls import (
    SHOWN,
    STEERED_SETTINGS,
    TITLES,
    Lanes,
    Order,
    Prompt,
    control,
    read_controls,
    read_prompt,
    read_system,
    read_view,
    settings_for,
)
from mars_runtime.settings import MAX_NEW_TOKENS, DecodeSettings, SettingsError, parse_settings
from mars_runtime.text import Turn

POSTED = ("prompt", *SHOWN, "view", "checkpoint", "system", "pace")
"""All controls of the Live tab."""
STEERED = (*STEERED_SETTINGS, "pace")
"""Controls whose changes apply to a run that is already running."""
LINKS = {"prompt": "prompt", "view": "lanes", "checkpoint": "checkpoint", "system": "system"} | {
    name: name for name in SHOWN
}
"""Control -> its name in links. Gradio uses "view" for its API page."""
SHARED = tuple(name for name in POSTED if name in LINKS)
"""Controls of which a link has the values."""
SET_BY_VIEW = tuple(name for name in SHARED if name not in ("prompt", "system"))
"""When a view starts or shows a run, these controls are set to the values of the run. Run posts the
prompt and the system prompt of the view's run.
"""
STORED = ("history", "given")
ORDERED = (*POSTED, *STORED)
"""The values that Run posts: the controls, and the earlier turns and given tokens, which the page
stores.
"""
BRANCH_TITLE = "branch"
"""Title of a lane that continues given tokens. The page shows the original run next to it."""
MAX_PACE = 1000.0
"""Slowest motion. With the value N, a run pauses after each pass for the time of N passes."""
MAX_TURNS = 100
UNREADABLE_GIVEN = "The tokens to continue from are not valid. Press Run to start a new run."
UNREADABLE = "The conversation is not valid. Press New conversation."
Histories = Mapping[str, tuple[Turn, ...]]
"""Earlier turns of the conversation by lane."""
IGNORED = "Some values in this link were ignored."


def read_given(value: Any, limits: Limits) -> tuple[int, ...]:
    """Return the validated ids of the tokens to continue from; empty if there are none. Raises
    RefusalError.

    ``lanes.check_order`` checks later whether the checkpoint has these tokens and whether they fit.
    """
    if value is None or value == "":
        return ()
    is_list = isinstance(value, list) and len(value) <= MAX_NEW_TOKENS
    if not is_list or not all(type(token) is int for token in value):
        raise RefusalError("given", UNREADABLE_GIVEN)
    return tuple(value)


class PostedTurn(BaseModel):
    """An earlier turn. A branch can be longer than the token limit of its run."""

    model_config = ConfigDict(strict=True)

    prompt: Prompt
    tokens: Annotated[list[int], Field(max_length=MAX_NEW_TOKENS)]


Turns = Annotated[list[PostedTurn], Field(max_length=MAX_TURNS)]
_HISTORY: TypeAdapter[list[PostedTurn] | dict[str, list[PostedTurn]]] = TypeAdapter(
    Turns | dict[str, Turns]
)


def read_history(value: object, limits: Limits) -> Histories:
    """Validate earlier turns. Raises RefusalError.

    The value is one list for all lanes, or ``{lane: list}``, as JSON text or already parsed. A lane
    without a list uses the list of AR. ``lanes.check_order`` checks later whether the checkpoint
    has the tokens.
    """
    try:
        parsed = json.loads(value) if isinstance(value, str) and value else value
        posted = _HISTORY.validate_python(parsed or [], context=limits)
    except (ValueError, RecursionError):
        raise RefusalError("prompt", UNREADABLE) from None
    own = posted if isinstance(posted, dict) else {"ar": posted}
    lanes = {lane: own.get(lane, own.get("ar", [])) for lane in TITLES}
    return {
        lane: tuple(Turn(turn.prompt, tuple(turn.tokens)) for turn in turns)
        for lane, turns in lanes.items()
    }


class LiveSteering(Order):
    pace: Annotated[float, Field(ge=0, le=MAX_PACE)] = 0.0

    def applied_to(self, settings: DecodeSettings) -> DecodeSettings:
        return replace(
            settings, **{name: getattr(self.settings, name) for name in STEERED_SETTINGS}
        )


class LiveOrder(LiveSteering):
    """A validated request for a run.

    view: the methods to run, one lane each.
    given: the first tokens of the output. max_new_tokens limits only the tokens that are generated
    after them.
    history: earlier turns by lane.
    """

    prompt: Prompt
    view: Lanes
    given: Annotated[tuple[int, ...], control(read_given)] = ()
    history: Annotated[Histories, control(read_history)] = Field(default_factory=dict)

    @property
    def continues_text(self) -> bool:
        return bool(self.given) or any(self.history.values())

    @property
    def lanes(self) -> dict[str, DecodeSettings]:
        return {name: settings_for(name, self.settings) for name in self.view}

    @property
    def titles(self) -> dict[str, str]:
        titles = {name: TITLES[name] for name in self.view}
        return {**titles, self.view[0]: BRANCH_TITLE} if self.given else titles


def read_link(
    query: Mapping[str, str], limits_of: Callable[[object], Limits], default: str
) -> tuple[dict[str, Any], str]:
    """Return the values of a link by control, and a sentence about the ignored values, which is
    empty if there are none.

    limits_of: returns the limits of a checkpoint; raises RefusalError if the checkpoint is not
    listed.
    default: the checkpoint to use if the link has none.
    """
    values: dict[str, Any] = {}
    refusals: list[str] = []
    checkpoint = default
    for name, link in sorted(LINKS.items(), key=lambda item: item[0] != "checkpoint"):
        if link not in query:
            continue
        try:
            if name == "checkpoint":
                limits_of(query[link])
                checkpoint = query[link]
            values[name] = _read_linked(name, query[link], limits_of(checkpoint))
        except (RefusalError, SettingsError) as refusal:
            refusals.append(f"{link}: {refusal}")
    return values, f"{IGNORED} {' '.join(refusals)}" if refusals else ""


READ_TEXT: dict[str, Callable[[str, Limits], Any]] = {
    "prompt": read_prompt,
    "view": read_view,
    "system": read_system,
    "checkpoint": lambda text, limits: text,
}
"""Functions that validate the controls in links whose values are always text."""


def _read_linked(name: str, text: str, limits: Limits) -> Any:
    if name in READ_TEXT:
        return READ_TEXT[name](text, limits)
    return getattr(read_controls(Order, parse_settings({name: text}), limits).settings, name)
