"""Cost of forwards on one device, by tokens per row.

Costs are measured once (``engine/costs.py``) and then corrected from the times of real steps.
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

from mars_runtime.events import Step
from mars_runtime.settings import MAX_FED

REFERENCE = Path(__file__).with_name("reference_costs.json")
# Variances of log step times. NOISE: of a single step. WANDERING: the drift of each tracked number
# from step to step. UNKNOWN: the initial variance of each.
NOISE = 0.06**2
WANDERING = 0.01**2, 0.005**2, 0.03**2
UNKNOWN = 0.1**2, 0.1**2, 0.5**2
UNSURE = 0.1**2  # variance of the level above which a step of one token is requested
JUMP = 4.0  # standard deviations of a residual that mean that the machine's speed has changed


class Curve(NamedTuple):
    """Cost of forwards with one number of rows, in units of a forward of one token per row.

    plain: cost of 1, 2, 3 ... tokens per row. masks: additional cost of masks among them, from an
    adapter that acts on masks. is_sure: whether the level is known; if not, the caller should run a
    step of one token.
    """

    plain: Sequence[float]
    masks: float = 0.0
    is_sure: bool = True

    def of(self, width: int, num_masks: int) -> float:
        """Return the cost of ``width`` tokens per row, ``num_masks`` of them in mask groups."""
        return self.plain[width - 1] + (self.masks if num_masks else 0.0)

    def at(self, share: float) -> Curve:
        """Return the curve with the cost beyond one token scaled by ``share``."""
        return Curve([1.0 + share * (cost - 1.0) for cost in self.plain], share * self.masks)


@cache
def reference_curve() -> Curve:
    """Return the committed costs of a forward, which are the same on every machine.

    ``tools/reference_costs.py`` measured them. ``auto`` uses them with the objective ``passes``, so
    that a prompt takes the same forward passes on every machine.
    """
    measured = json.loads(REFERENCE.read_text(encoding="utf-8"))
    plain = [_between(measured["plain"], length) for length in range(1, MAX_FED + 1)]
    return Curve(plain, measured["masks"])


class Tracking:
    """Corrections of the measured costs, since the speed of a machine changes with its other load.

    Tracks the logs of three numbers. level: factor on the time of a step of one token. apartness:
    factor on the time of all wider steps, on top of the level. dearness: factor on the cost of
    further tokens. An extended Kalman filter estimates them from step times (the cost of further
    tokens is not linear in the logs). Steps of one token update the level only; others update all
    three, each in proportion to its uncertainty.
    """

    def __init__(self) -> None:
        self._found = [0.0, 0.0, 0.0]
        self._spread = [
            [variance if row == column else 0.0 for column in range(3)]
            for row, variance in enumerate(UNKNOWN)
        ]

    @property
    def is_sure(self) -> bool:
        """Whether the level is known: it is not if no step of one token was seen for long."""
        return self._spread[0][0] <= UNSURE

    def now(self, measured: Curve) -> Curve:
        """Return the measured curve with the corrections applied."""
        apart = math.exp(self._found[1])
        dear = apart * math.exp(self._found[2])
        first, *further = measured.plain
        plain = [first, *[apart + dear * (cost - 1.0) for cost in further]]
        return Curve(plain, dear * measured.masks, self.is_sure)

    def note(self, added: float, ratio: float) -> None:
        """Update the estimates with one step.

        added: measured cost of the step beyond one token. ratio: its time over the measured time of
        one token.
        """
        level, apart, dear = self._found
        base = 1.0 + math.exp(dear) * added
        missed = math.log(ratio / base) - level - (apart if added else 0.0)
        slopes = (1.0, 1.0, (base - 1.0) / base) if added else (1.0, 0.0, 0.0)
        for number, drift in enumerate(WANDERING):
            self._spread[number][number] += drift
        shared, whole = self._spread_of(slopes)
        if missed**2 > JUMP**2 * whole:
            self._spread[0][0] += missed**2
            shared, whole = self._spread_of(slopes)
        self._found = [
            estimate + share / whole * missed
            for estimate, share in zip(self._found, shared, strict=True)
        ]
        for row, share in zip(self._spread, shared, strict=True):
            for column in range(3):
                row[column] -= share * shared[column] / whole

    def _spread_of(self, slopes: Sequence[float]) -> tuple[list[float], float]:
        """Return the covariance of a step's log time with each number, and its own variance."""
        shared = [sum(map(operator.mul, row, slopes)) for row in self._spread]
        return shared, sum(map(operator.mul, shared, slopes)) + NOISE


@dataclass(frozen=True, slots=True)
class ForwardCosts:
    """Costs of forwards on one device.

    depth: the B that the model was trained with, an upper bound on every choice. rho: number of
    rows -> time of forwards of 1, 2, 3 ... tokens per row, relative to 1 token. masks: number of
    rows -> additional cost of masks, in the same unit. seconds: time of a forward of one token for
    the fewest rows; 0 if unknown. fewer: number of threads -> costs with that many threads;
    ``in_force`` returns the current number.
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

        Uses the next larger measured batch, else the largest, with the current number of threads.
        Lengths beyond the measured ones cost in proportion.
        """
        current = self._now()
        return current._tracking.now(current._measured(num_rows))

    def note(self, step: Step, seconds: float) -> None:
        """Update the corrections from a step, if it had one row and no forwards of a draft
        model."""
        if len(step.rows) == 1 and not step.rows[0].num_draft_forwards:
            (row,) = step.rows
            self.took(row.num_fed, row.num_fed - row.num_pending, seconds)

    def took(self, width: int, num_masks: int, seconds: float) -> None:
        """Update the corrections from the time of a step of one row.

        width: tokens fed. num_masks: how many of them are masks in groups.
        """
        current = self._now()
        if current.seconds and width <= MAX_FED:
            added = current._measured(1).of(width, num_masks) - 1.0
            current._tracking.note(added, seconds / current.seconds)

    def _now(self) -> ForwardCosts:
        """Return the costs for the current number of threads."""
        return self.fewer.get(self.in_force(), self) if self.in_force is not None else self

    def _measured(self, num_rows: int) -> Curve:
        if num_rows not in self._curves:
            enough = [rows for rows in self.rho if rows >= num_rows]
            nearest = min(enough) if enough else max(self.rho)
            known = self.rho[nearest]
            # The cost depends on the number of tokens, so more rows count as fewer, longer rows.
            times = max(1.0, num_rows / nearest)
            unit = _between(known, times)
            plain = [_between(known, times * length) / unit for length in range(1, MAX_FED + 1)]
            self._curves[num_rows] = Curve(plain, self.masks.get(nearest, 0.0) / unit)
        return self._curves[num_rows]


def _between(known: Sequence[float], length: float) -> float:
    """Return the cost of ``length``: linear between measured lengths, proportional beyond them."""
    if length >= len(known):
        return known[-1] * length / len(known)
    below = int(length)
    return known[below - 1] + (length - below) * (known[below] - known[below - 1])
