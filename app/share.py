"""Reads the query of a shared link as values of the page's controls. Knows no gradio.

A link may come from anybody and from an older page: each value is checked alone, by the same rules
as a control, and what cannot be used is left out and told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from app.controls import (
    CHOSEN_ONCE,
    STEERED,
    VIEWS,
    Limits,
    RefusalError,
    read_prompt,
    read_setting,
)
from mars_runtime.settings import AUTO

LINKED = ("prompt", *STEERED, *CHOSEN_ONCE, "view", "checkpoint")
"""What a link may hold; B that is chosen automatically is the block size ``auto``."""
PARAMETERS = {name: "lanes" if name == "view" else name for name in LINKED}
"""Control -> its name in a link; ``view`` is Gradio's, which opens the API page with it."""
MAX_DIGITS = 20
SWITCH = {"true": True, "false": False}


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
    asked = _by_control(query)
    for name in sorted(asked, key=_checkpoint_first):
        try:
            if name == "checkpoint":
                limits_of(asked[name])
                checkpoint = asked[name]
            values[name] = _read(name, asked[name], limits_of(checkpoint))
        except RefusalError as refusal:
            refusals.append(f"{PARAMETERS[name]} was left out: {refusal}")
    if "block_size" in values:
        values["auto"] = values["block_size"] == AUTO
    if values.get("auto"):
        del values["block_size"]
    return values, f"Of this link, {' '.join(refusals)}" if refusals else ""


def _by_control(query: Mapping[str, str]) -> dict[str, str]:
    """What the link says of each control. Older links say ``view`` where newer ones say ``lanes``;
    any other ``view`` is none of ours."""
    asked = {name: query[word] for name, word in PARAMETERS.items() if word in query}
    if query.get("view") in VIEWS:
        asked.setdefault("view", query["view"])
    return asked


def _checkpoint_first(name: str) -> tuple[bool, int]:
    return name != "checkpoint", LINKED.index(name)


def _read(name: str, text: str, limits: Limits) -> Any:
    """One value as its control would send it. Raises RefusalError."""
    if name == "checkpoint":
        return text
    if name == "prompt":
        return read_prompt(text, limits)
    if name == "view":
        if text not in VIEWS:
            raise RefusalError(name, f"Choose what to run: {', '.join(VIEWS.values())}.")
        return text
    return read_setting(name, _value(text), limits)


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
