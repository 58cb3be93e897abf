"""Methods in the short form ``tau=0.8``, ``lossless,B=8``, ``ar,checkpoint=mars-tiny``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mars_runtime.decoders.methods import METHODS
from mars_runtime.files.json_values import as_mapping, as_text, is_text
from mars_runtime.settings import (
    AR_LOOKUP,
    SETTINGS,
    DecodeSettings,
    SettingsError,
    parse_settings,
    read_settings,
)

MIN_METHODS, MAX_METHODS = 2, 12
MAX_NAME = 80
EXAMPLE = "Write ar, lossless, or settings such as tau=0.8,B=4."
UNREPEATABLE = (
    "With B = auto, the text of a method that is not lossless depends on the speed of this "
    "machine. Choose a number for B, or a lossless method."
)


@dataclass(frozen=True, slots=True)
class ReviewMethod:
    """name: as the user wrote it. checkpoint, settings: "" and None for imported answers."""

    name: str
    checkpoint: str = ""
    settings: DecodeSettings | None = None


def read_method(text: str, checkpoint: str, **usual: Any) -> ReviewMethod:
    """``lossless`` without tau means tau = 0, ``ar,lookup`` AR with prompt lookup. usual: settings
    that apply if no word sets them. Raises SettingsError, also for settings that can give different
    texts in different runs."""
    values: dict[str, str] = {}
    if not is_text(text):
        raise SettingsError(f"A method contains characters that are not valid text. {EXAMPLE}")
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in word.partition("="))
        if not equals and name in METHODS:
            values["method"] = name
        elif not equals and name in SETTINGS and SETTINGS[name].get("type") == "boolean":
            values[name] = "true"
        elif equals and name == "checkpoint":
            checkpoint = value
        elif equals and (full := "block_size" if name in ("B", "b") else name) in SETTINGS:
            values[full] = value
        else:
            raise SettingsError(f"{word[:MAX_NAME]!r} is not a method. {EXAMPLE}")
    if not values:
        raise SettingsError(f"The method is empty. {EXAMPLE}")
    chosen = parse_settings(values)
    if chosen.get("lossless"):
        usual = {"tau": 0.0, **usual}
    if chosen.get("method") == "ar" and chosen.pop("lookup", False):
        usual = {**asdict(AR_LOOKUP), **usual}
        del chosen["method"]
    settings = DecodeSettings(**{**usual, **chosen})
    if settings.is_auto and not settings.is_verified:
        raise SettingsError(UNREPEATABLE)
    return ReviewMethod("".join(text.split())[:MAX_NAME], checkpoint, settings)


def read_methods(texts: Iterable[str], checkpoint: str, **usual: Any) -> tuple[ReviewMethod, ...]:
    """Raises SettingsError."""
    methods = tuple(read_method(text, checkpoint, **usual) for text in texts)
    if not MIN_METHODS <= len(methods) <= MAX_METHODS:
        raise SettingsError(f"Choose {MIN_METHODS} to {MAX_METHODS} methods, got {len(methods)}.")
    names = {method.name for method in methods}
    decodings = {(method.checkpoint, method.settings) for method in methods}
    if min(len(names), len(decodings)) < len(methods):
        raise SettingsError("Two of these methods are the same. Remove or change one of them.")
    return methods


def method_of_json(values: Mapping[str, Any]) -> ReviewMethod:
    """Raises SettingsError, KeyError, TypeError or ValueError."""
    settings = values["settings"]
    name, checkpoint = as_text(values["name"]), as_text(values["checkpoint"])
    read = None if settings is None else read_settings(as_mapping(settings))
    return ReviewMethod(name[:MAX_NAME], checkpoint, read)
