"""Controls of the page: how each value is validated, and which settings each method uses.

Most controls come from the table of settings. Every value arrives raw, from the page or from any
other client, and is validated here and again by ``DecodeSettings``. An error is one sentence that
names what to change and never repeats the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from app.engines.limits import Limits, RefusalError
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
"""Initial settings of the page and its endpoints: the fastest ones with AR's own text."""
PLAIN = DecodeSettings(stop_loops=DEFAULTS.stop_loops)
"""Initial settings of tabs that have only their own controls."""
FIXED_BLOCK_SIZE = 4
"""B while the slider has not been moved, and for methods that cannot choose it automatically."""
TITLES: dict[str, str] = {name: facts.title for name, facts in LANES.items()}
MAX_PACE = 100.0
PACES = {"Real time": 0, "10× slower": 9, "40× slower": 39}
"""Paces that the page offers: a pause of N forwards after each makes a run N + 1 times slower."""
RACE = ("mars", "ar")
"""Methods that the page opens with; old links call them ``race``."""
MAX_LANES = 4


@dataclass(frozen=True, slots=True)
class Control:
    """One control of a tab.

    read: validates its raw value; raises RefusalError. is_setting: it is a field of
    ``DecodeSettings``. is_steered: a change applies to a running run. link: its name in shared
    links; empty if they omit it. is_text: its value in a link is text, never a number or a switch.
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
    """Return the validated values by the names of their controls. Raises RefusalError."""
    return {control.name: control.read(values.get(control.name), limits) for control in controls}


def read_prompt(value: object, limits: Limits) -> str:
    """Validate the prompt. Raises RefusalError for blank, long or invalid text."""
    if not isinstance(value, str):
        raise RefusalError("prompt", "The prompt must be text.")
    if not value.strip():
        raise RefusalError("prompt", "Type a prompt or pick an example.")
    if len(value) > limits.max_prompt_chars:
        most = limits.max_prompt_chars
        sentence = f"Shorten the prompt to at most {most:,} characters; it has {len(value):,}."
        raise RefusalError("prompt", sentence)
    if is_broken(value):
        raise RefusalError("prompt", "Remove the characters that are not valid text.")
    return value


def read_system(value: object, limits: Limits | None = None) -> str:
    """Validate the system prompt; empty means the checkpoint's own. Raises RefusalError for long or
    invalid text.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RefusalError("system", "The system prompt must be text.")
    try:
        check_system(value)
    except TextError as error:
        raise RefusalError("system", str(error)) from None
    if is_broken(value):
        raise RefusalError("system", "Remove the characters that are not valid text.")
    return value if value.strip() else ""


def is_broken(text: str) -> bool:
    """Whether the text has a NUL or an unpaired surrogate."""
    return "\0" in text or any("\ud800" <= character <= "\udfff" for character in text)


def read_setting(name: str, value: Any, limits: Limits) -> Any:
    """Validate one field of DecodeSettings on its own. Raises RefusalError."""
    if isinstance(value, float) and value.is_integer() and SETTINGS[name].type is not float:
        value = int(value)
    if name == "block_size" and isinstance(value, int) and value > limits.block_size:
        depth = limits.block_size
        raise RefusalError(
            name, f"Choose a B of at most {depth}, this checkpoint's trained depth; got {value}."
        )
    if name == "max_new_tokens" and isinstance(value, int) and value > limits.max_new_tokens:
        raise RefusalError(
            name, f"Choose at most {limits.max_new_tokens} tokens to generate, got {value}."
        )
    chosen: dict[str, Any] = {name: value}
    try:
        DecodeSettings(**chosen)
    except SettingsError as error:
        raise RefusalError(name, str(error)) from None
    return value


def read_view(value: object, limits: Limits) -> list[str]:
    """Validate the methods to run and return them in the order of their table.

    The value is a list of names, or names separated by commas. Raises RefusalError.
    """
    wanted: list[Any] = list(value) if isinstance(value, (list, tuple)) else []
    if isinstance(value, str):
        wanted = list(RACE) if value == "race" else value.split(",")
    is_known = all(isinstance(name, str) and name in TITLES for name in wanted)
    if not is_known or not 1 <= len(set(wanted)) <= MAX_LANES:
        known = ", ".join(TITLES.values())
        raise RefusalError("view", f"Choose 1 to {MAX_LANES} methods to run from {known}.")
    return [name for name in TITLES if name in wanted]


def number(name: str, what: str, low: float, high: float, is_steered: bool = False) -> Control:
    """Return a control for a bounded number; ``what`` starts its error message."""

    def read(value: Any, limits: Limits) -> float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not low <= value <= high:  # NaN compares false
            raise RefusalError(name, f"{what} must be a number from {low:g} to {high:g}.")
        return float(value)

    return Control(name, read, is_steered=is_steered)


def count(name: str, low: int, high: int) -> Control:
    """Return a control for a bounded whole number."""

    def read(value: Any, limits: Limits) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is not int or not low <= value <= high:
            what = name.replace("_", " ")
            raise RefusalError(name, f"The {what} must be a whole number from {low} to {high}.")
        return value

    return Control(name, read)


def switch(name: str, what: str, is_steered: bool = False) -> Control:
    """Return a control that is on or off; ``what`` starts its error message."""

    def read(value: object, limits: Limits) -> bool:
        if not isinstance(value, bool):
            raise RefusalError(name, f"{what} must be on or off.")
        return value

    return Control(name, read, is_steered=is_steered)


def choice(name: str, titles: Mapping[str, str], ask: str = "Choose one of") -> Control:
    """Return a control for one of several names. ``ask`` starts its error message, which lists the
    titles.
    """

    def read(value: object, limits: Limits) -> str:
        if not isinstance(value, str) or value not in titles:
            raise RefusalError(name, f"{ask}: {', '.join(titles.values())}.")
        return value

    return Control(name, read)


def read_checkpoint(value: object, limits: Limits) -> str:
    """Return the name of a checkpoint. It was validated when its limits were looked up."""
    return str(value)


def settings_with(*first: str) -> tuple[str, ...]:
    """Return every setting that has a control: these first, then the others in the order of the
    table.
    """
    shown = [name for name, line in SETTINGS.items() if line.label]
    return tuple(dict.fromkeys((*first, *shown)))


def setting(name: str) -> Control:
    """Return the control of a setting in the table."""
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
    *("tau", "block_size", "auto_objective", "metric", "lossless", "mask_layout", "lookup"),
    *("tau_policy", "agreement_target", "max_new_tokens", "temperature", "top_p"),
)
LIVE = (
    PROMPT,
    *map(setting, LIVE_SETTINGS),
    Control("view", read_view, link="lanes", is_text=True),  # Gradio uses "view" for its API page
    CHECKPOINT,
    SYSTEM,
    AUTO_BLOCK_SIZE,  # in links: block size "auto"
    number("pace", "Slow motion", 0, MAX_PACE, is_steered=True),
)
"""Controls of the Live tab. All other lists of controls are derived from it."""
POSTED = tuple(control.name for control in LIVE)
STEERED = tuple(control.name for control in LIVE if control.is_steered)
LINKED = {control.name: control for control in LIVE if control.link}
SHARED = (*LINKED, "auto")
SHOWN = tuple(name for name in SHARED if name not in ("prompt", "system", "max_new_tokens"))
"""Controls that are set to a view's run; the view brings the other values itself."""


_STEERED_SETTINGS = tuple(name for name in LIVE_SETTINGS if name in STEERED)


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """Settings that may change while text streams; all other settings have their defaults."""

    settings: DecodeSettings
    pace: float

    def applied_to(self, settings: DecodeSettings) -> DecodeSettings:
        """Return ``settings`` with the steered ones replaced."""
        changes = {name: getattr(self.settings, name) for name in _STEERED_SETTINGS}
        return replace(settings, **changes)


def read_live(values: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """Validate all controls of the Live tab; ``settings`` in the result has the decoding ones.
    Raises RefusalError.
    """
    return _with_settings(LIVE, values, limits)


def read_steering(values: Mapping[str, Any], limits: Limits) -> LiveSettings:
    """Validate the controls that steer a running run. Raises RefusalError."""
    read = _with_settings([control for control in LIVE if control.is_steered], values, limits)
    return LiveSettings(read["settings"], read["pace"])


def _with_settings(
    controls: Iterable[Control], values: Mapping[str, Any], limits: Limits
) -> dict[str, Any]:
    """Validate these controls and build the settings. With automatic B the slider's value is
    ignored.
    """
    is_auto = AUTO_BLOCK_SIZE.read(values.get("auto", False), limits)
    chosen = {"block_size": AUTO} if is_auto else {}
    read = read_all(controls, {**values, "auto": is_auto, **chosen}, limits)
    settings = {name: value for name, value in read.items() if name in LIVE_SETTINGS}
    return {**read, "settings": DecodeSettings(**settings)}


def title_of(settings: DecodeSettings) -> str:
    """Return the page's name for the method of these settings."""
    return TITLES[LOOKUP if settings.is_ar_lookup else settings.method]


def settings_for(method: str, settings: DecodeSettings) -> DecodeSettings:
    """Return the settings with which a method decodes.

    Settings that the method does not use get plain values, so a trace reports what was in force.
    """
    facts = LANES[method]
    obeyed = {name: getattr(settings, name) for name in facts.obeys}
    if settings.is_auto and not facts.has_auto and obeyed:
        obeyed["block_size"] = FIXED_BLOCK_SIZE
    if method == "block_diffusion":
        if settings.block_size == 1:  # the page hides its slider
            obeyed["block_size"] = AUTO
        if settings.lossless:  # then τ is for drafts, and this method has none
            obeyed["tau"] = DecodeSettings().tau
    common = {name: getattr(settings, name) for name in OBEYED_BY_ALL if name not in facts.refuses}
    if method == LOOKUP:
        return replace(AR_LOOKUP, **common)
    plain = DecodeSettings(tau=1.0, block_size=1, **common)
    return replace(plain, method=cast(Method, method), **obeyed)
