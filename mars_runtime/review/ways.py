"""Ways of decoding that a set compares: settings of a checkpoint, read from words such as
``tau=0.8``, ``lossless,B=8`` or ``ar,checkpoint=mars-tiny``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mars_runtime.json_values import is_text
from mars_runtime.methods import METHODS
from mars_runtime.settings import (
    AR_LOOKUP,
    SETTINGS,
    DecodeSettings,
    SettingsError,
    number,
    read_settings,
)

MIN_WAYS, MAX_WAYS = 2, 5
MAX_NAME = 80
SHORT = {"B": "block_size", "b": "block_size"}
SWITCH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
UNREPEATABLE = (
    "Choose a number as B, or lossless: with B = auto the text would depend on how fast this "
    "machine happens to be."
)


@dataclass(frozen=True, slots=True)
class ReviewMethod:
    """One way. name: as people wrote it; settings: None of answers that came from elsewhere, as
    text alone, and then there is no checkpoint either."""

    name: str
    checkpoint: str = ""
    settings: DecodeSettings | None = None

    def as_json(self) -> dict[str, Any]:
        """Its values."""
        return asdict(self)


def read_way(text: str, checkpoint: str, **usual: Any) -> ReviewMethod:
    """A way from words with commas between: a method, a switch that is on (``lossless``), or
    ``name=value`` of a setting, B for its block size, ``checkpoint``. ``usual``: settings that no
    word names. Raises SettingsError.

    ``lossless`` without τ drafts with τ = 0; ``ar,lookup`` is AR with prompt lookup. A way must
    give the same text whenever it is taken.
    """
    told: dict[str, Any] = {}
    if not is_text(text):
        raise SettingsError("A way holds half of a character (a lone surrogate): write it again.")
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, is_given, value = (part.strip() for part in word.partition("="))
        if not is_given and name in METHODS:
            told["method"] = name
        elif not is_given and name in SETTINGS and SETTINGS[name].type is bool:
            told[name] = True
        elif is_given and name == "checkpoint":
            checkpoint = value
        elif is_given and (full := SHORT.get(name, name)) in SETTINGS:
            told[full] = _value(full, value)
        else:
            raise SettingsError(
                f"{word[:MAX_NAME]!r} is no way of decoding: write ar, lossless, or settings such "
                "as tau=0.8,B=4."
            )
    if not told:
        raise SettingsError("A way needs a word: ar, lossless, or settings such as tau=0.8,B=4.")
    if told.get("lossless"):
        usual = {"tau": 0.0, **usual}
    if told.get("method") == "ar" and told.pop("lookup", False):
        usual = {**asdict(AR_LOOKUP), **usual}
        del told["method"]
    settings = DecodeSettings(**{**usual, **told})
    return checked(ReviewMethod("".join(text.split())[:MAX_NAME], checkpoint, settings))


def _value(name: str, text: str) -> Any:
    line = SETTINGS[name]
    if line.type is bool:
        return SWITCH.get(text.lower(), text)
    if line.type is float:
        found = number(text)
        return float(found) if isinstance(found, int) else found
    return text if line.low is None else number(text)


def checked(way: ReviewMethod) -> ReviewMethod:
    """The way if its texts can be repeated. Raises SettingsError."""
    settings = way.settings
    if settings is not None and settings.is_auto and not settings.is_verified:
        raise SettingsError(UNREPEATABLE)
    return way


def read_ways(texts: Iterable[str], checkpoint: str, **usual: Any) -> tuple[ReviewMethod, ...]:
    """Ways that differ. Raises SettingsError."""
    ways = tuple(read_way(text, checkpoint, **usual) for text in texts)
    if not MIN_WAYS <= len(ways) <= MAX_WAYS:
        raise SettingsError(f"Give {MIN_WAYS} to {MAX_WAYS} ways of decoding.")
    for name in ("name", "what they do"):
        seen = [way.name if name == "name" else (way.checkpoint, way.settings) for way in ways]
        if len(set(seen)) < len(seen):
            raise SettingsError("Two of these ways are the same: leave one out.")
    return ways


def way_of(told: Mapping[str, Any]) -> ReviewMethod:
    """Parse what ``ReviewMethod.as_json`` returned.

    Raises SettingsError, KeyError, TypeError or ValueError.
    """
    settings = told["settings"]
    return ReviewMethod(
        str(told["name"])[:MAX_NAME],
        str(told["checkpoint"]),
        None
        if settings is None
        else checked(ReviewMethod("", "", read_settings(settings))).settings,
    )
