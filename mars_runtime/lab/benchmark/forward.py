"""Measure the time of forward passes, and the memory bandwidth that limits them.

A forward pass of few tokens reads every weight once, so its time is at least the size of the
weights divided by the memory bandwidth. rho(Q) is the time of a forward pass of Q tokens per row,
divided by the time for one token per row, with the same batch and context. Times include the
evaluation of the logits.
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
"""Duration of each bandwidth measurement, without its warm-up."""


@dataclass(frozen=True, slots=True)
class ForwardWork:
    """The bytes that a forward pass reads.

    weight_bytes: bytes of all weights except the embedding table. position_bytes: bytes of the keys
    and values of one position of a row.
    """

    weight_bytes: int
    position_bytes: int

    def num_bytes(self, num_rows: int, context: int) -> int:
        """Return the bytes that a pass reads for ``num_rows`` rows with ``context`` tokens each."""
        return self.weight_bytes + num_rows * context * self.position_bytes


@dataclass(frozen=True, slots=True)
class Rho:
    """The time of a forward pass of ``width`` tokens per row.

    seconds: median time. rho: time divided by the time of a pass of one token per row, as the
    median over rounds.
    """

    num_rows: int
    width: int
    seconds: float
    rho: Estimate


def work_of(model: Any) -> ForwardWork:
    """Return the bytes that a pass of ``model`` reads, for weights in their stored dtype."""
    if isinstance(model, NativeModel):
        return ForwardWork(model.sizes.weight_bytes, model.sizes.position_bytes)
    _, *streamed = model.weights()
    config = model.config
    position = 2 * config.num_layers * config.num_kv_heads * config.head_dim
    return ForwardWork(
        weight_bytes=sum(weight.numel() * weight.element_size() for weight in streamed),
        position_bytes=position * model.dtype.itemsize,
    )


@torch.inference_mode()
def forward_times(
    model: Any, num_rows: int, widths: Sequence[int], context: int, num_rounds: int
) -> list[dict[int, float]]:
    """Time forward passes of several widths; return width -> seconds for each round.

    An additional round for warm-up is not returned. The order of the widths alternates between
    rounds. As in MARS decoding, where Q = 2B - 1 tokens give B proposals, logits are computed for
    only half of the positions.
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
    """Return a function that runs a forward pass of a given width and chooses the next tokens."""
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
    """Return rho for each width. rounds: width -> seconds for each round, width 1 included."""
    curve = []
    for width in sorted(rounds[0]):
        ratios = [seconds_by_width[width] / seconds_by_width[1] for seconds_by_width in rounds]
        seconds = plain.median(seconds_by_width[width] for seconds_by_width in rounds)
        curve.append(Rho(num_rows, width, seconds, statistics.median(ratios)))
    return curve


def bandwidth(device: torch.device, dtype: torch.dtype, num_bytes: int) -> float:
    """Measure the memory bandwidth in bytes per second, with the current number of threads.

    num_bytes: amount of memory to read repeatedly. If this is the size of the weights, the result
    includes the effect of processor caches that can hold the weights. For int8, the bandwidth of
    fp32 is measured, which is the same. The measurement takes less than a second.
    """
    dtype = torch.float32 if dtype == torch.int8 else dtype
    count = max(1, num_bytes // dtype.itemsize)
    side = 1 << max(6, (count.bit_length() - 1) // 2)
    rows = max(1, count // side)
    if device.type == "cpu":  # use huge pages, as the native model does for its weights
        memory = huge_memory(rows * side * dtype.itemsize)[: rows * side * dtype.itemsize]
        matrix = memory.view(dtype).view(rows, side).fill_(1)
    else:
        matrix = torch.ones(rows, side, dtype=dtype, device=device)
    vector = torch.ones(side, dtype=dtype, device=device)
    flat, target = matrix.view(-1), torch.empty_like(matrix)
    size = matrix.numel() * dtype.itemsize
    # A matrix-vector product is the main work of a forward pass; a sum or a copy can be faster.
    return max(
        size / best_seconds(lambda: torch.mv(matrix, vector), device),
        size / best_seconds(lambda: flat.sum(), device),
        2 * size / best_seconds(lambda: target.copy_(matrix), device),
    )


def best_seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return the shortest time of ``work`` in several repeats, in seconds."""
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
    """Wait until the device has finished its work, then return the time in seconds."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
