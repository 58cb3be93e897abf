"""Parses and validates requests of the Live tab, an endpoint, a view of the page or a shared link.

The page stores its conversation and posts it with each run; the server stores none of it. A link
may come from an untrusted source or an older page: each of its values is validated on its own, by
the rules of its control; invalid values are left out and reported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.engines.limits import Limits, RefusalError
from app.ui.controls import LINKED, POSTED, TITLES, read_live, read_prompt, settings_for
from mars_runtime.settings import (
    AUTO,
    MAX_NEW_TOKENS,
    DecodeSettings,
    SettingsError,
    with_current_names,
)
from mars_runtime.text import Turn

HISTORY = "history"
ORDERED = (*POSTED, HISTORY)
"""What Run posts: the controls, and the conversation that the page stores."""
FROM_VIEW = ("prompt", "checkpoint", "system", "given", "instead", HISTORY)
BESIDES = ("max_new_tokens", "view")
"""Values that a view may add to these, to replace the page's own."""
FIRST, FIRST_TITLE, BRANCH_TITLE = "first", "original run", "branch"
"""Names of a branch: the lane that continues like the first run, that lane's title, and the title
of the lane with the other token.
"""
MAX_TURNS = 100
UNREADABLE_GIVEN = "The tokens to continue from are not valid."
UNREADABLE = "The conversation is not valid. Press New conversation."
Histories = Mapping[str, tuple[Turn, ...]]
"""Earlier turns by lane."""
IGNORED = "Some values of this link were ignored."
MAX_DIGITS = 20
SWITCH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class LiveOrder:
    """A validated request of a run.

    view: the methods to run, a lane each. given: the first tokens of the output; max_new_tokens
    limits what is generated after them. histories: earlier turns by lane. instead: in a branch,
    the token that the first run had in place of the last given one; the first method then gets a
    second lane with it. system: the system prompt; empty for the checkpoint's own.
    """

    prompt: str
    settings: DecodeSettings
    view: Sequence[str]
    pace: float
    checkpoint: str
    given: tuple[int, ...] = ()
    histories: Histories = field(default_factory=dict)
    instead: int | None = None
    system: str = ""

    @property
    def goes_on(self) -> bool:
        """Whether the generated tokens continue text of another run."""
        return bool(self.given) or any(self.histories.values())

    @property
    def lanes(self) -> dict[str, DecodeSettings]:
        """Settings by lane, in the page's order. A lane is named after its method, except FIRST."""
        by_lane = {name: settings_for(name, self.settings) for name in self.view}
        return by_lane if self.instead is None else {**by_lane, FIRST: by_lane[self.view[0]]}

    @property
    def titles(self) -> dict[str, str]:
        """Titles on the page by lane."""
        titles = {name: TITLES[name] for name in self.view}
        if self.instead is None:
            return titles
        return {**titles, self.view[0]: BRANCH_TITLE, FIRST: FIRST_TITLE}

    def method_of(self, lane: str) -> str:
        """Return the method of a lane."""
        return self.view[0] if lane == FIRST else lane

    def given_to(self, lane: str) -> tuple[int, ...]:
        """Return the output tokens from which a lane continues."""
        if lane != FIRST or self.instead is None:
            return self.given
        return (*self.given[:-1], self.instead)

    def history_of(self, lane: str) -> tuple[Turn, ...]:
        """Return the turns from which a lane continues."""
        return self.histories.get(self.method_of(lane), ())


def read_live_order(values: Mapping[str, Any], limits: Limits) -> LiveOrder:
    """Validate all controls of the tab. Raises RefusalError."""
    read = read_live(values, limits)
    settings = read["settings"]
    tokens = read_given(values.get("given"))
    instead = values.get("instead")
    if instead is not None and not (tokens and type(instead) is int):
        raise RefusalError("given", UNREADABLE_GIVEN)
    histories = read_history(values.get(HISTORY), limits)
    return LiveOrder(
        *(read["prompt"], settings, read["view"], read["pace"], read["checkpoint"]),
        given=tokens,
        histories=histories,
        instead=instead,
        system=read["system"],
    )


def read_given(value: Any) -> tuple[int, ...]:
    """Validate the ids of the tokens to continue from; empty for a plain run. Raises RefusalError.

    Whether the checkpoint has these tokens, and whether they fit, is checked later.
    """
    if value is None or value == "":
        return ()
    is_list = isinstance(value, list) and len(value) <= MAX_NEW_TOKENS
    if not is_list or not all(type(token) is int for token in value):
        raise RefusalError("given", UNREADABLE_GIVEN)
    return tuple(value)


def read_from_view(value: object) -> dict[str, Any]:
    """Parse what a view posted in addition to the controls: JSON from the page's script or any
    other client.

    It has the prompt and system prompt of the displayed run, earlier turns, the tokens to continue
    from, the token that the last of them replaces, and optionally a token limit and methods. The
    values are still raw. Raises RefusalError.
    """
    try:
        posted = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        posted = None
    if not isinstance(posted, dict):
        raise RefusalError("given", "This request is not valid. Press Run instead.")
    request = {name: posted.get(name) for name in FROM_VIEW}
    return request | {name: posted[name] for name in BESIDES if name in posted}


def read_history(value: object, limits: Limits) -> Histories:
    """Validate earlier turns, each {"prompt": text, "tokens": ids of the answer}. Raises
    RefusalError.

    The value is a list for all lanes, or {lane: list}, as JSON or parsed. A lane without its own
    list continues from AR's. Whether the checkpoint has the tokens is checked later.
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
    """Validate a turn: its question like any prompt, and its answer up to the largest token limit,
    because a branch is longer than the limit of its run.
    """
    fields = posted if isinstance(posted, dict) else {}
    tokens = fields.get("tokens")
    if not isinstance(tokens, list) or len(tokens) > MAX_NEW_TOKENS:
        raise RefusalError("prompt", UNREADABLE)
    if not all(type(token) is int for token in tokens):
        raise RefusalError("prompt", UNREADABLE)
    try:
        return Turn(read_prompt(fields.get("prompt"), limits), tuple(tokens))
    except RefusalError:
        raise RefusalError("prompt", UNREADABLE) from None


def read_link(
    query: Mapping[str, str], limits_of: Callable[[object], Limits], default: str
) -> tuple[dict[str, Any], str]:
    """Return the values in a link by control, and a sentence about those left out (or "").

    limits_of: returns a checkpoint's limits; raises RefusalError if it is not listed. default: the
    checkpoint if the link has none.
    """
    values: dict[str, Any] = {}
    refusals: list[str] = []
    checkpoint = default
    try:
        texts = _by_control(with_current_names(query))
    except SettingsError as error:
        return {}, f"{IGNORED} {error}"
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


def _by_control(query: Mapping[str, str]) -> dict[str, str]:
    """Return the link's texts by control. Older links have ``view`` instead of ``lanes``; any other
    ``view`` is not ours.
    """
    texts = {name: query[control.link] for name, control in LINKED.items() if control.link in query}
    if query.get("view") in ("race", "mars", "ar"):
        texts.setdefault("view", query["view"])
    return texts


def _checkpoint_first(name: str) -> tuple[bool, int]:
    return name != "checkpoint", list(LINKED).index(name)


def _value(text: str) -> object:
    """Parse a switch or a number; anything else stays text for the settings to validate."""
    if text in SWITCH:
        return SWITCH[text]
    if len(text) > MAX_DIGITS:
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
