"""What a forward costs: how much it must read and compute, and how long it takes by width.

rho(Q) is the time of a forward of Q tokens per row over that of the AR forward of one token, at the
same batch and context, acceptance included. Knows the model; knows no decoding and no peers.
"""

from __future__ import annotations

import statistics as plain
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from mars_runtime import statistics
from mars_runtime.decoders.static.batch import StepProbe
from mars_runtime.model.native.model import NativeModel
from mars_runtime.statistics import Estimate

WIDTHS = (1, 2, 3, 4, 5, 7, 9, 12, 15)
CONTEXT = 128


@dataclass(frozen=True, slots=True)
class Load:
    """What one forward of a model must read and compute.

    weight_bytes: read once, whatever is fed: all weights but the table of embeddings.
    head_bytes: those of them that give logits.
    body_weights, head_weights: multiplied for each token fed, and for each slot with logits.
    position_bytes: keys and values of one position, read for every row.
    """

    weight_bytes: int
    head_bytes: int
    body_weights: int
    head_weights: int
    position_bytes: int

    def num_bytes(self, num_rows: int, context: int) -> int:
        """Read by a forward of ``num_rows`` rows that hold ``context`` tokens each."""
        return self.weight_bytes + num_rows * context * self.position_bytes

    def operations(self, num_tokens: float, num_slots: float) -> float:
        """Multiplications and additions, over all rows; attention itself is left out."""
        return 2.0 * (self.body_weights * num_tokens + self.head_weights * num_slots)


@dataclass(frozen=True, slots=True)
class Rho:
    """Times of forwards of ``width`` tokens per row: ``seconds`` is the median, ``rho`` the median
    of paired ratios to the forward of one token."""

    num_rows: int
    width: int
    seconds: float
    rho: Estimate


def load_of(model: Any) -> Load:
    """The load of a model as it keeps its weights."""
    if isinstance(model, NativeModel):
        return Load(**asdict(model.sizes))
    embedding, norm, head, *layers = model.weights()
    config = model.config
    streamed = [norm, head, *layers]
    position = 2 * config.num_layers * config.num_kv_heads * config.head_dim
    return Load(
        weight_bytes=sum(one.numel() * one.element_size() for one in streamed),
        head_bytes=head.numel() * head.element_size(),
        body_weights=sum(one.numel() for one in layers if one.dim() == 2),
        head_weights=embedding.numel(),
        position_bytes=position * model.dtype.itemsize,
    )


@torch.inference_mode()
def forward_times(
    model: Any, num_rows: int, widths: Sequence[int], context: int, num_rounds: int
) -> list[dict[int, float]]:
    """Rounds of seconds by width, widths in turning order, the first round thrown away.

    Half of the slots get logits, as with Q = 2B - 1 and B proposals. On CUDA a forward is a
    captured step, as it is when decoding.
    """
    device = model.device
    if device.type == "cuda":
        step: Callable[[int], object] = StepProbe(model, num_rows, context).run
    else:
        step = _plain_forward(model, num_rows, widths, context)
    rounds = []
    for number in range(num_rounds + 1):
        found = {}
        for width in widths if number % 2 else reversed(widths):
            start = _now(device)
            step(width)
            found[width] = _now(device) - start
        rounds.append(found)
    return rounds[1:]


def _plain_forward(
    model: Any, num_rows: int, widths: Sequence[int], context: int
) -> Callable[[int], object]:
    """One forward and the reading of its logits, by width."""
    device = model.device
    cache = model.new_cache(num_rows, context + max(widths))
    cache.cursors[:] = [context] * num_rows
    forbidden = torch.empty(0, dtype=torch.long, device=device)
    tokens = {
        width: torch.ones(num_rows, width, dtype=torch.long, device=device) for width in widths
    }

    def step(width: int) -> object:
        hidden = model.hidden(tokens[width], cache)
        return model.read(hidden, slice(0, (width + 1) // 2), forbidden, ["probability"] * num_rows)

    return step


def rho_curve(num_rows: int, rounds: Sequence[dict[int, float]]) -> list[Rho]:
    """From rounds of seconds by width, width 1 among them."""
    found = []
    for width in rounds[0]:
        ratios = [one[width] / one[1] for one in rounds]
        seconds = plain.median(one[width] for one in rounds)
        found.append(Rho(num_rows, width, seconds, statistics.median(ratios)))
    return sorted(found, key=lambda one: one.width)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
