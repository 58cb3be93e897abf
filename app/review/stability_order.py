"""Validation of the controls of the Stability tab."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.engines.limits import Limits, RefusalError
from app.ui.controls import (
    CHECKPOINT,
    FIXED_BLOCK_SIZE,
    MAX_NEW_TOKENS,
    PLAIN,
    PROMPT,
    SYSTEM,
    choice,
    count,
    read_all,
    setting,
    settings_for,
)
from mars_runtime.settings import DecodeSettings

AR, LOSSLESS, UNVERIFIED = "ar", "lossless", "unverified"
UNVERIFIED_TAU = 0.7
METHODS = {
    AR: "plain AR",
    LOSSLESS: "MARS, lossless",
    UNVERIFIED: f"MARS, τ {UNVERIFIED_TAU:g}, unverified",
}
MIN_SEEDS, MAX_SEEDS = 2, 16
MAX_TOKENS = 256
STABILITY = (
    PROMPT,
    choice("method", METHODS, "Choose one of these methods"),
    setting("temperature"),
    count("seeds", "The number of seeds", MIN_SEEDS, MAX_SEEDS),
    MAX_NEW_TOKENS,
    CHECKPOINT,
    SYSTEM,
)


@dataclass(frozen=True, slots=True)
class StabilityOrder:
    """A validated request: one prompt, to be decoded with the seeds 0 to ``num_seeds`` - 1."""

    prompt: str
    method: str
    start: DecodeSettings
    num_seeds: int
    checkpoint: str
    system: str = ""

    def answers(self) -> Iterator[tuple[str, DecodeSettings]]:
        for seed in range(self.num_seeds):
            yield f"s{seed}", replace(self.start, seed=seed)

    def head(self) -> dict[str, Any]:
        """Return the head of the run's log."""
        return {
            "prompt": self.prompt,
            "lane": self.start.method,
            "method": METHODS[self.method],
            "temperature": self.start.temperature,
            "seeds": list(range(self.num_seeds)),
        }


def read_stability_order(values: Mapping[str, Any], limits: Limits) -> StabilityOrder:
    """Validate the values of all controls of the tab. Raises RefusalError."""
    read = read_all(STABILITY, values, limits)
    most = read["max_new_tokens"]
    if most > MAX_TOKENS:
        raise RefusalError(
            "max_new_tokens", f"Choose at most {MAX_TOKENS} tokens per answer (you chose {most})."
        )
    start = replace(PLAIN, max_new_tokens=most, temperature=read["temperature"])
    return StabilityOrder(
        read["prompt"],
        read["method"],
        _settings(read["method"], start, limits.block_size),
        read["seeds"],
        read["checkpoint"],
        read["system"],
    )


def _settings(method: str, start: DecodeSettings, depth: int) -> DecodeSettings:
    """Return the settings of a method. B is fixed, because automatic B depends on timing, so that
    the same seed could give different texts.
    """
    if method == AR:
        return settings_for("ar", start)
    start = replace(start, block_size=min(FIXED_BLOCK_SIZE, depth))
    if method == LOSSLESS:
        return replace(start, tau=0.0, lossless=True, lookup=True)
    return replace(start, tau=UNVERIFIED_TAU, lossless=False)
