"""The cost of a forward pass, compared with the time that the machine needs to read its weights.

A forward pass of few tokens reads every weight once, so its time is at least the size of the
weights over the memory bandwidth, which is measured here. rho(Q) is the time of a forward pass of Q
tokens per row over that of one token, at the same batch and context, acceptance included.
"""

from __future__ import annotations

import statistics as plain
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mars_runtime import statistics
from mars_runtime.cache import huge_memory
from mars_runtime.model.forward import SamplingMetadata
from mars_runtime.model.native.model import NativeModel
from mars_runtime.statistics import Estimate

WIDTHS = (1, 2, 3, 4, 5, 7, 9, 12, 15)
CONTEXT = 128
PROBE_SECONDS = 0.15
"""Time spent on each measurement of the bandwidth, without its warm-up."""


@dataclass(frozen=True, slots=True)
class ForwardWork:
    """Bytes that a forward pass reads.

    weight_bytes: all weights but the table of embeddings. position_bytes: keys and values of one
    position of a row.
    """

    weight_bytes: int
    position_bytes: int

    def num_bytes(self, num_rows: int, context: int) -> int:
        """Return what a forward pass of ``num_rows`` rows of ``context`` tokens each reads."""
        return self.weight_bytes + num_rows * context * self.position_bytes


@dataclass(frozen=True, slots=True)
class Rho:
    """Time of a forward pass of ``width`` tokens per row.

    seconds: median. rho: median of paired ratios to the forward pass of one token.
    """

    num_rows: int
    width: int
    seconds: float
    rho: Estimate


def work_of(model: Any) -> ForwardWork:
    """Return the work of a model, for its weights as they are stored."""
    if isinstance(model, NativeModel):
        return ForwardWork(model.sizes.weight_bytes, model.sizes.position_bytes)
    _, *streamed = model.weights()
    config = model.config
    position = 2 * config.num_layers * config.num_kv_heads * config.head_dim
    return ForwardWork(
        weight_bytes=sum(one.numel() * one.element_size() for one in streamed),
        position_bytes=position * model.dtype.itemsize,
    )


@torch.inference_mode()
def forward_times(
    model: Any, num_rows: int, widths: Sequence[int], context: int, num_rounds: int
) -> list[dict[int, float]]:
    """Return seconds by width for each round, without a first round for warm-up.

    The order of the widths alternates. Half of the positions get logits, as with Q = 2B - 1 and B
    proposals.
    """
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
    """Return a function from a width to one forward pass with its sampling."""
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
        return model.read(hidden, slice(0, (width + 1) // 2), sampling)

    return step


def rho_curve(num_rows: int, rounds: Sequence[dict[int, float]]) -> list[Rho]:
    """Return rho by width, from rounds of seconds by width that include width 1."""
    curve = []
    for width in sorted(rounds[0]):
        ratios = [one[width] / one[1] for one in rounds]
        seconds = plain.median(one[width] for one in rounds)
        curve.append(Rho(num_rows, width, seconds, statistics.median(ratios)))
    return curve


def bandwidth(device: torch.device, dtype: torch.dtype, num_bytes: int) -> float:
    """Return the bytes per second of repeatedly reading ``num_bytes``, at the current number of
    threads. Takes less than a second.

    The size is that of the weights, so a cache that would hold them counts. int8 is read as fp32,
    which is equally fast.
    """
    dtype = torch.float32 if dtype == torch.int8 else dtype
    count = max(1, num_bytes // dtype.itemsize)
    side = 1 << max(6, (count.bit_length() - 1) // 2)
    rows = max(1, count // side)
    if device.type == "cpu":  # the kind of memory that holds the native model's weights
        memory = huge_memory(rows * side * dtype.itemsize)[: rows * side * dtype.itemsize]
        matrix = memory.view(dtype).view(rows, side).fill_(1)
    else:
        matrix = torch.ones(rows, side, dtype=dtype, device=device)
    vector = torch.ones(side, dtype=dtype, device=device)
    flat, target = matrix.view(-1), torch.empty_like(matrix)
    size = matrix.numel() * dtype.itemsize
    # A product with a vector reads like a forward pass, the others only read; the best counts.
    return max(
        size / best_seconds(lambda: torch.mv(matrix, vector), device),
        size / best_seconds(lambda: flat.sum(), device),
        2 * size / best_seconds(lambda: target.copy_(matrix), device),
    )


def best_seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return the shortest of several repeats, when nothing else slows the machine down."""
    work()
    best, end = float("inf"), time.perf_counter() + PROBE_SECONDS
    while True:
        start = now(device)
        for _ in range(3):
            work()
        finished = now(device)
        best = min(best, (finished - start) / 3)
        if finished > end:
            return best


def now(device: torch.device) -> float:
    """Return the time in seconds, after the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
