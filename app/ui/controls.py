"""Controls of the page: how their values are validated, and which settings each method uses.

Most controls belong to a setting in the table ``mars_runtime/settings.py``. Values arrive
unvalidated, from the page or from another client. They are validated here, and the settings again
by ``DecodeSettings``. An error message explains in one sentence what to change; it never repeats
the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from reprlib import repr as shown
from typing import Any

from app.engines.limits import Limits, RefusalError
from mars_runtime.decoders.methods import AUTO, LANES, LOOKUP
from mars_runtime.settings import (
    AR_LOOKUP,
    OBEYED_BY_ALL,
    RECOMMENDED,
    SETTINGS,
    DecodeSettings,
    SettingsError,
)
from mars_runtime.text import TextError, check_system

API_DEFAULTS = replace(RECOMMENDED, stop_loops=True)
"""Initial settings of the page's endpoints: the fastest ones that give AR's exact text."""
FIXED_BLOCK_SIZE = 4
"""Initial B of the page, and the B of methods that cannot choose B automatically."""
DEFAULTS = DecodeSettings(
    tau=0.3, block_size=FIXED_BLOCK_SIZE, lossless=True, stop_loops=API_DEFAULTS.stop_loops
)
"""Initial settings of the page: AR's exact text by masks only, in the same passes on each run."""
PLAIN = DecodeSettings(stop_loops=DEFAULTS.stop_loops)
"""Base settings of tabs that override only the settings for which they have controls."""
TITLES: dict[str, str] = {name: facts.title for name, facts in LANES.items()}
MAX_PACE = 1000.0
"""Slowest motion. With the value N, a run pauses after each pass for the time of N passes."""
RACE = ("mars", "ar")
"""Methods that are selected when the page opens. Old links call this selection ``race``."""
MAX_LANES = 4


@dataclass(frozen=True, slots=True)
class Control:
    """One control of a tab.

    name: key of the value in what the page posts.
    read: validates a value; raises RefusalError.
    is_setting: the control sets the field of ``DecodeSettings`` with the same name.
    is_steered: a change applies to a run that is already running.
    link: the name in shared links; empty if links do not include this control.
    is_text: the value in a link is always text, never a number or a switch.
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
    """Return the validated values by control name. Raises RefusalError."""
    return {control.name: control.read(values.get(control.name), limits) for control in controls}


def read_prompt(value: object, limits: Limits) -> str:
    """Validate the prompt. Raises RefusalError if it is blank, too long or not valid text."""
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
    """Validate the system prompt; an empty one selects the checkpoint's own. Raises RefusalError if
    it is too long or not valid text.
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
    """Whether the text contains a NUL character or an unpaired surrogate."""
    return "\0" in text or any("\ud800" <= character <= "\udfff" for character in text)


def read_setting(name: str, value: Any, limits: Limits) -> Any:
    """Validate one field of DecodeSettings. Raises RefusalError."""
    if isinstance(value, float) and value.is_integer() and SETTINGS[name].type is not float:
        value = int(value)
    if name == "block_size" and isinstance(value, int) and value > limits.block_size:
        depth = limits.block_size
        raise RefusalError(
            name,
            f"This model was trained for a B of at most {depth}, but B is {value}. "
            "Choose a smaller B.",
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
    """Return the validated methods to run, in the order of TITLES.

    The value is a list of names, or names separated by commas. Raises RefusalError.
    """
    wanted: list[Any] = list(value) if isinstance(value, (list, tuple)) else []
    if isinstance(value, str):
        wanted = list(RACE) if value == "race" else value.split(",")
    is_known = all(isinstance(name, str) and name in TITLES for name in wanted)
    if not is_known or not 1 <= len(set(wanted)) <= MAX_LANES:
        known = ", ".join(TITLES.values())
        raise RefusalError("view", f"Choose 1 to {MAX_LANES} of these methods: {known}.")
    return [name for name in TITLES if name in wanted]


def number(name: str, label: str, low: float, high: float, is_steered: bool = False) -> Control:
    """Return a control for a number from ``low`` to ``high``. ``label`` is the start of its error
    message.
    """

    def read(value: Any, limits: Limits) -> float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not low <= value <= high:  # also true for NaN
            raise RefusalError(
                name, f"{label} must be a number from {low:g} to {high:g}, got {shown(value)}."
            )
        return float(value)

    return Control(name, read, is_steered=is_steered)


def count(name: str, label: str, low: int, high: int) -> Control:
    """Return a control for a whole number from ``low`` to ``high``. ``label`` is the start of its
    error message.
    """

    def read(value: Any, limits: Limits) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is not int or not low <= value <= high:
            raise RefusalError(
                name,
                f"{label} must be a whole number from {low} to {high}, got {shown(value)}.",
            )
        return value

    return Control(name, read)


def switch(name: str, label: str, is_steered: bool = False) -> Control:
    """Return a control that is on or off. ``label`` is the start of its error message."""

    def read(value: object, limits: Limits) -> bool:
        if not isinstance(value, bool):
            raise RefusalError(name, f"{label} must be on or off, got {shown(value)}.")
        return value

    return Control(name, read, is_steered=is_steered)


def choice(name: str, titles: Mapping[str, str], ask: str = "Choose one of") -> Control:
    """Return a control for one of the keys of ``titles``. Its error message is ``ask`` followed by
    the titles.
    """

    def read(value: object, limits: Limits) -> str:
        if not isinstance(value, str) or value not in titles:
            raise RefusalError(name, f"{ask}: {', '.join(titles.values())}.")
        return value

    return Control(name, read)


def read_checkpoint(value: object, limits: Limits) -> str:
    """Return the checkpoint's name. It was validated when its limits were looked up."""
    return str(value)


def settings_with(*first: str) -> tuple[str, ...]:
    """Return the names of all settings that have a control: ``first``, then the others in the order
    of the table.
    """
    labelled = [name for name, line in SETTINGS.items() if line.label]
    return tuple(dict.fromkeys((*first, *labelled)))


def setting(name: str) -> Control:
    line = SETTINGS[name]
    read = partial(read_setting, name)
    return Control(name, read, is_setting=True, is_steered=line.is_steered, link=line.link)


PROMPT = Control("prompt", read_prompt, link="prompt", is_text=True)
SYSTEM = Control("system", read_system, link="system", is_text=True)
TAU = setting("tau")
BLOCK_SIZE = setting("block_size")
LOSSLESS = setting("lossless")
MAX_NEW_TOKENS = setting("max_new_tokens")
AUTO_BLOCK_SIZE = switch("auto", "Auto B", is_steered=True)
CHECKPOINT = Control("checkpoint", read_checkpoint, link="checkpoint", is_text=True)

LIVE_SETTINGS = settings_with(
    *("tau", "block_size", "metric", "lossless", "mask_layout", "lookup"),
    *("tau_policy", "agreement_target", "max_new_tokens", "temperature", "top_p"),
)
LIVE = (
    PROMPT,
    *map(setting, LIVE_SETTINGS),
    Control("view", read_view, link="lanes", is_text=True),  # Gradio uses "view" for its API page
    CHECKPOINT,
    SYSTEM,
    AUTO_BLOCK_SIZE,  # in links, this is the block size "auto"
    number("pace", "Slow motion", 0, MAX_PACE, is_steered=True),
)
"""All controls of the Live tab. The other lists of controls are derived from this list."""
POSTED = tuple(control.name for control in LIVE)
STEERED = tuple(control.name for control in LIVE if control.is_steered)
LINKED = {control.name: control for control in LIVE if control.link}
SHARED = (*LINKED, "auto")
SHOWN = tuple(name for name in SHARED if name not in ("prompt", "system", "max_new_tokens"))
"""When a view starts a run, these controls are set to the values of the run. The view posts the
prompt, the system prompt and the token limit itself.
"""


_STEERED_SETTINGS = tuple(name for name in LIVE_SETTINGS if name in STEERED)


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """The settings that can change during a run. All other fields of ``settings`` have their
    defaults.
    """

    settings: DecodeSettings
    pace: float

    def applied_to(self, settings: DecodeSettings) -> DecodeSettings:
        """Return a copy of ``settings`` in which the settings that can change during a run have
        this object's values.
        """
        changes = {name: getattr(self.settings, name) for name in _STEERED_SETTINGS}
        return replace(settings, **changes)


def read_live(values: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """Validate the values of all controls of the Live tab. The result also has ``settings``, built
    from the setting controls. Raises RefusalError.
    """
    return _with_settings(LIVE, values, limits)


def read_steering(values: Mapping[str, Any], limits: Limits) -> LiveSettings:
    """Validate the controls that can change during a run. Raises RefusalError."""
    read = _with_settings([control for control in LIVE if control.is_steered], values, limits)
    return LiveSettings(read["settings"], read["pace"])


def _with_settings(
    controls: Iterable[Control], values: Mapping[str, Any], limits: Limits
) -> dict[str, Any]:
    """Validate these controls and add ``settings`` to the result. If B is automatic, the value of
    the B slider is ignored.
    """
    is_auto = AUTO_BLOCK_SIZE.read(values.get("auto", False), limits)
    chosen = {"block_size": AUTO} if is_auto else {}
    read = read_all(controls, {**values, "auto": is_auto, **chosen}, limits)
    settings = {name: value for name, value in read.items() if name in LIVE_SETTINGS}
    return {**read, "settings": DecodeSettings(**settings)}


def title_of(settings: DecodeSettings) -> str:
    return TITLES[LOOKUP if settings.is_ar_lookup else settings.method]


def settings_for(method: str, settings: DecodeSettings) -> DecodeSettings:
    """Return the settings with which a method decodes.

    Settings that the method does not use get neutral values, so that a trace shows only what had an
    effect.
    """
    facts = LANES[method]
    obeyed = {name: getattr(settings, name) for name in facts.obeys}
    if settings.is_auto and not facts.has_auto and obeyed:
        obeyed["block_size"] = FIXED_BLOCK_SIZE
    if facts.is_alone:
        if settings.block_size == 1:  # the page hides the slider for checkpoints with B = 1
            obeyed["block_size"] = AUTO
        if settings.lossless:  # with lossless, τ applies to drafts, which this method does not make
            obeyed["tau"] = DecodeSettings().tau
    common = {name: getattr(settings, name) for name in OBEYED_BY_ALL if name not in facts.refuses}
    if method == LOOKUP:
        return replace(AR_LOOKUP, **common)
    neutral = DecodeSettings(tau=1.0, block_size=1, **common)
    return replace(neutral, method=method, **obeyed)
