"""Reads what the page, or anyone who posts past it, sends for a run. Knows no gradio and no engine.

Every value arrives raw and is checked here and again by ``DecodeSettings``; a refusal is one
sentence that names what to change and never repeats the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mars_runtime.settings import AUTO, DecodeSettings, SettingsError

DEFAULTS = DecodeSettings(tau=0.0, lossless=True, lookup=True)
"""What the page and its endpoints begin with."""
MAX_PACE = 100.0
RACE, MARS_ALONE, AR_ALONE = "race", "mars", "ar"
VIEWS = {
    RACE: "MARS against plain AR",
    MARS_ALONE: "MARS alone",
    AR_ALONE: "plain AR alone",
}
TITLES = {"mars": "MARS", "ar": "plain AR"}
CONTROL_TEXT = re.compile(r"<\|[^|<>\s]{1,40}\|>")
STEERED = ("tau", "block_size", "metric", "lossless", "groups", "lookup")
CHOSEN_ONCE = ("max_new_tokens", "temperature", "seed")
WHOLE = ("block_size", "max_new_tokens", "seed")


class RefusalError(ValueError):
    """What cannot be run: ``field`` is the control at fault, the message one sentence."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Limits:
    """What this app and the chosen checkpoint allow: characters, tokens, trained depth."""

    max_prompt_chars: int
    max_new_tokens: int
    block_size: int


@dataclass(frozen=True, slots=True)
class Order:
    """A run as asked for: what to decode, in which lanes, how. ``given``: the first tokens of the
    output, which count among max_new_tokens; only what is left of those is generated."""

    prompt: str
    settings: DecodeSettings
    view: str
    pace: float
    checkpoint: str
    given: tuple[int, ...] = ()

    @property
    def lanes(self) -> dict[str, DecodeSettings]:
        """Lane name -> its settings, in the order of the page."""
        names = ("mars", "ar") if self.view == RACE else (self.view,)
        left = self.settings.max_new_tokens - len(self.given)
        settings = replace(self.settings, max_new_tokens=left)
        return {name: lane_settings(settings, name) for name in names}


def has_control_text(prompt: str) -> bool:
    """Whether the prompt holds text that looks like a control token."""
    return CONTROL_TEXT.search(prompt) is not None


def lane_settings(settings: DecodeSettings, lane: str) -> DecodeSettings:
    """The settings of a lane: the visitor's for MARS, plain for AR."""
    if lane == "mars":
        return replace(settings, method="mars")
    plain = DecodeSettings(method="ar", tau=1.0, block_size=1, metric=settings.metric)
    return replace(plain, **{name: getattr(settings, name) for name in CHOSEN_ONCE})


def read_order(values: Mapping[str, Any], limits: Limits) -> Order:
    """All of the page's controls as an order. Raises RefusalError."""
    prompt = read_prompt(values.get("prompt"), limits)
    chosen = {name: read_setting(name, values.get(name), limits) for name in CHOSEN_ONCE}
    settings = replace(read_steering(values, limits), **chosen)
    view = values.get("view")
    if not isinstance(view, str) or view not in VIEWS:
        raise RefusalError("view", f"Choose what to run: {', '.join(VIEWS.values())}.")
    pace, given = read_pace(values.get("pace")), read_given(values.get("given"), settings)
    return Order(prompt, settings, view, pace, str(values["checkpoint"]), given)


def read_given(value: object, settings: DecodeSettings) -> tuple[int, ...]:
    """Ids of the tokens to go on from, none for a plain run; whether the checkpoint knows them is
    asked later. Raises RefusalError."""
    if value is None or value == "":
        return ()
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        raise RefusalError("given", "The tokens to go on from cannot be read.")
    if len(value) >= settings.max_new_tokens:
        raise RefusalError(
            "given", "Nothing is left to generate from there on: allow more tokens to generate."
        )
    return tuple(value)


def read_steering(values: Mapping[str, Any], limits: Limits) -> DecodeSettings:
    """The settings that may change while text streams; the others at their defaults.

    With ``auto`` the slider of B is not asked.
    """
    is_auto = values.get("auto", False)
    if not isinstance(is_auto, bool):
        raise RefusalError("auto", "Choosing B automatically is either on or off.")
    chosen = {**values, "block_size": AUTO} if is_auto else values
    return DecodeSettings(
        **{name: read_setting(name, chosen.get(name), limits) for name in STEERED}
    )


def read_prompt(value: object, limits: Limits) -> str:
    """The prompt as typed. Raises RefusalError for blank, long or broken text."""
    if not isinstance(value, str):
        raise RefusalError("prompt", "The prompt must be text.")
    if not value.strip():
        raise RefusalError("prompt", "Type a prompt or choose an example.")
    if len(value) > limits.max_prompt_chars:
        raise RefusalError(
            "prompt", f"Shorten the prompt to at most {limits.max_prompt_chars:,} characters."
        )
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise RefusalError("prompt", "Remove the characters that are no valid text.")
    return value


def read_setting(name: str, value: object, limits: Limits) -> Any:
    """One field of DecodeSettings, judged alone. Raises RefusalError."""
    if name in WHOLE and isinstance(value, float) and value.is_integer():
        value = int(value)
    if name == "block_size" and isinstance(value, int) and value > limits.block_size:
        depth = limits.block_size
        raise RefusalError(name, f"Choose a B of at most {depth}, this checkpoint's trained depth.")
    if name == "max_new_tokens" and isinstance(value, int) and value > limits.max_new_tokens:
        raise RefusalError(name, f"Choose at most {limits.max_new_tokens} tokens to generate.")
    try:
        DecodeSettings(**{name: value})  # type: ignore[arg-type]
    except SettingsError as error:
        raise RefusalError(name, str(error)) from None
    except TypeError:
        raise RefusalError(name, f"The value of {name} cannot be read.") from None
    return value


def read_pace(value: object) -> float:
    """How many times the length of each forward to wait after it; 0 is full speed."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= MAX_PACE:  # type: ignore  # a comparison takes any number
        raise RefusalError("pace", f"Slow motion must be a number from 0 to {MAX_PACE:g}.")
    return float(value)  # type: ignore[arg-type]
