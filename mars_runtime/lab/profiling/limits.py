"""What this machine can do at best, measured and not looked up: bytes read and operations a second.

A forward must read every weight once and do two operations a weight and token; the slower of the
two is the least time it can take (``Limits.floor_seconds``). Knows no model.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

MATRIX = {"cpu": 768, "cuda": 8192}
SECONDS = 0.15
"""Spent on each probe, warm-up apart."""


@dataclass(frozen=True, slots=True)
class Limits:
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

    def floor_seconds(self, num_bytes: int, num_operations: float) -> float:
        """The least time for reading so much and computing so much."""
        return max(self.read_seconds(num_bytes), self.compute_seconds(num_operations) or 0.0)

    def read_seconds(self, num_bytes: int) -> float:
        return num_bytes / self.bytes_per_second

    def compute_seconds(self, num_operations: float) -> float | None:
        speed = self.operations_per_second
        return None if speed is None else num_operations / speed


def measure_limits(device: torch.device, dtype: torch.dtype, working_set: int) -> Limits:
    """Measure, at the current number of threads; takes about a second.

    dtype: of what is multiplied. Whole numbers (int8) are read as fp32, which takes as long.
    """
    kept = torch.float32 if dtype == torch.int8 else dtype
    count = max(1, working_set // kept.itemsize)
    side = 1 << max(6, (count.bit_length() - 1) // 2)
    matrix = torch.ones(max(1, count // side), side, dtype=kept, device=device)
    vector = torch.ones(side, dtype=kept, device=device)
    flat, target = matrix.view(-1), torch.empty_like(matrix)
    num_bytes = matrix.numel() * kept.itemsize
    # The way a forward reads its weights, and two that do nothing else; the best of them counts.
    reads = [
        num_bytes / best_seconds(lambda: torch.mv(matrix, vector), device),
        num_bytes / best_seconds(lambda: flat.sum(), device),
        2 * num_bytes / best_seconds(lambda: target.copy_(matrix), device),
    ]
    return Limits(num_bytes, max(reads), _operations_per_second(device, dtype))


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
        _wait(device)
        start = time.perf_counter()
        for _ in range(3):
            work()
        _wait(device)
        now = time.perf_counter()
        best = min(best, (now - start) / 3)
        if now > end:
            return best


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
