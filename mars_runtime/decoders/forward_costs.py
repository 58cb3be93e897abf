"""What forwards of one device cost, measured (``engine/costs.py``): times by tokens per row."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from mars_runtime.settings import MAX_FED

MAX_LESSONS = 32
# Forwards of more than one token by which costs are set right, at most and at least; those of one
# that each is held against, at most and at least; how many others may lie between the two.
LATEST, ENOUGH = 48, 12
BESIDE, FEW = 8, 3
APART = 6


class Curve(NamedTuple):
    """What forwards of one number of rows cost, in forwards of one token per row.

    plain: of 1, 2, 3 ... tokens per row. masks: what it adds that there are masks among them, for
    an adapter that they go through. drift: times as much as runs of late found forwards of more
    than one token to cost.
    """

    plain: Sequence[float]
    masks: float = 0.0
    drift: float = 1.0

    @property
    def paid(self) -> Curve:
        """What forwards turned out to cost, where that is more than was measured."""
        if self.drift <= 1.0:
            return self
        one, *more = self.plain
        return Curve([one, *(self.drift * cost for cost in more)], self.drift * self.masks)

    def of(self, width: int, num_masks: int) -> float:
        """The cost of ``width`` tokens per row, ``num_masks`` of them in a group."""
        return self.plain[width - 1] + (self.masks if num_masks else 0.0)

    def at(self, share: float) -> Curve:
        """As if only a share of what more than one token costs had to be paid."""
        return Curve([1.0 + share * (cost - 1.0) for cost in self.plain], share * self.masks)


class Drift:
    """What forwards of more than one token took beside what had been measured of them, in the
    measure of those of one token around them, as a race has them: both are slow on a busy machine;
    what the former are slower still is an error of the measurement, or beyond what it knew."""

    def __init__(self) -> None:
        self._ones: deque[float] = deque(maxlen=BESIDE)
        self._found: deque[float] = deque(maxlen=LATEST)
        self._num_apart = 0
        self.value = 1.0

    def note(self, is_one: bool, ratio: float) -> None:
        """One more forward."""
        if is_one:
            self._ones.append(ratio)
            self._num_apart = 0
            return
        self._num_apart += 1
        if self._num_apart > APART:
            self._ones.clear()
        if len(self._ones) < FEW:
            return
        self._found.append(ratio / median(self._ones))
        if len(self._found) >= ENOUGH:
            self.value = median(self._found)


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
    _drift: Drift = field(default_factory=Drift, compare=False, repr=False)
    _curves: dict[int, Curve] = field(default_factory=dict, compare=False, repr=False)

    def learn(self, basis: Hashable, lesson: Any) -> None:
        """Keep a lesson; of more than MAX_LESSONS the oldest is forgotten, for what they are kept
        under is asked by whoever sends requests."""
        self.lessons.pop(basis, None)
        self.lessons[basis] = lesson
        if len(self.lessons) > MAX_LESSONS:
            del self.lessons[next(iter(self.lessons))]

    def curve(self, num_rows: int) -> Curve:
        """Up to MAX_FED tokens, for the next larger batch that was measured or else the largest,
        with the threads now in force; what was not measured costs in proportion."""
        now = self._now()
        if num_rows not in now._curves:
            now._curves[num_rows] = now._curve(num_rows)
        return now._curves[num_rows]._replace(drift=self._drift.value)

    def took(self, width: int, num_masks: int, seconds: float) -> None:
        """A forward of one row took so long; ``width`` tokens were fed, ``num_masks`` of them masks
        in a group."""
        one = self._now().seconds
        if one and width <= MAX_FED:
            cost = self.curve(1).of(width, num_masks)
            self._drift.note(width == 1, seconds / (one * cost))

    def _now(self) -> ForwardCosts:
        """Those of the threads in force."""
        return self.fewer.get(self.in_force(), self) if self.in_force is not None else self

    def _curve(self, num_rows: int) -> Curve:
        enough = [rows for rows in self.rho if rows >= num_rows]
        nearest = min(enough) if enough else max(self.rho)
        known = self.rho[nearest]
        longer = range(len(known) + 1, MAX_FED + 1)
        plain = [*known, *(known[-1] * length / len(known) for length in longer)]
        return Curve(plain, self.masks.get(nearest, 0.0))
