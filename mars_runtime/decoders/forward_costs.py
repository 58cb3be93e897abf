"""What forwards of one device cost, by tokens per row: measured at first (``engine/costs.py``), and
set right by what those of runs turn out to take."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from mars_runtime.events import Step
from mars_runtime.settings import MAX_FED

REFERENCE = Path(__file__).with_name("reference_costs.json")
MAX_LESSONS = 32
# Variances of the log of a step's time: how far a single one strays; how far each of the numbers
# that are tracked moves until the next one, and what it is taken for at first.
NOISE = 0.06**2
WANDERING = 0.01**2, 0.005**2, 0.03**2
UNKNOWN = 0.1**2, 0.1**2, 0.5**2
UNSURE = 0.1**2  # of the level: from here on it is asked for
JUMP = 4.0  # times as far as expected: the machine has changed, and not a little


class Curve(NamedTuple):
    """What forwards of one number of rows cost, in forwards of one token per row.

    plain: of 1, 2, 3 ... tokens per row. masks: what it adds that there are masks among them, for
    an adapter that they go through. is_sure: whether that is known; if not, a step of one token
    tells.
    """

    plain: Sequence[float]
    masks: float = 0.0
    is_sure: bool = True

    def of(self, width: int, num_masks: int) -> float:
        """The cost of ``width`` tokens per row, ``num_masks`` of them in a group."""
        return self.plain[width - 1] + (self.masks if num_masks else 0.0)

    def at(self, share: float) -> Curve:
        """As if what more than one token costs counted so many times."""
        return Curve([1.0 + share * (cost - 1.0) for cost in self.plain], share * self.masks)


@cache
def reference_curve() -> Curve:
    """Return the committed costs of a forward, which are the same on every machine.

    ``tools/reference_costs.py`` measured them. ``auto`` decides by them where fewest passes are the
    objective, so that a prompt takes the same passes whatever the machine does meanwhile.
    """
    measured = json.loads(REFERENCE.read_text(encoding="utf-8"))
    plain = [_between(measured["plain"], length) for length in range(1, MAX_FED + 1)]
    return Curve(plain, measured["masks"])


class Tracking:
    """Where steps stand beside what was measured at first, for the machine does not stand still:
    neighbours come and go, memory and cores become faster and slower apart from each other.

    Three numbers, of which the logs are tracked: the level (how many times as long a step of one
    token takes), the apartness (how many times as long all others take beside that) and the
    dearness (how many times as much further tokens add). A Kalman filter, extended because what
    tokens add is no log, finds them in the times of steps: those of one token tell of the level
    alone, others of all three, and of each as far as it is uncertain.
    """

    def __init__(self) -> None:
        self._found = [0.0, 0.0, 0.0]
        self._spread = [
            [of if one == other else 0.0 for other in range(3)] for one, of in enumerate(UNKNOWN)
        ]

    @property
    def is_sure(self) -> bool:
        """Where no step has one token, what of their time is the level's becomes a guess."""
        return self._spread[0][0] <= UNSURE

    def now(self, measured: Curve) -> Curve:
        """What was measured, set right."""
        apart = math.exp(self._found[1])
        dear = apart * math.exp(self._found[2])
        one, *more = measured.plain
        plain = [one, *[apart + dear * (cost - 1.0) for cost in more]]
        return Curve(plain, dear * measured.masks, self.is_sure)

    def note(self, added: float, ratio: float) -> None:
        """One more step. added: by the first measurement, to one token, for what it fed; ratio:
        what it took, over one token then."""
        level, apart, dear = self._found
        base = 1.0 + math.exp(dear) * added
        missed = math.log(ratio / base) - level - (apart if added else 0.0)
        slopes = (1.0, 1.0, (base - 1.0) / base) if added else (1.0, 0.0, 0.0)
        for one, more in enumerate(WANDERING):
            self._spread[one][one] += more
        shared, whole = self._spread_of(slopes)
        if missed**2 > JUMP**2 * whole:
            self._spread[0][0] += missed**2
            shared, whole = self._spread_of(slopes)
        self._found = [
            found + share / whole * missed for found, share in zip(self._found, shared, strict=True)
        ]
        for row, share in zip(self._spread, shared, strict=True):
            for other in range(3):
                row[other] -= share * shared[other] / whole

    def _spread_of(self, slopes: Sequence[float]) -> tuple[list[float], float]:
        """What the log of a step's time shares with each number, and its own variance."""
        shared = [sum(map(operator.mul, row, slopes)) for row in self._spread]
        return shared, sum(map(operator.mul, shared, slopes)) + NOISE


@dataclass(frozen=True, slots=True)
class ForwardCosts:
    """What forwards cost on one device.

    depth: the B that the model was trained with, the most that is ever chosen.
    rho: number of rows -> times of forwards of 1, 2, 3 ... tokens per row over that of 1.
    masks: number of rows -> what masks add to a forward, over the same.
    seconds: of a forward of one token for the fewest rows; 0 if not told.
    lessons: what earlier runs on this device taught whoever chooses by these costs.
    fewer: the same with fewer threads, by their number, where ``in_force`` tells how many forwards
    get now.
    """

    depth: int
    rho: Mapping[int, tuple[float, ...]]
    seconds: float = 0.0
    masks: Mapping[int, float] = field(default_factory=dict)
    lessons: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)
    fewer: Mapping[int, ForwardCosts] = field(default_factory=dict, repr=False)
    in_force: Callable[[], int] | None = field(default=None, compare=False, repr=False)
    _tracking: Tracking = field(default_factory=Tracking, compare=False, repr=False)
    _curves: dict[int, Curve] = field(default_factory=dict, compare=False, repr=False)

    def learn(self, basis: Hashable, lesson: Any) -> None:
        """Keep a lesson; of more than MAX_LESSONS the oldest is forgotten, for what they are kept
        under is asked by whoever sends requests."""
        self.lessons.pop(basis, None)
        self.lessons[basis] = lesson
        if len(self.lessons) > MAX_LESSONS:
            del self.lessons[next(iter(self.lessons))]

    def curve(self, num_rows: int) -> Curve:
        """Up to MAX_FED tokens, for the next larger batch that was measured or else by the largest,
        with the threads now in force and as dear as further tokens are now; what was not measured
        costs in proportion."""
        now = self._now()
        return now._tracking.now(now._measured(num_rows))

    def note(self, step: Step, seconds: float) -> None:
        """A step took so long: where it had one row, and no draft model's forwards are in that
        time, it tells what forwards cost."""
        if len(step.rows) == 1 and not step.rows[0].num_draft_forwards:
            (row,) = step.rows
            self.took(row.num_fed, row.num_fed - row.num_pending, seconds)

    def took(self, width: int, num_masks: int, seconds: float) -> None:
        """A step of one row took so long; ``width`` tokens were fed, ``num_masks`` of them masks in
        groups."""
        now = self._now()
        if now.seconds and width <= MAX_FED:
            added = now._measured(1).of(width, num_masks) - 1.0
            now._tracking.note(added, seconds / now.seconds)

    def _now(self) -> ForwardCosts:
        """Those of the threads in force."""
        return self.fewer.get(self.in_force(), self) if self.in_force is not None else self

    def _measured(self, num_rows: int) -> Curve:
        if num_rows not in self._curves:
            enough = [rows for rows in self.rho if rows >= num_rows]
            nearest = min(enough) if enough else max(self.rho)
            known = self.rho[nearest]
            # What a forward costs goes by its tokens, so more rows are as longer ones of fewer.
            times = max(1.0, num_rows / nearest)
            one = _between(known, times)
            plain = [_between(known, times * length) / one for length in range(1, MAX_FED + 1)]
            self._curves[num_rows] = Curve(plain, self.masks.get(nearest, 0.0) / one)
        return self._curves[num_rows]


def _between(known: Sequence[float], length: float) -> float:
    """The cost of a length, measured lengths joined straight, longer ones in proportion."""
    if length >= len(known):
        return known[-1] * length / len(known)
    below = int(length)
    return known[below - 1] + (length - below) * (known[below] - known[below - 1])
