"""Costs of forward passes on one device, by the number of tokens per row.

The costs are measured once (``engine/costs.py``) and then corrected by the times of real steps.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from mars_runtime.runs.events import Step
from mars_runtime.settings import MAX_FED

REFERENCE = Path(__file__).with_name("reference_costs.json")
STEP_VARIANCE = 0.06**2  # variance of the log time of a single step
DRIFT_VARIANCES = 0.01**2, 0.005**2, 0.03**2  # growth of each variance in ``Tracking`` per step
INITIAL_VARIANCES = 0.1**2, 0.1**2, 0.5**2  # initial variance of each factor of ``Tracking``
MAX_LEVEL_VARIANCE = 0.1**2  # above it, a one-token step must measure the level (``Tracking``)
MAX_RESIDUAL = 4.0  # in standard deviations; above it the machine's speed has changed


class Curve(NamedTuple):
    """Costs of forward passes for a fixed number of rows. The unit is a pass of one token per row.

    plain: cost of a pass of 1, 2, 3 ... tokens per row.
    masks: additional cost of a pass with masks, for which an adapter may compute more.
    is_sure: false if the time of a one-token step is uncertain; callers should then run one.
    """

    plain: Sequence[float]
    masks: float = 0.0
    is_sure: bool = True

    def of(self, width: int, num_masks: int) -> float:
        """Return the cost of ``width`` tokens per row, of which ``num_masks`` are masks."""
        return self.plain[width - 1] + (self.masks if num_masks else 0.0)

    def at(self, share: float) -> Curve:
        """Return the curve with the costs of masks and of further tokens scaled by ``share``."""
        return Curve([1.0 + share * (cost - 1.0) for cost in self.plain], share * self.masks)


@cache
def reference_curve() -> Curve:
    """Return the costs stored in the repository, which are the same on every machine.

    They are ``engine.costs.measure_costs`` of the chat model on the machine that the file names.
    Automatic B uses them with the objective ``passes``, so a prompt takes the same forward passes
    on every machine.
    """
    measured = json.loads(REFERENCE.read_text(encoding="utf-8"))
    plain = [_between(measured["plain"], length) for length in range(1, MAX_FED + 1)]
    return Curve(plain, measured["masks"])


class Tracking:
    """Corrects measured costs, because other load changes the speed of a machine.

    Tracks the logarithms of three factors. level: multiplies the time of every step. apartness:
    multiplies the time of steps of more than one token, in addition to the level. dearness:
    multiplies the cost of each token after the first. An extended Kalman filter estimates them from
    step times, since the cost of further tokens is not linear in the logarithms. Steps of one token
    update the level only. Longer steps update all three, each in proportion to its uncertainty.
    """

    def __init__(self) -> None:
        self._estimates = [0.0, 0.0, 0.0]
        self._covariance = [
            [variance if row == column else 0.0 for column in range(3)]
            for row, variance in enumerate(INITIAL_VARIANCES)
        ]

    @property
    def is_sure(self) -> bool:
        """Whether the factor ``level`` is well known.

        It becomes uncertain if no step of one token runs for a while.
        """
        return self._covariance[0][0] <= MAX_LEVEL_VARIANCE

    def corrected(self, measured: Curve) -> Curve:
        apartness = math.exp(self._estimates[1])
        dearness = apartness * math.exp(self._estimates[2])
        first, *further = measured.plain
        plain = [first, *[apartness + dearness * (cost - 1.0) for cost in further]]
        return Curve(plain, dearness * measured.masks, self.is_sure)

    def update(self, added: float, ratio: float) -> None:
        """Update the estimates with the time of one step.

        added: measured cost of the step's tokens after the first.
        ratio: time of the step divided by the measured time of a step of one token.
        """
        level, apartness, dearness = self._estimates
        expected = 1.0 + math.exp(dearness) * added
        residual = math.log(ratio / expected) - level - (apartness if added else 0.0)
        slopes = (1.0, 1.0, (expected - 1.0) / expected) if added else (1.0, 0.0, 0.0)
        for number, drift in enumerate(DRIFT_VARIANCES):
            self._covariance[number][number] += drift
        covariances, variance = self._covariance_with(slopes)
        if residual**2 > MAX_RESIDUAL**2 * variance:
            self._covariance[0][0] += residual**2
            covariances, variance = self._covariance_with(slopes)
        self._estimates = [
            estimate + covariance / variance * residual
            for estimate, covariance in zip(self._estimates, covariances, strict=True)
        ]
        for row, covariance in zip(self._covariance, covariances, strict=True):
            for column in range(3):
                row[column] -= covariance * covariances[column] / variance

    def _covariance_with(self, slopes: Sequence[float]) -> tuple[list[float], float]:
        """Return the covariance of a step's log time with each factor, and the variance of that log
        time.
        """
        covariances = [sum(map(operator.mul, row, slopes)) for row in self._covariance]
        return covariances, sum(map(operator.mul, covariances, slopes)) + STEP_VARIANCE


@dataclass(frozen=True, slots=True)
class ForwardCosts:
    """Costs of forward passes on one device.

    depth: the B that the model was trained with, an upper bound on automatic B.
    rho: number of rows -> time of a pass of 1, 2, 3 ... tokens per row, relative to 1 token.
    seconds: time of a pass of one token for the smallest number of rows; 0 if unknown.
    masks: number of rows -> additional cost of masks, in the unit of ``rho``.
    fewer: costs with fewer threads than usual, by number of threads.
    in_force: returns the current number of threads.
    """

    depth: int
    rho: Mapping[int, tuple[float, ...]]
    seconds: float = 0.0
    masks: Mapping[int, float] = field(default_factory=dict)
    fewer: Mapping[int, ForwardCosts] = field(default_factory=dict, repr=False)
    in_force: Callable[[], int] | None = field(default=None, compare=False, repr=False)
    _tracking: Tracking = field(default_factory=Tracking, compare=False, repr=False)
    _curves: dict[int, Curve] = field(default_factory=dict, compare=False, repr=False)

    def curve(self, num_rows: int) -> Curve:
        """Return the costs for ``num_rows`` rows of up to MAX_FED tokens, corrected for the current
        speed.

        Uses the measurement with the next larger number of rows, or the largest one. Lengths beyond
        the measured ones are extrapolated in proportion.
        """
        current = self._for_current_threads()
        return current._tracking.corrected(current._measured(num_rows))

    def record_step(self, step: Step, seconds: float) -> None:
        """Update the corrections with a step of one row that used no draft model; ignore other
        steps.
        """
        if len(step.rows) == 1 and not step.rows[0].num_draft_forwards:
            (row,) = step.rows
            self.record_time(row.num_fed, row.num_fed - row.num_pending, seconds)

    def record_time(self, width: int, num_masks: int, seconds: float) -> None:
        """Update the corrections with the time of a step of one row.

        ``width`` is the number of fed tokens, of which ``num_masks`` are masks.
        """
        current = self._for_current_threads()
        if current.seconds and width <= MAX_FED:
            added = current._measured(1).of(width, num_masks) - 1.0
            current._tracking.update(added, seconds / current.seconds)

    def _for_current_threads(self) -> ForwardCosts:
        return self.fewer.get(self.in_force(), self) if self.in_force is not None else self

    def _measured(self, num_rows: int) -> Curve:
        if num_rows not in self._curves:
            large_enough = [rows for rows in self.rho if rows >= num_rows]
            nearest = min(large_enough) if large_enough else max(self.rho)
            costs = self.rho[nearest]
            # Cost depends on the total number of tokens, so extra rows count as more tokens.
            times = max(1.0, num_rows / nearest)
            unit = _between(costs, times)
            plain = [_between(costs, times * length) / unit for length in range(1, MAX_FED + 1)]
            self._curves[num_rows] = Curve(plain, self.masks.get(nearest, 0.0) / unit)
        return self._curves[num_rows]


def _between(costs: Sequence[float], length: float) -> float:
    """Return the cost of a pass of ``length`` tokens, given ``costs`` of 1, 2, 3 ... tokens.

    The cost is interpolated between these lengths, and proportional to ``length`` beyond them.
    """
    if length >= len(costs):
        return costs[-1] * length / len(costs)
    below = int(length)
    return costs[below - 1] + (length - below) * (costs[below] - costs[below - 1])
