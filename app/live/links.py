"""Reads the query of a shared link as values of the page's controls. Knows no gradio.

A link may come from anybody and from an older page: each value is checked alone, by the same rules
as a control, and what cannot be used is left out and told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from app.controls import LINKED, Limits, RefusalError
from mars_runtime.settings import AUTO

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
