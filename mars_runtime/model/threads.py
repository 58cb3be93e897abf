"""How many threads a forward gets: what makes forwards of its width cheapest now.

Two threads that meet hundreds of times in a forward are faster than one on a quiet machine and
several times slower beside a busy process, which comes and goes. So the number is chosen anew for
every forward, by what the latest ones cost, and the numbers beside it are tried from time to time.
Text never depends on it (tests/test_law_bitwise.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

import torch

Result = TypeVar("Result")

NEW = 0.05  # what one more forward counts for in the mean of those before it
OUTLIER = 2.0  # times the mean: one forward counts for no more, whatever happened to it
SLOW = 1.5  # times the mean: so many forwards in a row, and other numbers are tried at once
SLOW_IN_A_ROW = 3
GAIN = 0.97  # another number of threads must take less than this part of the time
TRIALS = 4  # forwards by which another number is judged, unless one of them is slower
SHARE = 0.02  # of the time, about, is what looking at other numbers may cost
WAITS = (0.1, 1.0)  # seconds of forwards between two looks, least and most
FIXED = 6.0  # a forward costs about as much as so many further positions before it has one


HIDDEN = "hidden"
"""The part of a forward that takes most of its time: all layers."""


class Threads:
    """The choice for one model: any number up to ``most``, or exactly ``fixed``."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.fixed: int | None = None
        self.in_force = 0
        """What the latest forward got, or would have got if nothing had been tried."""
        self._clock = clock
        self._choices: dict[tuple[str, int, int], Choice] = {}
        self._wait = 0.0  # seconds of forwards until some choice looks at other numbers
        self._looked: Choice | None = None  # which one did so last
        self._num_changes = 0  # of the machine, as far as was noticed: then all look
        self._num_slow = 0  # forwards in a row, of whatever part and width

    def run(self, part: str, width: int, most: int, call: Callable[[int], Result]) -> Result:
        """``call`` with a number of threads, and learn from how long it takes.

        part: of a forward, HIDDEN for instance; width: its positions; most: threads, at most.
        """
        if self.fixed is not None or most == 1:
            return call(min(self.fixed or 1, most))
        choice = self._choice(part, width, most)
        count = choice.next(self._num_changes, is_due=self._is_due(choice))
        if part == HIDDEN:
            self.in_force = choice.number
        began = self._clock()
        result = call(count)
        self._learn(choice, count, self._clock() - began, FIXED + width)
        return result

    def _is_due(self, choice: Choice) -> bool:
        """Whether it is this choice's turn to look at other numbers."""
        if self._wait > 0.0 or (choice is self._looked and len(self._choices) > 1):
            return False
        self._wait, self._looked = WAITS[0], choice
        return True

    def _learn(self, choice: Choice, count: int, seconds: float, units: float) -> None:
        self._wait -= seconds
        self._num_slow = self._num_slow + 1 if choice.is_slow(count, seconds, units) else 0
        ended = choice.learn(count, seconds, units)
        if ended is not None:
            self._wait = min(WAITS[1], max(WAITS[0], ended.seconds_lost / SHARE))
        if self._num_slow == SLOW_IN_A_ROW or (ended is not None and ended.is_better):
            self._num_changes += 1

    def _choice(self, part: str, width: int, most: int) -> Choice:
        key = part, width.bit_length() if width > 1 else 0, most
        if key not in self._choices:
            self._choices[key] = Choice(ladder(most))
        return self._choices[key]


def ladder(most: int) -> tuple[int, ...]:
    """Numbers of threads worth trying: powers of two, and the most."""
    return (*(1 << power for power in range((most - 1).bit_length())), most)


class Ended(NamedTuple):
    """What came of trying another number: whether it is chosen now, and what the trial cost."""

    is_better: bool
    seconds_lost: float


class Choice:
    """Of one part of forwards of about one width: a number of threads, and what forwards take with
    it and with the numbers beside it, in seconds for each unit of work."""

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self._numbers = numbers
        self._at = len(numbers) - 1
        self._means: dict[int, float] = {}
        self._num_seen = 0  # forwards in the mean of the number that is chosen
        self._trial: int | None = None  # the place that is being tried
        self._tried: list[float] = []
        self._last_trial = self._at
        self._num_changes = 0  # that it knows of; the mean begins anew after each
        self._looks = False  # whether to try another number next

    @property
    def number(self) -> int:
        """What is chosen, trials apart."""
        return self._numbers[self._at]

    def next(self, num_changes: int, *, is_due: bool) -> int:
        """The number for the next forward. num_changes: of the machine, so far. is_due: whether to
        look at other numbers in any case."""
        if num_changes != self._num_changes:
            self._num_changes, self._num_seen = num_changes, 0
            self._looks = True
        if self._trial is None and self._num_seen:
            self._looks = self._looks or is_due
            self._trial, self._looks = self._worth_trying(self._looks), False
        return self.number if self._trial is None else self._numbers[self._trial]

    def is_slow(self, count: int, seconds: float, units: float) -> bool:
        """Whether a forward took much longer than those before it that got the chosen number."""
        mean = self._means.get(self._at)
        return count == self.number and mean is not None and seconds > SLOW * mean * units

    def learn(self, count: int, seconds: float, units: float) -> Ended | None:
        """From a forward with ``count`` threads, with which a trial may have ended."""
        cost = seconds / units
        if self._trial is not None and count == self._numbers[self._trial]:
            return self._try(self._trial, cost, units)
        self._num_seen += 1
        mean = self._means.get(self._at, cost)
        part = max(NEW, 1.0 / self._num_seen)
        most = OUTLIER * mean if part < 1.0 else cost
        self._means[self._at] = mean + part * (min(cost, most) - mean)
        return None

    def _worth_trying(self, is_due: bool) -> int | None:
        """What was never tried, what was better when it was, or what was not tried last."""
        beside = [at for at in (self._at - 1, self._at + 1) if 0 <= at < len(self._numbers)]
        best = min(beside, key=lambda at: self._means.get(at, 0.0))
        if self._means.get(best, 0.0) < GAIN * self._means[self._at]:
            return best
        if not is_due:
            return None
        return next((at for at in beside if at != self._last_trial), beside[0])

    def _try(self, at: int, cost: float, units: float) -> Ended | None:
        self._tried.append(cost)
        now = self._means[self._at]
        if cost < now and len(self._tried) < TRIALS:
            return None
        found = self._means[at] = fmean(self._tried)
        num_tried = len(self._tried)
        self._trial, self._last_trial, self._tried = None, at, []
        is_better = found < GAIN * now
        if is_better:
            self._at, self._num_seen = at, num_tried
        return Ended(is_better, (found - now) * num_tried * units)


GRID = (
    *((1, width) for width in (1, 2, 3, 5, 6, 7, 8, 11, 16, 17, 23, 33, 64, 100, 200)),
    *((rows, width) for rows in (2, 4, 8) for width in (3, 8)),
)
"""Rows and tokens of each by which it is seen whether PyTorch's rounding depends on threads."""
STARTS = (1, 16, 64)
CHECK_SECONDS = 2.0


class TorchThreads:
    """The same for a model that PyTorch computes. There the number of threads can change the last
    bits of a product of few rows, so narrow forwards always get ``base`` threads; those of at least
    ``shared_from`` positions, where no bit changed, get up to ``most``. None: no forward does."""

    def __init__(self, base: int, most: int, shared_from: int | None) -> None:
        self._base, self._most, self._shared_from = base, most, shared_from
        self._threads = Threads()

    def run(self, part: str, width: int, call: Callable[[], Result]) -> Result:
        """``call`` with a number of threads; as ``Threads.run``."""

        def with_threads(count: int) -> Result:
            if torch.get_num_threads() != count:
                torch.set_num_threads(count)
            return call()

        if self._shared_from is None or width < self._shared_from:
            return with_threads(self._base)
        return self._threads.run(part, width, self._most, with_threads)


@torch.inference_mode()
def shared_from(model: Any, most: int) -> int | None:
    """From how many positions on a model's hidden states and logits are the same, to the last bit,
    with one thread and with ``most``, by forwards of random tokens; None if it can't be told in
    CHECK_SECONDS. Changes PyTorch's number of threads."""
    cache = model.new_cache(max(rows for rows, _ in GRID), max(width for _, width in GRID))
    generator = torch.Generator().manual_seed(0)
    until = time.perf_counter() + CHECK_SECONDS
    last = 0  # the most positions with which a bit changed
    for rows, width in GRID:
        shape = rows, width
        tokens = torch.randint(0, model.config.vocab_size, shape, generator=generator)
        found = []
        for count in (1, most):
            torch.set_num_threads(count)
            hidden = model.hidden(tokens, cache)
            found.append((hidden, model.logits(hidden, slice(0, width))))
        if not all(map(torch.equal, *found)):
            last = max(last, rows * width)
        if time.perf_counter() > until:
            return None
    return next((start for start in STARTS if start > last), None)
