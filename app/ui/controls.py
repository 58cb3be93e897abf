"""Controls of the page: how settings are shown, and how posted values are validated. An error
message never repeats the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainValidator,
    ValidationError,
    ValidationInfo,
)

from app.engines.limits import Limits, RefusalError
from mars_runtime.decoders.methods import AUTO, LANES, LOOKUP
from mars_runtime.files.json_values import fault_of
from mars_runtime.settings import (
    AR_LOOKUP,
    FIXED_BLOCK_SIZE,
    OBEYED_BY_ALL,
    PAGE,
    RECOMMENDED,
    SETTINGS,
    DecodeSettings,
    SettingsError,
    plain,
)
from mars_runtime.text import MAX_SYSTEM_CHARS

API_DEFAULTS = replace(RECOMMENDED, stop_loops=True)
"""Initial settings of the page's endpoints: the fastest ones that give AR's exact text."""
DEFAULTS = replace(PAGE, stop_loops=True)
"""Initial settings of the page."""
UNVERIFIED_TAU = DecodeSettings().tau
"""τ of unverified runs on the page, until the visitor moves it."""
PLAIN = DecodeSettings(stop_loops=DEFAULTS.stop_loops)
"""Base settings of tabs that override only the settings for which they have controls."""
TITLES: dict[str, str] = {name: facts.title for name, facts in LANES.items()}
RACE = ("mars", "ar")
"""Methods that are selected when the page opens. Old links call this selection ``race``."""
MAX_LANES = 4


@dataclass(frozen=True, slots=True)
class Shown:
    """How the page shows a setting. step: of its slider; 0 for a number that is typed. titles: of
    its choices.
    """

    label: str
    info: str = ""
    step: float = 1
    titles: Mapping[str, str] = field(default_factory=dict)


SHOWN = {
    "tau": Shown("Threshold τ", step=0.01),
    "block_size": Shown("B proposals"),
    "metric": Shown("Confidence measure", titles={"margin": "top-2 margin"}),
    "lossless": Shown("Text"),
    "mask_layout": Shown(
        "Masks in lossless runs",
        titles={"last": "after the last draft", "every": "after every draft"},
    ),
    "lookup": Shown("MARS with prompt lookup: also draft by copying earlier text (lossless only)"),
    "tau_policy": Shown(
        "Threshold rule (unverified runs)",
        "Adaptive thresholds never go below τ.",
        titles={"entropy": "by AR's entropy", "agreement": "by agreement with AR"},
    ),
    "agreement_target": Shown(
        "Target agreement with AR", "Only tokens predicted by masks count.", step=0.01
    ),
    "max_new_tokens": Shown("Max tokens"),
    "temperature": Shown("Temperature", "0 is greedy.", step=0.05),
    "top_p": Shown("Top-p", "1 samples from the whole vocabulary.", step=0.05),
    "seed": Shown("Seed", "Used only at temperatures above 0.", step=0),
    "repetition_penalty": Shown(
        "Repetition penalty",
        "Applies to tokens of the prompt and the answer; 1 is off.",
        step=0.05,
    ),
    "stop_loops": Shown("Stop when the text starts to loop"),
}
"""The settings that have a control, in the order of the page."""
STEERED_SETTINGS = tuple(SHOWN)[: list(SHOWN).index("agreement_target") + 1]
"""The settings that can change during a run: up to the target agreement."""
T = TypeVar("T", bound="Order")


def control(read: Callable[[Any, Limits], Any]) -> PlainValidator:
    """Return an annotation: the value of a control, which ``read`` validates."""

    def validate(value: object, info: ValidationInfo[Limits]) -> object:
        return read(value, info.context)

    return PlainValidator(validate)


def _text(name: str, title: str, value: object, most: int) -> str:
    """Return a valid text of at most ``most`` characters. Raises RefusalError."""
    if not isinstance(value, str):
        raise RefusalError(name, f"The {title} must be text.")
    if len(value) > most:
        sentence = f"Shorten the {title} to at most {most:,} characters; it has {len(value):,}."
        raise RefusalError(name, sentence)
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise RefusalError(name, "Remove the characters that are not valid text.")
    return value


def read_prompt(value: object, limits: Limits) -> str:
    prompt = _text("prompt", "prompt", value, limits.max_prompt_chars)
    if not prompt.strip():
        raise RefusalError("prompt", "Type a prompt or pick an example.")
    return prompt


def read_system(value: object, limits: Limits) -> str:
    """Validate the system prompt; an empty one selects the checkpoint's own. Raises RefusalError if
    it is too long or not valid text.
    """
    system = "" if value is None else _text("system", "system prompt", value, MAX_SYSTEM_CHARS)
    return system if system.strip() else ""


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


Prompt = Annotated[str, control(read_prompt)]
System = Annotated[str, control(read_system)]
Lanes = Annotated[list[str], control(read_view)]
Whole = BeforeValidator(plain)
"""Annotation of an integer, which a client may post as 4.0."""


class Order(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)

    settings: DecodeSettings
    checkpoint: str = ""  # validated when its limits were looked up
    system: System = ""


def read_controls(
    kind: type[T],
    values: Mapping[str, Any],
    limits: Limits,
    start: DecodeSettings = DecodeSettings(),  # noqa: B008
) -> T:
    """Validate what was posted. start: the settings that are not posted. Raises RefusalError for
    the first invalid value.
    """
    chosen = {name: values[name] for name in SETTINGS if name in values and name != "method"}
    try:
        settings = replace(start, **chosen)
        check_limits(chosen, limits)
        return kind.model_validate({**values, "settings": settings}, context=limits)
    except SettingsError as error:
        name, sentence = error.field, str(error)
    except ValidationError as error:
        cause = error.errors()[0].get("ctx", {}).get("error")
        if isinstance(cause, RefusalError):
            raise cause from None
        name, sentence = fault_of(error)
    label = SHOWN[name].label if name in SHOWN else name
    raise RefusalError(name, sentence.replace(name, label, 1))


def check_limits(values: Mapping[str, Any], limits: Limits) -> None:
    size, most = values.get("block_size", AUTO), limits.block_size
    if size != AUTO and size > most:
        raise RefusalError(
            "block_size",
            f"This model was trained for a B of at most {most}, but B is {size}. "
            "Choose a smaller B.",
        )
    tokens, most = values.get("max_new_tokens", 1), limits.max_new_tokens
    if tokens > most:
        raise RefusalError(
            "max_new_tokens", f"Choose at most {most} tokens to generate, got {tokens}."
        )


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
