"""Validation of the controls of the Batch tab."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.engines.limits import Limits, RefusalError
from app.ui import rounds
from app.ui.controls import (
    AUTO_BLOCK_SIZE,
    BLOCK_SIZE,
    CHECKPOINT,
    FIXED_BLOCK_SIZE,
    LOSSLESS,
    MAX_NEW_TOKENS,
    PLAIN,
    SYSTEM,
    TAU,
    Control,
    choice,
    count,
    read_all,
    read_prompt,
    settings_for,
)
from mars_runtime.methods import LANES, LOOKUP, Method
from mars_runtime.settings import AUTO, MAX_CACHE_BLOCK, MIN_CACHE_BLOCK, DecodeSettings

TITLES = {
    "cursor": "MARS, cursor cache",
    "block": "MARS, block cache",
    "uncached": "MARS, no cache",
    "ar": LANES["ar"].title,
    LOOKUP: LANES[LOOKUP].title,
}
NOTHING = "none"
MAX_PROMPTS, MAX_BATCH, MAX_TOKENS = 16, 16, 256
LINE_BREAK = "⏎"


@dataclass(frozen=True, slots=True)
class BatchOrder:
    """A validated batch request.

    fixed_block_size: the B that replaces automatic B for methods that do not support it.
    """

    prompts: tuple[str, ...]
    methods: tuple[str, ...]
    rounds: int
    settings: DecodeSettings
    fixed_block_size: int
    batch_size: int
    cache_block: int
    checkpoint: str
    system: str = ""

    def title(self, method: str) -> str:
        """Return a method's title, including the settings that only this method uses."""
        if method == "block":
            return f"{TITLES[method]} {self.cache_block}"
        is_lossless = method != LOOKUP and self.of(method).lossless
        return f"{TITLES[method]}, lossless" if is_lossless else TITLES[method]

    def of(self, method: str) -> DecodeSettings:
        """Return the settings of a method.

        Only the cursor cache supports automatic B and lossless. The other methods get a fixed B,
        and the default τ if the visitor chose lossless.
        """
        if method == LOOKUP:
            return settings_for(LOOKUP, self.settings)
        decoder: Method = "ar" if method == "ar" else "mars"
        settings = replace(self.settings, method=decoder)
        if method == "cursor":
            return settings
        if self.settings.is_auto:
            settings = replace(settings, block_size=self.fixed_block_size)
        if settings.lossless:
            settings = replace(settings, lossless=False, tau=DecodeSettings().tau)
        return settings


def prompts_as_text(prompts: Iterable[str]) -> str:
    """Return the prompts as text, one per line, with LINE_BREAK for line breaks inside a prompt."""
    return "\n".join(prompt.replace("\n", f" {LINE_BREAK} ") for prompt in prompts)


def read_prompts(value: object, limits: Limits) -> tuple[str, ...]:
    """Validate the prompts: a text with one prompt per line, or a list of texts. Raises
    RefusalError.
    """
    if isinstance(value, str):
        lines = [line for line in re.split(r"\r?\n", value) if line.strip()]
        lines_or_texts: list[object] = [re.sub(f" ?{LINE_BREAK} ?", "\n", line) for line in lines]
    else:
        lines_or_texts = list(value) if isinstance(value, (list, tuple)) else []
    if not lines_or_texts:
        raise RefusalError(
            "prompts", "Type at least one prompt, or use the examples. Each line is one prompt."
        )
    if len(lines_or_texts) > MAX_PROMPTS:
        raise RefusalError(
            "prompts",
            f"Enter at most {MAX_PROMPTS} prompts, one per line, got {len(lines_or_texts)}.",
        )
    prompts = []
    for number, text in enumerate(lines_or_texts, 1):
        try:
            prompts.append(read_prompt(text, limits))
        except RefusalError as refusal:
            raise RefusalError("prompts", f"Prompt {number}: {refusal}") from None
    return tuple(prompts)


def read_second(value: object, limits: Limits) -> str:
    """Validate the second method, which may be NOTHING. Raises RefusalError."""
    return NOTHING if value == NOTHING else str(_method("second").read(value, limits))


def _method(name: str) -> Control:
    return choice(name, TITLES, "Choose a method")


BATCH = (
    Control("prompts", read_prompts),
    _method("method"),
    Control("second", read_second),
    count("batch_size", "The batch size", 1, MAX_BATCH),
    TAU,
    BLOCK_SIZE,
    AUTO_BLOCK_SIZE,
    LOSSLESS,
    count("cache_block", "The cache block", MIN_CACHE_BLOCK, MAX_CACHE_BLOCK),
    MAX_NEW_TOKENS,
    rounds.CONTROL,
    CHECKPOINT,
    SYSTEM,
)


def read_batch_order(values: Mapping[str, Any], limits: Limits) -> BatchOrder:
    """Validate the values of all controls of the tab. Raises RefusalError."""
    read = read_all(BATCH, {"auto": False, "rounds": rounds.ROUNDS[0], **values}, limits)
    size = read["block_size"]
    settings = {control.name: read[control.name] for control in BATCH if control.is_setting}
    if read["auto"]:
        settings["block_size"] = AUTO
    if read["method"] == read["second"]:
        raise RefusalError(
            "second", 'Choose a second method that differs from the first, or select "nothing".'
        )
    if read["max_new_tokens"] > MAX_TOKENS:
        raise RefusalError(
            "max_new_tokens",
            f"Choose at most {MAX_TOKENS} tokens per row, got {read['max_new_tokens']}.",
        )
    return BatchOrder(
        read["prompts"],
        tuple(read[name] for name in ("method", "second") if read[name] != NOTHING),
        read["rounds"],
        replace(PLAIN, **settings),
        min(FIXED_BLOCK_SIZE, limits.block_size) if size == AUTO else size,
        read["batch_size"],
        read["cache_block"],
        read["checkpoint"],
        read["system"],
    )
