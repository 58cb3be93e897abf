"""Validation of run requests that come from the Live tab, an endpoint, a view of the page or a
shared link.

The page stores its conversation and posts it with each run; the server does not store it. A link
may come from an untrusted source or an older version of the page. Each value of a link is validated
separately, by the rules of its control. Invalid values are ignored and reported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.engines.limits import Limits, RefusalError
from app.ui.controls import LINKED, POSTED, TITLES, read_live, read_prompt, settings_for
from mars_runtime.decoders.methods import AUTO
from mars_runtime.settings import (
    MAX_NEW_TOKENS,
    DecodeSettings,
)
from mars_runtime.text import Turn

HISTORY = "history"
ORDERED = (*POSTED, HISTORY)
"""The values that Run posts: the controls, and the conversation that the page stores."""
FROM_VIEW = ("prompt", "checkpoint", "system", "given", HISTORY)
OPTIONAL_FROM_VIEW = ("max_new_tokens", "view")
"""Names of optional values in the JSON that a view posts. If present, they are used instead of the
values of the page's controls.
"""
BRANCH_TITLE = "branch"
"""Title of a lane that continues given tokens. The page shows the original run next to it."""
MAX_TURNS = 100
UNREADABLE_GIVEN = "The tokens to continue from are not valid. Press Run to start a new run."
UNREADABLE_REQUEST = "This request is not valid. Press Run to start a new run."
UNREADABLE = "The conversation is not valid. Press New conversation."
Histories = Mapping[str, tuple[Turn, ...]]
"""Earlier turns of the conversation by lane."""
IGNORED = "Some values in this link were ignored."
MAX_DIGITS = 20
SWITCH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class LiveOrder:
    """A validated request for a run.

    view: the methods to run, one lane each.
    given: the first tokens of the output. max_new_tokens limits only the tokens that are generated
    after them.
    histories: earlier turns by lane.
    system: the system prompt; if empty, the checkpoint's default is used.
    """

    prompt: str
    settings: DecodeSettings
    view: Sequence[str]
    pace: float
    checkpoint: str
    given: tuple[int, ...] = ()
    histories: Histories = field(default_factory=dict)
    system: str = ""

    @property
    def continues_text(self) -> bool:
        """Whether the run continues given tokens or earlier turns."""
        return bool(self.given) or any(self.histories.values())

    @property
    def lanes(self) -> dict[str, DecodeSettings]:
        """Settings by lane, in the order of the page. A lane has the name of its method."""
        return {name: settings_for(name, self.settings) for name in self.view}

    @property
    def titles(self) -> dict[str, str]:
        titles = {name: TITLES[name] for name in self.view}
        return {**titles, self.view[0]: BRANCH_TITLE} if self.given else titles

    def history_of(self, lane: str) -> tuple[Turn, ...]:
        """Return the earlier turns that a lane continues."""
        return self.histories.get(lane, ())


def read_live_order(values: Mapping[str, Any], limits: Limits) -> LiveOrder:
    """Validate the values of all controls of the tab. Raises RefusalError."""
    values_read = read_live(values, limits)
    settings = values_read["settings"]
    tokens = read_given(values.get("given"))
    histories = read_history(values.get(HISTORY), limits)
    return LiveOrder(
        *(
            values_read["prompt"],
            settings,
            values_read["view"],
            values_read["pace"],
            values_read["checkpoint"],
        ),
        given=tokens,
        histories=histories,
        system=values_read["system"],
    )


def read_given(value: Any) -> tuple[int, ...]:
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


def read_from_view(value: object) -> dict[str, Any]:
    """Parse the JSON that a view posts in addition to the controls.

    Returns the prompt and system prompt of the displayed run, earlier turns, the tokens to continue
    from, and optionally a token limit and methods. The values are not validated yet. Raises
    RefusalError if the JSON is not an object.
    """
    try:
        posted = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        posted = None
    if not isinstance(posted, dict):
        raise RefusalError("given", UNREADABLE_REQUEST)
    request = {name: posted.get(name) for name in FROM_VIEW}
    return request | {name: posted[name] for name in OPTIONAL_FROM_VIEW if name in posted}


def read_history(value: object, limits: Limits) -> Histories:
    """Validate earlier turns, each ``{"prompt": text, "tokens": ids of the answer}``. Raises
    RefusalError.

    The value is one list for all lanes, or ``{lane: list}``, as JSON text or already parsed. A lane
    without a list uses the list of AR. ``lanes.check_order`` checks later whether the checkpoint
    has the tokens.
    """
    posted = _parsed(value) if isinstance(value, str) else value
    if isinstance(posted, dict):
        return {lane: _turns(posted.get(lane, posted.get("ar")), limits) for lane in TITLES}
    return dict.fromkeys(TITLES, _turns(posted, limits))


def _parsed(value: str) -> Any:
    try:
        return json.loads(value) if value else None
    except (ValueError, RecursionError):
        raise RefusalError("prompt", UNREADABLE) from None


def _turns(posted: object, limits: Limits) -> tuple[Turn, ...]:
    if posted is None:
        return ()
    if not isinstance(posted, list) or len(posted) > MAX_TURNS:
        raise RefusalError("prompt", UNREADABLE)
    return tuple(_turn(turn, limits) for turn in posted)


def _turn(posted: object, limits: Limits) -> Turn:
    """Validate one turn. Its answer may have up to MAX_NEW_TOKENS tokens, because a branch can be
    longer than the token limit of its run.
    """
    turn = posted if isinstance(posted, dict) else {}
    tokens = turn.get("tokens")
    if not isinstance(tokens, list) or len(tokens) > MAX_NEW_TOKENS:
        raise RefusalError("prompt", UNREADABLE)
    if not all(type(token) is int for token in tokens):
        raise RefusalError("prompt", UNREADABLE)
    try:
        return Turn(read_prompt(turn.get("prompt"), limits), tuple(tokens))
    except RefusalError:
        raise RefusalError("prompt", UNREADABLE) from None


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
    texts = {name: query[control.link] for name, control in LINKED.items() if control.link in query}
    for name in sorted(texts, key=_checkpoint_first):
        try:
            if name == "checkpoint":
                limits_of(texts[name])
                checkpoint = texts[name]
            value = texts[name] if LINKED[name].is_text else _value(texts[name])
            values[name] = LINKED[name].read(value, limits_of(checkpoint))
        except RefusalError as refusal:
            refusals.append(f"{LINKED[name].link}: {refusal}")
    if "block_size" in values:
        values["auto"] = values["block_size"] == AUTO
    if values.get("auto"):
        del values["block_size"]
    return (
        values,
        f"{IGNORED} {' '.join(refusals)}" if refusals else "",
    )


def _checkpoint_first(name: str) -> tuple[bool, int]:
    return name != "checkpoint", list(LINKED).index(name)


def _value(text: str) -> object:
    """Parse a switch or a number. Return other text unchanged, for the settings to validate."""
    if text in SWITCH:
        return SWITCH[text]
    if len(text) > MAX_DIGITS:
        return text
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text
