"""What the Live tab, an endpoint, a view of the page or a shared link asks for, parsed and checked.

The page keeps its conversation and posts it with each run: the server remembers nothing of it. A
link may come from anybody and from an older page: each of its values is checked alone, by the same
rules as a control, and what cannot be used is left out and told. Knows no gradio and no engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.controls import (
    LINKED,
    POSTED,
    TITLES,
    Limits,
    RefusalError,
    read_live,
    read_prompt,
    settings_for,
)
from mars_runtime.settings import AUTO, DecodeSettings
from mars_runtime.text import Turn

HISTORY = "history"
ORDERED = (*POSTED, HISTORY)
"""What Run posts: the controls, and the conversation that the page keeps."""
FROM_VIEW = ("prompt", "checkpoint", "system", "given", "instead", HISTORY)
BESIDES = ("max_new_tokens", "view")
"""What a view may say beside those, where not the page's own is meant."""
FIRST, FIRST_TITLE, BRANCH_TITLE = "first", "first run", "branch"
"""The lane that goes on as a first run did, its title, and that of the branch beside it."""
MAX_TURNS = 100
UNREADABLE_GIVEN = "The tokens to go on from cannot be read."
UNREADABLE = "The conversation cannot be read: press New conversation."
Histories = Mapping[str, tuple[Turn, ...]]
"""Lane -> the turns that it goes on from."""
MAX_DIGITS = 20
SWITCH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class LiveOrder:
    """A run as posted: what to decode, in which lanes, how. ``given``: the first tokens of the
    output, which count among max_new_tokens; only what is left of those is generated. histories:
    the turns before this one, by lane. view: the methods to run, a lane each. instead: the token
    that stood in the place of the last given one in the run that this branches from; it is raced
    with, by the first of the methods. system: the system prompt, empty for the checkpoint's own.
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
        """Whether tokens stand before what is generated that another run wrote."""
        return bool(self.given) or any(self.histories.values())

    @property
    def lanes(self) -> dict[str, DecodeSettings]:
        """Lane name -> its settings, in the order of the page; a lane is called by its method, but
        for the one that goes on as a first run did."""
        left = self.settings.max_new_tokens - len(self.given)
        settings = replace(self.settings, max_new_tokens=left)
        found = {name: settings_for(name, settings) for name in self.view}
        return found if self.instead is None else {**found, FIRST: found[self.view[0]]}

    @property
    def titles(self) -> dict[str, str]:
        """Lane name -> what the page calls it."""
        titles = {name: TITLES[name] for name in self.view}
        if self.instead is None:
            return titles
        return {**titles, self.view[0]: BRANCH_TITLE, FIRST: FIRST_TITLE}

    def method_of(self, lane: str) -> str:
        """The method of a lane, by which its settings are chosen."""
        return self.view[0] if lane == FIRST else lane

    def given_to(self, lane: str) -> tuple[int, ...]:
        """What a lane goes on from."""
        if lane != FIRST or self.instead is None:
            return self.given
        return (*self.given[:-1], self.instead)

    def history_of(self, lane: str) -> tuple[Turn, ...]:
        """The turns that a lane goes on from."""
        return self.histories.get(self.method_of(lane), ())


def read_live_order(values: Mapping[str, Any], limits: Limits) -> LiveOrder:
    """All of the tab's controls as an order. Raises RefusalError."""
    found = read_live(values, limits)
    settings = found["settings"]
    given = read_given(values.get("given"), settings)
    instead = values.get("instead")
    if instead is not None and not (given and type(instead) is int):
        raise RefusalError("given", UNREADABLE_GIVEN)
    histories = read_history(values.get(HISTORY), limits)
    return LiveOrder(
        *(found["prompt"], settings, found["view"], found["pace"], found["checkpoint"]),
        given=given,
        histories=histories,
        instead=instead,
        system=found["system"],
    )


def read_given(value: object, settings: DecodeSettings) -> tuple[int, ...]:
    """Ids of the tokens to go on from, none for a plain run; whether the checkpoint knows them is
    looked up later. Raises RefusalError."""
    if value is None or value == "":
        return ()
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        raise RefusalError("given", UNREADABLE_GIVEN)
    if len(value) >= settings.max_new_tokens:
        raise RefusalError(
            "given", "Nothing is left to generate from there on: allow more tokens to generate."
        )
    return tuple(value)


def read_from_view(value: object) -> dict[str, Any]:
    """What a view posted beside the controls: prompt and system prompt of the run on show, the
    turns before it, tokens to go on from and the one that stood in place of their last, a limit of
    tokens and methods where not the page's own.

    As raw as any control; it is JSON of the page's own script, or of anybody. Raises RefusalError.
    """
    try:
        posted = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        posted = None
    if not isinstance(posted, dict):
        raise RefusalError("given", "What was asked for cannot be read: press Run instead.")
    found = {name: posted.get(name) for name in FROM_VIEW}
    return found | {name: posted[name] for name in BESIDES if name in posted}


def read_history(value: object, limits: Limits) -> Histories:
    """Earlier turns, each {"prompt": text, "tokens": ids of the answer}: a list for all lanes, or
    {lane: list}, where a lane that has not answered yet goes on from AR's answers; as JSON or read
    already. Nothing for a first question. Raises RefusalError.

    Whether the checkpoint knows the tokens is looked up later.
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
    return tuple(_turn(each, limits) for each in posted)


def _turn(posted: object, limits: Limits) -> Turn:
    """A question as any prompt, and an answer no longer than this app lets one be."""
    given = posted if isinstance(posted, dict) else {}
    tokens = given.get("tokens")
    if not isinstance(tokens, list) or len(tokens) > limits.max_new_tokens:
        raise RefusalError("prompt", UNREADABLE)
    if not all(type(token) is int for token in tokens):
        raise RefusalError("prompt", UNREADABLE)
    try:
        return Turn(read_prompt(given.get("prompt"), limits), tuple(tokens))
    except RefusalError:
        raise RefusalError("prompt", UNREADABLE) from None


def read_link(
    query: Mapping[str, str], limits_of: Callable[[object], Limits], default: str
) -> tuple[dict[str, Any], str]:
    """The values that a link holds, by control, and a sentence on what was left out, or nothing.

    limits_of: of a checkpoint, raises RefusalError for one that is not listed; default: the one to
    go by where the link names none.
    """
    values: dict[str, Any] = {}
    refusals: list[str] = []
    checkpoint = default
    texts = _by_control(query)
    for name in sorted(texts, key=_checkpoint_first):
        try:
            if name == "checkpoint":
                limits_of(texts[name])
                checkpoint = texts[name]
            value = texts[name] if LINKED[name].is_text else _value(texts[name])
            values[name] = LINKED[name].read(value, limits_of(checkpoint))
        except RefusalError as refusal:
            refusals.append(f"{LINKED[name].link} was left out: {refusal}")
    if "block_size" in values:
        values["auto"] = values["block_size"] == AUTO
    if values.get("auto"):
        del values["block_size"]
    return values, f"Of this link, {' '.join(refusals)}" if refusals else ""


def _by_control(query: Mapping[str, str]) -> dict[str, str]:
    """What the link says of each control. Older links say ``view`` where newer ones say ``lanes``;
    any other ``view`` is none of ours."""
    texts = {name: query[each.link] for name, each in LINKED.items() if each.link in query}
    if query.get("view") in ("race", "mars", "ar"):
        texts.setdefault("view", query["view"])
    return texts


def _checkpoint_first(name: str) -> tuple[bool, int]:
    return name != "checkpoint", list(LINKED).index(name)


def _value(text: str) -> object:
    """A switch, a number or the text as it is, for the settings to judge."""
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
