"""Reads what the Batch tab, or anyone who posts past it, sends. Knows no gradio or engine.

Every value arrives raw; a refusal is one sentence that names what to change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from app.controls import Limits, RefusalError, read_prompt, read_setting
from mars_runtime.settings import DecodeSettings

TITLES = {
    "cursor": "MARS, cursor cache",
    "block": "MARS, block cache",
    "uncached": "MARS, no cache",
    "ar": "plain AR",
}
NOTHING = "none"
MAX_PROMPTS, MAX_BATCH, MAX_TOKENS = 16, 16, 256
MIN_CACHE_BLOCK, MAX_CACHE_BLOCK = 4, 256  # as in decoders/block.py, which would load torch
LINE_BREAK = "⏎"


@dataclass(frozen=True, slots=True)
class BatchOrder:
    """A batch as asked for: what to decode, by which methods in turn, how."""

    prompts: tuple[str, ...]
    methods: tuple[str, ...]
    settings: DecodeSettings
    batch_size: int
    cache_block: int
    checkpoint: str

    def title(self, method: str) -> str:
        """The name of a method with the settings that matter to it alone."""
        return f"{TITLES[method]} {self.cache_block}" if method == "block" else TITLES[method]


def prompts_as_text(prompts: Iterable[str]) -> str:
    """Prompts one per line, line breaks inside them as a sign."""
    return "\n".join(prompt.replace("\n", f" {LINE_BREAK} ") for prompt in prompts)


def read_batch_order(values: Mapping[str, Any], limits: Limits) -> BatchOrder:
    """All of the tab's controls as an order. Raises RefusalError."""
    prompts = _read_prompts(values.get("prompts"), limits)
    methods = [_read_method("method", values.get("method"))]
    if values.get("second") != NOTHING:
        methods.append(_read_method("second", values.get("second")))
    if len(set(methods)) < len(methods):
        raise RefusalError("second", "Choose a second method that differs from the first, or none.")
    names = ("tau", "block_size", "max_new_tokens")
    chosen = {name: read_setting(name, values.get(name), limits) for name in names}
    if chosen["max_new_tokens"] > MAX_TOKENS:
        raise RefusalError("max_new_tokens", f"Choose at most {MAX_TOKENS} tokens per row.")
    batch_size = _read_whole("batch_size", "batch size", values, 1, MAX_BATCH)
    cache_block = _read_whole(
        "cache_block", "cache block", values, MIN_CACHE_BLOCK, MAX_CACHE_BLOCK
    )
    return BatchOrder(
        prompts,
        tuple(methods),
        DecodeSettings(**chosen),
        batch_size,
        cache_block,
        str(values["checkpoint"]),
    )


def _read_prompts(value: object, limits: Limits) -> tuple[str, ...]:
    """Prompts as text, one per line, or as a list of texts."""
    if isinstance(value, str):
        lines = [line for line in re.split(r"\r?\n", value) if line.strip()]
        given: list[object] = [re.sub(f" ?{LINE_BREAK} ?", "\n", line) for line in lines]
    else:
        given = list(value) if isinstance(value, (list, tuple)) else []
    if not given:
        raise RefusalError(
            "prompts", "Type at least one prompt, one per line, or take the examples."
        )
    if len(given) > MAX_PROMPTS:
        raise RefusalError("prompts", f"Give at most {MAX_PROMPTS} prompts, one per line.")
    prompts = []
    for number, each in enumerate(given, 1):
        try:
            prompts.append(read_prompt(each, limits))
        except RefusalError as refusal:
            raise RefusalError("prompts", f"Prompt {number}: {refusal}") from None
    return tuple(prompts)


def _read_method(field: str, value: object) -> str:
    if not isinstance(value, str) or value not in TITLES:
        raise RefusalError(field, f"Choose a method: {', '.join(TITLES.values())}.")
    return value


def _read_whole(field: str, what: str, values: Mapping[str, Any], low: int, high: int) -> int:
    value = values.get(field)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise RefusalError(field, f"The {what} must be a whole number from {low} to {high}.")
    return value
