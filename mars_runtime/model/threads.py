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
SLOW = 1.5  # times the mean: so many forwards in a row, and fewer threads are tried at once
SLOW_IN_A_ROW = 3
GAIN = 0.97  # another number of threads must take less than this part of the time
TRIALS = 4  # forwards by which another number is judged, unless one of them is slower
SHARE = 0.02  # of the time, about, is what looking at other numbers may cost
WAITS = (0.06, 1.0)  # seconds of forwards between two looks, least and most
RETREAT = 2.0  # seconds of forwards: more threads that were given up sooner must prove themselves
PROOFS = 8  # in twice as many trials the next time, up to so many in a row
FIXED = 6.0  # a forward costs about as much as so many further positions before it has one

HIDDEN = "hidden"
"""The part of a forward that takes most of its time: all layers."""


class Threads:
    """The choice for one model: any number up to ``most``, or exactly ``fixed``.

    Each part and width of forwards chooses for itself, but what the machine does is common to all:
    where one finds company or none, the others look at once. Company that comes and goes many times
    per second leaves gaps in which more threads look better than they are, so more are taken only
    after as many good trials as that has needed lately.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.fixed: int | None = None
        self.in_force = 0
        """What the latest forward got, or would have got if nothing had been tried."""
        self._clock = clock
        self._choices: dict[tuple[str, int, int], Choice] = {}
        self._looked: Choice | None = None  # which one looked at other numbers last
        self._wait = 0.0  # seconds of forwards until the next does
        self._num_slow = 0  # forwards in a row, of whatever part and width
        self._has_risen = True  # to more threads, and none were given up since
        self._since_rise = self._since_proof = 0.0  # seconds of forwards
        self._num_proofs, self._num_needed = 0, 1

    def run(self, part: str, width: int, most: int, call: Callable[[int], Result]) -> Result:
        """``call`` with a number of threads, and learn from how long it takes.

        part: of a forward, HIDDEN for instance; width: its positions; most: threads, at most.
        """
        if self.fixed is not None or most == 1:
            return call(min(self.fixed or 1, most))
        choice = self._choice(part, width, most)
        count = choice.next(is_due=self._is_due(choice))
        if part == HIDDEN:
            self.in_force = choice.number
        began = self._clock()
        result = call(count)
        self._learn(choice, count, self._clock() - began, FIXED + width)
        return result

    def _choice(self, part: str, width: int, most: int) -> Choice:
        key = part, width.bit_length() if width > 1 else 0, most
        if key not in self._choices:
            self._choices[key] = Choice(ladder(most))
        return self._choices[key]

    def _is_due(self, choice: Choice) -> bool:
        """Whether it is this choice's turn to look at other numbers."""
        if self._wait > 0.0 or (choice is self._looked and len(self._choices) > 1):
            return False
        self._wait, self._looked = WAITS[0], choice
        return True

    def _learn(self, choice: Choice, count: int, seconds: float, units: float) -> None:
        self._wait -= seconds
        self._since_rise += seconds
        self._since_proof += seconds
        self._num_slow = self._num_slow + 1 if choice.is_slow(count, seconds, units) else 0
        if self._num_slow == SLOW_IN_A_ROW:
            self._all_look(-1)
        trial = choice.learn(count, seconds, units)
        if trial is None:
            return
        self._wait = min(WAITS[1], max(WAITS[0], trial.seconds_lost / SHARE))
        if trial.step > 0 and not self._may_rise(is_better=trial.is_better):
            return
        if trial.is_better:
            if trial.step < 0:
                self._note_retreat()
            choice.move(trial.step)
            self._all_look(trial.step)

    def _may_rise(self, *, is_better: bool) -> bool:
        """After a trial of more threads."""
        if not is_better:
            self._num_proofs = 0
            return False
        if self._has_risen:
            return True
        if self._since_proof >= WAITS[0]:
            self._num_proofs, self._since_proof = self._num_proofs + 1, 0.0
        if self._num_proofs < self._num_needed:
            return False
        self._has_risen, self._since_rise = True, 0.0
        return True

    def _note_retreat(self) -> None:
        if self._has_risen:
            is_early = self._since_rise < RETREAT
            self._num_needed = min(PROOFS, 2 * self._num_needed) if is_early else 1
        self._has_risen, self._num_proofs, self._since_proof = False, 0, 0.0

    def _all_look(self, step: int) -> None:
        for choice in self._choices.values():
            choice.look(step)


def ladder(most: int) -> tuple[int, ...]:
    """Numbers of threads worth trying: powers of two, and the most."""
    return (*(1 << power for power in range((most - 1).bit_length())), most)


class Trial(NamedTuple):
    """A finished one: of the next larger (step 1) or smaller number (-1), and what it cost beyond
    forwards with the number that is chosen."""

    step: int
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
        self._step = 0  # what is being tried: 1, -1, or 0 for nothing
        self._tried: list[float] = []
        self._wanted = 0  # what is to be tried next
        self._last_step = 1

    @property
    def number(self) -> int:
        """What is chosen, trials apart."""
        return self._numbers[self._at]

    def look(self, step: int) -> None:
        """The machine seems to have changed: measure anew, and then what lies in that direction."""
        self._num_seen, self._wanted = 0, step

    def move(self, step: int) -> None:
        """Choose the next larger or smaller number."""
        self._at += step
        self._num_seen = TRIALS

    def next(self, *, is_due: bool) -> int:
        """The number for the next forward. is_due: whether to look at other numbers in any case."""
        if not self._step and self._num_seen:
            self._step, self._wanted = self._worth_trying(is_due), 0
        return self._numbers[self._at + self._step]

    def is_slow(self, count: int, seconds: float, units: float) -> bool:
        """Whether a forward took much longer than those before it that got the chosen number."""
        mean = self._means.get(self._at)
        return count == self.number and mean is not None and seconds > SLOW * mean * units

    def learn(self, count: int, seconds: float, units: float) -> Trial | None:
        """From a forward with ``count`` threads, with which a trial may have ended."""
        cost = seconds / units
        if self._step and count != self.number:
            return self._try(cost, units)
        self._num_seen += 1
        mean = self._means.get(self._at, cost)
        part = max(NEW, 1.0 / self._num_seen)
        most = OUTLIER * mean if part < 1.0 else cost
        self._means[self._at] = mean + part * (min(cost, most) - mean)
        return None

    def _worth_trying(self, is_due: bool) -> int:
        """A step to what was never tried, to fewer threads that were better when they were, to what
        is wanted or, when it is time, to what was not tried last."""
        steps = [step for step in (-1, 1) if 0 <= self._at + step < len(self._numbers)]
        unknown = [step for step in steps if self._at + step not in self._means]
        if unknown:
            return unknown[0]
        if -1 in steps and self._means[self._at - 1] < GAIN * self._means[self._at]:
            return -1
        if self._wanted in steps:
            return self._wanted
        if not is_due:
            return 0
        return next((step for step in steps if step != self._last_step), steps[0])

    def _try(self, cost: float, units: float) -> Trial | None:
        self._tried.append(cost)
        now = self._means[self._at]
        if cost < now and len(self._tried) < TRIALS:
            return None
        step, tried = self._step, self._tried
        self._step, self._last_step, self._tried = 0, step, []
        found = self._means[self._at + step] = fmean(tried)
        return Trial(step, found < GAIN * now, (found - now) * len(tried) * units)


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
