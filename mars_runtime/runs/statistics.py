"""Compute estimates with 95 % intervals, as pure functions of plain numbers.

Every bootstrap is a percentile bootstrap with a fixed seed, so equal input gives equal intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Number = TypeVar("Number", np.float64, np.int64)

Z95 = 1.959963984540054
NUM_RESAMPLES = 2000
_CHUNK = 250
"""Number of resamples drawn at a time."""


@dataclass(frozen=True, slots=True)
class Estimate:
    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Estimate:
        return Estimate(self.value * factor, self.low * factor, self.high * factor)


def wilson(num_right: int, num_all: int) -> Estimate:
    """Return the share with Wilson's score interval (Wilson 1927). Raises ValueError."""
    if num_all < 1 or not 0 <= num_right <= num_all:
        raise ValueError(
            f"A share needs 0 <= num_right <= num_all and num_all >= 1, got {num_right}/{num_all}."
        )
    share = num_right / num_all
    spread = Z95**2 / num_all
    centre = (share + spread / 2) / (1 + spread)
    half = Z95 * math.sqrt(share * (1 - share) / num_all + spread / (4 * num_all)) / (1 + spread)
    low = 0.0 if num_right == 0 else max(0.0, centre - half)
    high = 1.0 if num_right == num_all else min(1.0, centre + half)
    return Estimate(share, low, high)


def mean_of_shares(counts: Sequence[tuple[int, int]]) -> Estimate:
    """Return the mean of independent shares (number right, number of all) with equal weights. The
    interval combines their Wilson intervals (Zou and Donner 2008), so its width is valid if all
    answers are right or all are wrong.
    """
    if not counts:
        raise ValueError("A mean of shares needs at least one share.")
    shares = [wilson(num_right, num_all) for num_right, num_all in counts]
    value = sum(share.value for share in shares) / len(shares)
    below = math.sqrt(sum((share.value - share.low) ** 2 for share in shares)) / len(shares)
    above = math.sqrt(sum((share.high - share.value) ** 2 for share in shares)) / len(shares)
    return Estimate(value, max(0.0, value - below), min(1.0, value + above))


def mean(values: Sequence[float], seed: int = 0) -> Estimate:
    return mean_of_means([values], seed)


def mean_of_means(groups: Sequence[Sequence[float]], seed: int = 0) -> Estimate:
    """Return the mean of the group means with equal weights, resampled within each group."""
    _check_groups(groups)
    rng = np.random.default_rng(seed)
    resampled = np.zeros(NUM_RESAMPLES)
    for group in groups:
        values = np.asarray(group, dtype=np.float64)
        resampled += np.concatenate([picked.mean(axis=1) for picked in _resamples(values, rng)])
    value = float(np.mean([np.mean(group) for group in groups]))
    return _between(value, resampled / len(groups))


def median(values: Sequence[float], seed: int = 0) -> Estimate:
    _check_groups([values])
    array = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(seed)
    picked = _resamples(array, rng)
    resampled = np.concatenate([np.median(group, axis=1) for group in picked])
    return _between(float(np.median(array)), resampled)


def median_ratio(groups: Sequence[Sequence[float]], seed: int = 0) -> Estimate:
    """Return the geometric mean of the groups' median ratios, resampled within each group. Raises
    ValueError for a ratio of 0 or less.
    """
    _check_groups(groups)
    if min(min(group) for group in groups) <= 0:
        raise ValueError("A log-ratio needs ratios above 0.")
    rng = np.random.default_rng(seed)
    logs = [np.log(np.asarray(group, dtype=np.float64)) for group in groups]
    resampled = np.zeros(NUM_RESAMPLES)
    for group in logs:
        resampled += np.concatenate([np.median(x, axis=1) for x in _resamples(group, rng)])
    estimate = _between(float(np.mean([np.median(group) for group in logs])), resampled / len(logs))
    return Estimate(math.exp(estimate.value), math.exp(estimate.low), math.exp(estimate.high))


def _resamples(values: NDArray[Number], rng: np.random.Generator) -> list[NDArray[Number]]:
    count = len(values)
    return [
        values[rng.integers(0, count, size=(_CHUNK, count))] for _ in range(NUM_RESAMPLES // _CHUNK)
    ]


def _between(value: float, resampled: Floats) -> Estimate:
    low, high = np.percentile(resampled, [2.5, 97.5])
    return Estimate(value, float(low), float(high))


def _check_groups(groups: Sequence[Sequence[float]]) -> None:
    if not groups or any(len(group) == 0 for group in groups):
        raise ValueError("An estimate needs at least one value in every group.")
    if not all(math.isfinite(value) for group in groups for value in group):
        raise ValueError("An estimate needs finite values.")
