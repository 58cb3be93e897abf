"""Choose the number of threads of each forward by the times of recent forwards.

Two threads that synchronise hundreds of times per forward are faster than one on an idle machine,
and several times slower next to a busy process. So the number is chosen for every forward from the
cost of recent ones, and its neighbours are tried from time to time. The text never depends on it
(tests/test_law_bitwise.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

import torch

Result = TypeVar("Result")

NEW = 0.05  # minimum weight of a new forward in the running mean
OUTLIER = 2.0  # times the mean: upper bound of what one forward contributes
SLOW = 1.5  # times the mean: after SLOW_IN_A_ROW such forwards, fewer threads are tried immediately
SLOW_IN_A_ROW = 3
GAIN = 0.97  # another number of threads must take less than this share of the time
TRIALS = 4  # forwards per trial of another number, unless one of them is slower
SHARE = 0.02  # approximate share of the time spent on trials
WAITS = (0.06, 1.0)  # seconds of forwards between two trials: minimum, maximum
# Seconds of forwards: if more threads are given up sooner, they need more proof next time.
RETREAT = 2.0
PROOFS = 8  # maximum number of successful trials in a row that are needed; it doubles each time
FIXED = 6.0  # fixed cost of a forward, in positions

HIDDEN = "hidden"
"""The part of a forward that takes most of its time: all layers."""


class Threads:
    """Chooses the number of threads for one model: up to ``most``, or exactly ``fixed``.

    Each part and width of forwards has its own choice, but the load of the machine affects all: if
    one of them finds a change, the others run a trial soon. Load that comes and goes many times per
    second leaves gaps in which more threads look better than they are, so more threads are chosen
    only after as many successful trials as that needed recently.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.fixed: int | None = None
        self.in_force = 0
        """Number of threads of the latest forward, trials not counted."""
        self._clock = clock
        self._choices: dict[tuple[str, int, int], ThreadChoice] = {}
        self._looked: ThreadChoice | None = None  # the choice that ran the latest trial
        self._wait = 0.0  # seconds of forwards until the next trial
        self._num_slow = 0  # slow forwards in a row, of any part and width
        self._has_risen = True  # whether the number was last increased, not reduced
        self._since_rise = self._since_proof = 0.0  # seconds of forwards
        self._num_proofs, self._num_needed = 0, 1

    def run(self, part: str, width: int, most: int, call: Callable[[int], Result]) -> Result:
        """Run ``call`` with a number of threads, and learn from its time.

        part: of a forward, such as HIDDEN. width: number of positions. most: maximum number of
        threads.
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

    def _choice(self, part: str, width: int, most: int) -> ThreadChoice:
        key = part, width.bit_length() if width > 1 else 0, most
        if key not in self._choices:
            self._choices[key] = ThreadChoice(ladder(most))
        return self._choices[key]

    def _is_due(self, choice: ThreadChoice) -> bool:
        """Return whether it is this choice's turn to run a trial."""
        if self._wait > 0.0 or (choice is self._looked and len(self._choices) > 1):
            return False
        self._wait, self._looked = WAITS[0], choice
        return True

    def _learn(self, choice: ThreadChoice, count: int, seconds: float, units: float) -> None:
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
        """Return whether a trial of more threads allows an increase."""
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
    """Return the numbers of threads to consider: powers of two, and ``most``."""
    return (*(1 << power for power in range((most - 1).bit_length())), most)


class Trial(NamedTuple):
    """A finished trial of the next larger (step 1) or next smaller (step -1) number of threads.

    seconds_lost: time beyond that of forwards with the chosen number.
    """

    step: int
    is_better: bool
    seconds_lost: float


class ThreadChoice:
    """The number of threads for one part of forwards of about one width.

    Holds the mean time per unit of work with the chosen number and with its neighbours.
    """

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self._numbers = numbers
        self._at = len(numbers) - 1
        self._means: dict[int, float] = {}
        self._num_seen = 0  # number of forwards in the mean of the chosen number
        self._step = 0  # step of the current trial: 1, -1, or 0 for none
        self._tried: list[float] = []
        self._wanted = 0  # step of the next trial
        self._last_step = 1

    @property
    def number(self) -> int:
        """The chosen number, trials not counted."""
        return self._numbers[self._at]

    def look(self, step: int) -> None:
        """Restart the mean because the machine seems to have changed, and request a trial of
        ``step``."""
        self._num_seen, self._wanted = 0, step

    def move(self, step: int) -> None:
        """Choose the next larger or smaller number."""
        self._at += step
        self._num_seen = TRIALS

    def next(self, *, is_due: bool) -> int:
        """Return the number for the next forward. is_due: whether a trial may start in any case."""
        if not self._step and self._num_seen:
            self._step, self._wanted = self._worth_trying(is_due), 0
        return self._numbers[self._at + self._step]

    def is_slow(self, count: int, seconds: float, units: float) -> bool:
        """Return whether a forward took much longer than earlier ones with the chosen number."""
        mean = self._means.get(self._at)
        return count == self.number and mean is not None and seconds > SLOW * mean * units

    def learn(self, count: int, seconds: float, units: float) -> Trial | None:
        """Learn from a forward with ``count`` threads; return the trial if it ended one."""
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
        """Return the step to try, or 0.

        Prefers a number that was never tried, then fewer threads that were better when last tried,
        then the requested step and, if a trial is due, the step that was not tried last.
        """
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
        current_mean = self._means[self._at]
        if cost < current_mean and len(self._tried) < TRIALS:
            return None
        step, tried = self._step, self._tried
        self._step, self._last_step, self._tried = 0, step, []
        tried_mean = self._means[self._at + step] = fmean(tried)
        return Trial(
            step, tried_mean < GAIN * current_mean, (tried_mean - current_mean) * len(tried) * units
        )


GRID = (
    *((1, width) for width in (1, 2, 3, 5, 6, 7, 8, 11, 16, 17, 23, 33, 64, 100, 200)),
    *((rows, width) for rows in (2, 4, 8) for width in (3, 8)),
)
"""(rows, tokens per row) at which PyTorch's results are compared between numbers of threads."""
STARTS = (1, 16, 64)
CHECK_SECONDS = 2.0


class TorchThreads:
    """Chooses the number of threads for a model that PyTorch computes.

    There the number of threads can change the last bits of a product of few rows. So narrow
    forwards always get ``base`` threads, and those of at least ``shared_from`` positions, where no
    bit changed, get up to ``most``. None: every forward gets ``base``.
    """

    def __init__(self, base: int, most: int, shared_from: int | None) -> None:
        self._base, self._most, self._shared_from = base, most, shared_from
        self._threads = Threads()

    def run(self, part: str, width: int, call: Callable[[], Result]) -> Result:
        """Run ``call`` with a number of threads; as ``Threads.run``."""

        def with_threads(count: int) -> Result:
            if torch.get_num_threads() != count:
                torch.set_num_threads(count)
            return call()

        if self._shared_from is None or width < self._shared_from:
            return with_threads(self._base)
        return self._threads.run(part, width, self._most, with_threads)


@torch.inference_mode()
def shared_from(model: Any, most: int) -> int | None:
    """Return from how many positions on one and ``most`` threads give bitwise equal results.

    Compares hidden states and logits of forwards of random tokens. Returns None if there is no such
    number or the check takes longer than CHECK_SECONDS. Changes PyTorch's number of threads.
    """
    cache = model.new_cache(max(rows for rows, _ in GRID), max(width for _, width in GRID))
    generator = torch.Generator().manual_seed(0)
    until = time.perf_counter() + CHECK_SECONDS
    last = 0  # the largest number of positions at which a bit changed
    for rows, width in GRID:
        shape = rows, width
        tokens = torch.randint(0, model.config.vocab_size, shape, generator=generator)
        results = []
        for count in (1, most):
            torch.set_num_threads(count)
            hidden = model.hidden(tokens, cache)
            results.append((hidden, model.logits(hidden, slice(0, width))))
        if not all(map(torch.equal, *results)):
            last = max(last, rows * width)
        if time.perf_counter() > until:
            return None
    return next((start for start in STARTS if start > last), None)
