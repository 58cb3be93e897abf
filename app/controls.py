"""The controls of the page: those of the table of settings and a few beside them, how each is read,
and what each method makes of the settings.

Every value arrives raw, from the page or from anyone who posts past it, and is checked here and
again by ``DecodeSettings``; a refusal is one sentence that names what to change and never repeats
the prompt. Knows no gradio and no engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from mars_runtime.methods import LANES, LOOKUP, Method
from mars_runtime.settings import (
    AR_LOOKUP,
    AUTO,
    OBEYED_BY_ALL,
    RECOMMENDED,
    SETTINGS,
    DecodeSettings,
    SettingsError,
)
from mars_runtime.text import TextError, check_system

DEFAULTS = replace(RECOMMENDED, stop_loops=True)
"""The settings that the page and its endpoints start with: AR's own text, in the least time."""
PLAIN = DecodeSettings(stop_loops=DEFAULTS.stop_loops)
"""What tabs begin with that have no controls but their own."""
FIXED_BLOCK_SIZE = 4
"""B where the visitor chooses it and has not moved its slider, and where it can't be chosen."""
TITLES: dict[str, str] = {name: facts.title for name, facts in LANES.items()}
MAX_PACE = 100.0
PACES = {"Real time": 0, "Slow, 1/10": 9, "Very slow, 1/40": 39}
"""What the page offers of it: a rest of N forwards after each makes a run N + 1 times slower."""
RACE = ("mars", "ar")
"""The methods that the page opens with, side by side; links of before call them ``race``."""
MAX_LANES = 4


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
class Control:
    """One control of a tab.

    read: its raw value to the one in force; raises RefusalError.
    is_setting: a field of ``DecodeSettings``. is_steered: it acts on a run that goes on.
    link: its name in shared links, empty where they do not hold it. is_text: what a link says is
    the value itself, never a number or a switch.
    """

    name: str
    read: Callable[[Any, Limits], Any]
    is_setting: bool = False
    is_steered: bool = False
    link: str = ""
    is_text: bool = False


def read_all(
    controls: Iterable[Control], values: Mapping[str, Any], limits: Limits
) -> dict[str, Any]:
    """The values in force by the names of their controls. Raises RefusalError."""
    return {control.name: control.read(values.get(control.name), limits) for control in controls}


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
    if is_broken(value):
        raise RefusalError("prompt", "Remove the characters that are no valid text.")
    return value


def read_system(value: object, limits: Limits | None = None) -> str:
    """The system prompt as typed, empty for the checkpoint's own. Raises RefusalError for long or
    broken text."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RefusalError("system", "The system prompt must be text.")
    try:
        check_system(value)
    except TextError as error:
        raise RefusalError("system", str(error)) from None
    if is_broken(value):
        raise RefusalError("system", "Remove the characters that are no valid text.")
    return value if value.strip() else ""


def is_broken(text: str) -> bool:
    """Whether the text has a NUL or half a surrogate pair."""
    return "\0" in text or any("\ud800" <= character <= "\udfff" for character in text)


def read_setting(name: str, value: Any, limits: Limits) -> Any:
    """One field of DecodeSettings, judged alone. Raises RefusalError."""
    if isinstance(value, float) and value.is_integer() and SETTINGS[name].type is not float:
        value = int(value)
    if name == "block_size" and isinstance(value, int) and value > limits.block_size:
        depth = limits.block_size
        raise RefusalError(name, f"Choose a B of at most {depth}, this checkpoint's trained depth.")
    if name == "max_new_tokens" and isinstance(value, int) and value > limits.max_new_tokens:
        raise RefusalError(name, f"Choose at most {limits.max_new_tokens} tokens to generate.")
    chosen: dict[str, Any] = {name: value}
    try:
        DecodeSettings(**chosen)
    except SettingsError as error:
        raise RefusalError(name, str(error)) from None
    return value


def read_view(value: object, limits: Limits) -> list[str]:
    """Which methods to run side by side, in the order of their table: a list of their names, or a
    text with commas between them. Raises RefusalError."""
    wanted: list[Any] = list(value) if isinstance(value, (list, tuple)) else []
    if isinstance(value, str):
        wanted = list(RACE) if value == "race" else value.split(",")
    is_known = all(isinstance(name, str) and name in TITLES for name in wanted)
    if not is_known or not 1 <= len(set(wanted)) <= MAX_LANES:
        known = ", ".join(TITLES.values())
        raise RefusalError("view", f"Choose 1 to {MAX_LANES} methods to run among {known}.")
    return [name for name in TITLES if name in wanted]


def number(name: str, what: str, low: float, high: float, is_steered: bool = False) -> Control:
    """A number of a range; ``what`` begins the refusal."""

    def read(value: Any, limits: Limits) -> float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not low <= value <= high:  # NaN compares false
            raise RefusalError(name, f"{what} must be a number from {low:g} to {high:g}.")
        return float(value)

    return Control(name, read, is_steered=is_steered)


def count(name: str, low: int, high: int) -> Control:
    """A whole number of a range."""

    def read(value: Any, limits: Limits) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is not int or not low <= value <= high:
            what = name.replace("_", " ")
            raise RefusalError(name, f"The {what} must be a whole number from {low} to {high}.")
        return value

    return Control(name, read)


def switch(name: str, what: str, is_steered: bool = False) -> Control:
    """On or off; ``what`` begins the refusal."""

    def read(value: object, limits: Limits) -> bool:
        if not isinstance(value, bool):
            raise RefusalError(name, f"{what} is either on or off.")
        return value

    return Control(name, read, is_steered=is_steered)


def choice(name: str, titles: Mapping[str, str], ask: str = "Choose one of") -> Control:
    """One of some names; ``ask`` begins the refusal, which lists their titles."""

    def read(value: object, limits: Limits) -> str:
        if not isinstance(value, str) or value not in titles:
            raise RefusalError(name, f"{ask}: {', '.join(titles.values())}.")
        return value

    return Control(name, read)


def read_checkpoint(value: object, limits: Limits) -> str:
    """The name of a checkpoint, which has been looked up already: the limits are its own."""
    return str(value)


def settings_with(*first: str) -> tuple[str, ...]:
    """Every setting that has a control: these first, the others as the table has them."""
    shown = [name for name, line in SETTINGS.items() if line.label]
    return tuple(dict.fromkeys((*first, *shown)))


def setting(name: str) -> Control:
    """The control of a line of the table."""
    line = SETTINGS[name]
    read = partial(read_setting, name)
    return Control(name, read, is_setting=True, is_steered=line.is_steered, link=line.link)


PROMPT = Control("prompt", read_prompt, link="prompt", is_text=True)
SYSTEM = Control("system", read_system, link="system", is_text=True)
TAU = setting("tau")
BLOCK_SIZE = setting("block_size")
LOSSLESS = setting("lossless")
MAX_NEW_TOKENS = setting("max_new_tokens")
AUTO_BLOCK_SIZE = switch("auto", "Choosing B automatically", is_steered=True)
CHECKPOINT = Control("checkpoint", read_checkpoint, link="checkpoint", is_text=True)

LIVE_SETTINGS = settings_with(
    *("tau", "block_size", "aim", "metric", "lossless", "groups", "lookup", "threshold", "target"),
    *("max_new_tokens", "temperature", "top_p"),
)
LIVE = (
    PROMPT,
    *map(setting, LIVE_SETTINGS),
    Control("view", read_view, link="lanes", is_text=True),  # gradio opens the API page by "view"
    CHECKPOINT,
    SYSTEM,
    AUTO_BLOCK_SIZE,  # in links the block size "auto"
    number("pace", "Slow motion", 0, MAX_PACE, is_steered=True),
)
"""Those of the Live tab. Every other list of them is taken from here."""
POSTED = tuple(control.name for control in LIVE)
STEERED = tuple(control.name for control in LIVE if control.is_steered)
LINKED = {control.name: control for control in LIVE if control.link}
SHARED = (*LINKED, "auto")
SHOWN = tuple(name for name in SHARED if name not in ("prompt", "system", "max_new_tokens"))
"""Controls that show what a run was started with from a view, which brings the others."""


_STEERED_SETTINGS = tuple(name for name in LIVE_SETTINGS if name in STEERED)


@dataclass(frozen=True, slots=True)
class Steering:
    """What may change while text streams; settings that may not are at their defaults."""

    settings: DecodeSettings
    pace: float

    def applied_to(self, settings: DecodeSettings) -> DecodeSettings:
        """The settings with those that may change."""
        changes = {name: getattr(self.settings, name) for name in _STEERED_SETTINGS}
        return replace(settings, **changes)


def read_live(values: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """All controls of the Live tab; under ``settings`` those that decode. Raises RefusalError."""
    return _with_settings(LIVE, values, limits)


def read_steering(values: Mapping[str, Any], limits: Limits) -> Steering:
    """The controls that steer. Raises RefusalError."""
    found = _with_settings([each for each in LIVE if each.is_steered], values, limits)
    return Steering(found["settings"], found["pace"])


def _with_settings(
    controls: Iterable[Control], values: Mapping[str, Any], limits: Limits
) -> dict[str, Any]:
    """Where B is chosen automatically, its slider is not read."""
    is_auto = AUTO_BLOCK_SIZE.read(values.get("auto", False), limits)
    chosen = {"block_size": AUTO} if is_auto else {}
    found = read_all(controls, {**values, "auto": is_auto, **chosen}, limits)
    settings = {name: value for name, value in found.items() if name in LIVE_SETTINGS}
    return {**found, "settings": DecodeSettings(**settings)}


def title_of(settings: DecodeSettings) -> str:
    """What the page calls a run with these settings."""
    return TITLES[LOOKUP if settings.is_ar_lookup else settings.method]


def settings_for(method: str, settings: DecodeSettings) -> DecodeSettings:
    """The settings by which a method decodes: the visitor's where it obeys them, plain ones where
    it does not, so that a trace says what was in force."""
    facts = LANES[method]
    obeyed = {name: getattr(settings, name) for name in facts.obeys}
    if settings.is_auto and not facts.has_auto and obeyed:
        obeyed["block_size"] = FIXED_BLOCK_SIZE
    if method == "block_diffusion":
        if settings.block_size == 1:  # its checkpoints hide the slider
            obeyed["block_size"] = AUTO
        if settings.lossless:  # there τ says how boldly to draft, and nothing is drafted here
            obeyed["tau"] = DecodeSettings().tau
    common = {name: getattr(settings, name) for name in OBEYED_BY_ALL if name not in facts.refuses}
    if method == LOOKUP:
        return replace(AR_LOOKUP, **common)
    plain = DecodeSettings(tau=1.0, block_size=1, **common)
    return replace(plain, method=cast(Method, method), **obeyed)
