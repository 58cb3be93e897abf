"""What a forward costs beside what the machine allows, both measured.

A forward must read every weight once and do two operations a weight and token; the slower of the
two is the least time it can take (``MachineLimits.floor_seconds``). rho(Q) is the time of a forward
of Q tokens per row over that of the AR forward of one token, at the same batch and context,
acceptance included.
"""

from __future__ import annotations

import statistics as plain
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from mars_runtime import statistics
from mars_runtime.cache import huge_memory
from mars_runtime.model.forward import SamplingMetadata
from mars_runtime.model.native.model import NativeModel
from mars_runtime.statistics import Estimate

WIDTHS = (1, 2, 3, 4, 5, 7, 9, 12, 15)
CONTEXT = 128
MATRIX = {"cpu": 768, "cuda": 8192}
SECONDS = 0.15
"""Spent on each probe, warm-up apart."""


@dataclass(frozen=True, slots=True)
class ForwardWork:
    """What one forward of a model must read and compute.

    weight_bytes: read once, whatever is fed: all weights but the table of embeddings.
    head_bytes: those of them that give logits.
    body_weights, head_weights: multiplied for each token fed, and for each position with logits.
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

    def operations(self, num_tokens: float, num_logits: float) -> float:
        """Multiplications and additions, over all rows; attention itself is left out."""
        return 2.0 * (self.body_weights * num_tokens + self.head_weights * num_logits)


@dataclass(frozen=True, slots=True)
class Rho:
    """Times of forwards of ``width`` tokens per row: ``seconds`` is the median, ``rho`` the median
    of paired ratios to the forward of one token."""

    num_rows: int
    width: int
    seconds: float
    rho: Estimate


def work_of(model: Any) -> ForwardWork:
    """The work of a model as it keeps its weights."""
    if isinstance(model, NativeModel):
        return ForwardWork(**asdict(model.sizes))
    embedding, norm, head, *layers = model.weights()
    config = model.config
    streamed = [norm, head, *layers]
    position = 2 * config.num_layers * config.num_kv_heads * config.head_dim
    return ForwardWork(
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

    Half of the positions get logits, as with Q = 2B - 1 and B proposals.
    """
    device = model.device
    step = _plain_forward(model, num_rows, widths, context)
    rounds = []
    for number in range(num_rounds + 1):
        found = {}
        for width in widths if number % 2 else reversed(widths):
            start = now(device)
            step(width)
            found[width] = now(device) - start
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
    sampling = SamplingMetadata(forbidden, ["probability"] * num_rows)
    tokens = {
        width: torch.ones(num_rows, width, dtype=torch.long, device=device) for width in widths
    }

    def step(width: int) -> object:
        hidden = model.hidden(tokens[width], cache)
        return model.read(hidden, slice(0, (width + 1) // 2), sampling)

    return step


def rho_curve(num_rows: int, rounds: Sequence[dict[int, float]]) -> list[Rho]:
    """From rounds of seconds by width, width 1 among them."""
    found = []
    for width in rounds[0]:
        ratios = [one[width] / one[1] for one in rounds]
        seconds = plain.median(one[width] for one in rounds)
        found.append(Rho(num_rows, width, seconds, statistics.median(ratios)))
    return sorted(found, key=lambda one: one.width)


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """Of one device, dtype and thread count.

    bytes_per_second: reading ``working_set`` bytes over and over, so that a cache that would hold
        the weights is given credit for it.
    operations_per_second: of one large matrix product, a multiplication and an addition apart;
        None where PyTorch's product of whole numbers is slower than that of fp32: it is none of
        those that are fast on this processor, and says nothing of what one could do.
    """

    working_set: int
    bytes_per_second: float
    operations_per_second: float | None

    def better(self, other: MachineLimits) -> MachineLimits:
        """What was reached at either of two times: neighbours on a machine come and go, and a limit
        that something else exceeds is none."""
        speeds = [self.operations_per_second, other.operations_per_second]
        return replace(
            self,
            bytes_per_second=max(self.bytes_per_second, other.bytes_per_second),
            operations_per_second=max(filter(None, speeds), default=None),
        )

    def floor_seconds(self, num_bytes: int, num_operations: float) -> float:
        """The least time for reading so much and computing so much."""
        return max(self.read_seconds(num_bytes), self.compute_seconds(num_operations) or 0.0)

    def read_seconds(self, num_bytes: int) -> float:
        return num_bytes / self.bytes_per_second

    def compute_seconds(self, num_operations: float) -> float | None:
        speed = self.operations_per_second
        return None if speed is None else num_operations / speed


def measure_limits(device: torch.device, dtype: torch.dtype, working_set: int) -> MachineLimits:
    """Measure, at the current number of threads; takes about a second.

    dtype: of what is multiplied. Whole numbers (int8) are read as fp32, which takes as long.
    """
    kept = torch.float32 if dtype == torch.int8 else dtype
    count = max(1, working_set // kept.itemsize)
    side = 1 << max(6, (count.bit_length() - 1) // 2)
    rows = max(1, count // side)
    if device.type == "cpu":  # where the weights of the native forward lie, too
        memory = huge_memory(rows * side * kept.itemsize)[: rows * side * kept.itemsize]
        matrix = memory.view(kept).view(rows, side).fill_(1)
    else:
        matrix = torch.ones(rows, side, dtype=kept, device=device)
    vector = torch.ones(side, dtype=kept, device=device)
    flat, target = matrix.view(-1), torch.empty_like(matrix)
    num_bytes = matrix.numel() * kept.itemsize
    # The way a forward reads its weights, and two that do nothing else; the best of them counts.
    reads = [
        num_bytes / best_seconds(lambda: torch.mv(matrix, vector), device),
        num_bytes / best_seconds(lambda: flat.sum(), device),
        2 * num_bytes / best_seconds(lambda: target.copy_(matrix), device),
    ]
    return MachineLimits(num_bytes, max(reads), _operations_per_second(device, dtype))


def _operations_per_second(device: torch.device, dtype: torch.dtype) -> float | None:
    size = MATRIX[device.type]

    def seconds(kind: torch.dtype, multiply: Callable[..., object]) -> float:
        square = torch.ones(size, size, dtype=kind, device=device)
        return best_seconds(lambda: multiply(square, square), device)

    if dtype != torch.int8:
        return 2 * size**3 / seconds(dtype, torch.mm)
    whole = seconds(dtype, torch._int_mm)
    return 2 * size**3 / whole if whole < seconds(torch.float32, torch.mm) else None


def best_seconds(work: Callable[[], object], device: torch.device) -> float:
    """The shortest of several repeats: a limit is what the machine can do when nothing is in its
    way."""
    work()
    best, end = float("inf"), time.perf_counter() + SECONDS
    while True:
        start = now(device)
        for _ in range(3):
            work()
        finished = now(device)
        best = min(best, (finished - start) / 3)
        if finished > end:
            return best


def now(device: torch.device) -> float:
    """Seconds, once all work given to the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
