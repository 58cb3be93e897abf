"""The time of forward passes by their number of tokens, the head included."""

from __future__ import annotations

import statistics as plain
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mars_runtime.model.forward import SamplingMetadata
from mars_runtime.runs import statistics
from mars_runtime.runs.statistics import Estimate

WIDTHS = (1, 2, 3, 4, 5, 7, 9, 12, 15)
CONTEXT = 128


@dataclass(frozen=True, slots=True)
class Rho:
    """rho: ``seconds`` relative to one token per row, with the same batch and context; medians."""

    num_rows: int
    width: int
    seconds: float
    rho: Estimate


@torch.inference_mode()
def forward_times(
    model: Any, num_rows: int, widths: Sequence[int], context: int, num_rounds: int
) -> list[dict[int, float]]:
    """Return width -> seconds for each round. As in MARS decoding, where Q = 2B - 1 tokens give B
    proposals, logits are computed for half of the positions."""
    device = model.device
    step = _plain_forward(model, num_rows, widths, context)
    rounds = []
    for number in range(num_rounds + 1):
        seconds = {}
        for width in widths if number % 2 else reversed(widths):
            start = now(device)
            step(width)
            seconds[width] = now(device) - start
        rounds.append(seconds)
    return rounds[1:]


def _plain_forward(
    model: Any, num_rows: int, widths: Sequence[int], context: int
) -> Callable[[int], object]:
    device = model.device
    cache = model.new_cache(num_rows, context + max(widths))
    cache.cursors[:] = [context] * num_rows
    forbidden = torch.empty(0, dtype=torch.long, device=device)
    sampling = SamplingMetadata(forbidden, ["probability"] * num_rows)
    tokens = {
        width: torch.ones(num_rows, width, dtype=torch.long, device=device) for width in widths
    }

    def step(width: int) -> object:
        hidden = model.hidden(tokens[width], cache)
        return model.predict(hidden, slice(0, (width + 1) // 2), sampling)

    return step


def rho_curve(num_rows: int, rounds: Sequence[dict[int, float]]) -> list[Rho]:
    curve = []
    for width in sorted(rounds[0]):
        ratios = [seconds_by_width[width] / seconds_by_width[1] for seconds_by_width in rounds]
        seconds = plain.median(seconds_by_width[width] for seconds_by_width in rounds)
        curve.append(Rho(num_rows, width, seconds, statistics.median(ratios)))
    return curve


def now(device: torch.device) -> float:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
