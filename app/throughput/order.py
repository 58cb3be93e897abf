"""Controls of the Throughput tab."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from app.engines.limits import Limits
from app.ui.controls import PLAIN, Order, Whole, read_controls
from app.ui.rounds import Rounds

ROWS = (1, 2, 4, 8, 16)
MAX_TOKENS = 96  # of each answer
STEERED = ("tau", "block_size", "lossless", "follows")
"""Controls that act on a run in progress."""
CONTROLS = ("rows", *STEERED, "rounds", "checkpoint", "system")


class ThroughputSteering(Order):
    """follows: lower τ while prompts wait."""

    follows: bool


class ThroughputOrder(ThroughputSteering):
    """A validated run.

    rows: number of prompts decoded at once.
    rounds: number of paired rounds to measure; 0 for a live run.
    """

    rows: Annotated[Literal[1, 2, 4, 8, 16], Whole]
    rounds: Rounds

    def steered(self, values: Mapping[str, Any], limits: Limits) -> ThroughputOrder:
        """Return the order with new values of the steered controls. Raises RefusalError."""
        read = read_controls(ThroughputSteering, values, limits, self.settings)
        return self.model_copy(update={"settings": read.settings, "follows": read.follows})


def read_order(values: Mapping[str, Any], limits: Limits) -> ThroughputOrder:
    """Validate the values of all controls, and whether to ``measure``. Raises RefusalError."""
    start = replace(PLAIN, max_new_tokens=min(MAX_TOKENS, limits.max_new_tokens))
    order = read_controls(ThroughputOrder, values, limits, start)
    return order if values.get("measure") else order.model_copy(update={"rounds": 0})
