"""Validation of the controls of the Throughput tab."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.engines.limits import Limits
from app.ui import rounds
from app.ui.controls import (
    BLOCK_SIZE,
    CHECKPOINT,
    LOSSLESS,
    PLAIN,
    SYSTEM,
    TAU,
    choice,
    read_all,
    switch,
)
from mars_runtime.settings import DecodeSettings

ROWS = {str(rows): str(rows) for rows in (1, 2, 4, 8, 16)}
MAX_TOKENS = 96  # of each answer
STEERED = (TAU, BLOCK_SIZE, LOSSLESS, switch("follows", "τ follows the queue"))
"""Controls that act on a run in progress."""
CONTROLS = (
    choice("rows", ROWS, "Choose the number of requests at once"),
    *STEERED,
    rounds.CONTROL,
    CHECKPOINT,
    SYSTEM,
)


@dataclass(frozen=True, slots=True)
class ThroughputOrder:
    """A validated run.

    rows: number of prompts decoded at once.
    follows: lower τ while prompts wait.
    rounds: number of paired rounds to measure; 0 for a live run.
    """

    rows: int
    settings: DecodeSettings
    follows: bool
    rounds: int
    checkpoint: str
    system: str

    def steered(self, values: Mapping[str, Any], limits: Limits) -> ThroughputOrder:
        """Return the order with new values of the steered controls. Raises RefusalError."""
        read = read_all(STEERED, values, limits)
        follows = read.pop("follows")
        return replace(self, settings=replace(self.settings, **read), follows=follows)


def read_order(values: Mapping[str, Any], limits: Limits) -> ThroughputOrder:
    """Validate the values of all controls, and whether to ``measure``. Raises RefusalError."""
    read = read_all(CONTROLS, values, limits)
    return ThroughputOrder(
        int(read["rows"]),
        replace(PLAIN, max_new_tokens=min(MAX_TOKENS, limits.max_new_tokens)),
        False,
        read["rounds"] if values.get("measure") else 0,
        read["checkpoint"],
        read["system"],
    ).steered(values, limits)
