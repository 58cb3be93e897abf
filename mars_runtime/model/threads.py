"""Choose the number of threads of each forward pass from the times of recent forward passes.

The threads of a forward pass synchronise hundreds of times. On an idle machine two threads are
faster than one; next to a busy process they are several times slower. So the number is chosen again
for every forward pass, and the next larger and smaller numbers are tried from time to time. The
generated text never depends on the number of threads (tests/test_law_bitwise.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

import torch

from mars_runtime.system.machine import num_cores

Result = TypeVar("Result")

NEW = 0.05  # minimum weight of a new measurement in the running mean
OUTLIER = 2.0  # measurements are capped at this multiple of the mean
# After SLOW_IN_A_ROW forward passes that take over SLOW times the mean, fewer threads are tried.
SLOW = 1.5
SLOW_IN_A_ROW = 3
GAIN = 0.97  # a trial succeeds if its mean time is below this share of the current mean
TRIALS = 4  # maximum number of passes in a trial; the first one slower than the mean ends it
SHARE = 0.02  # approximate share of the time that trials may cost
WAITS = (0.06, 1.0)  # minimum and maximum time between two trials, in seconds of forward passes
# If an increase is undone within RETREAT seconds, the next one needs twice as many trials.
RETREAT = 2.0
PROOFS = 8  # maximum number of successful trials in a row that an increase can need
FIXED = 6.0  # fixed cost of a forward pass, expressed as a number of positions

HIDDEN = "hidden"
"""Name of the part of a forward pass that takes most of its time: all layers."""


class Threads:
    """Chooses the number of threads for the forward passes of one model.

    fixed: if set, the number of threads to use; nothing is tried.

    The choice is separate for each part of a forward pass and each range of widths. The load of the
    machine affects all choices, so if a trial of one choice succeeds, the others run a trial soon.
    If the load changes many times per second, a trial can fall into a short idle gap and make more
    threads look better than they are. So if recent increases had to be undone, the number is
    increased only after several successful trials in a row.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.fixed: int | None = None
        self.in_force = 0
        """Number of threads chosen for the latest forward pass; trials do not change it."""
        self._clock = clock
        self._choices: dict[tuple[str, int, int], ThreadChoice] = {}
        self._latest_trial: ThreadChoice | None = None  # the choice that ran the latest trial
        self._wait = 0.0  # seconds of forward passes until the next trial
        self._num_slow = 0  # slow forward passes in a row, of any part and width
        self._has_risen = True  # whether the latest change of the number was an increase
        # Seconds of forward passes since an increase, and since a decrease or a counted success.
        self._since_rise = self._since_proof = 0.0
        self._num_proofs, self._num_needed = 0, 1

    def run(self, part: str, width: int, most: int, call: Callable[[int], Result]) -> Result:
        """Return ``call(number of threads)``, and use the time of the call for later choices.

        part: name of the part of the forward pass that ``call`` runs, such as HIDDEN. width: number
        of positions. most: maximum number of threads.
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
        """Return whether ``choice`` may start a trial now.

        After a trial, a choice must wait until another choice has run a trial.
        """
        if self._wait > 0.0 or (choice is self._latest_trial and len(self._choices) > 1):
            return False
        self._wait, self._latest_trial = WAITS[0], choice
        return True

    def _learn(self, choice: ThreadChoice, count: int, seconds: float, units: float) -> None:
        self._wait -= seconds
        self._since_rise += seconds
        self._since_proof += seconds
        self._num_slow = self._num_slow + 1 if choice.is_slow(count, seconds, units) else 0
        if self._num_slow == SLOW_IN_A_ROW:
            self._request_trials(-1)
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
            self._request_trials(trial.step)

    def _may_rise(self, *, is_better: bool) -> bool:
        """Return whether the number may be increased after a trial of more threads.

        One successful trial is enough if the latest change was an increase. After a decrease,
        ``_num_needed`` successful trials in a row are needed.
        """
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

    def _request_trials(self, step: int) -> None:
        for choice in self._choices.values():
            choice.request_trial(step)


def ladder(most: int) -> tuple[int, ...]:
    """Return the numbers of threads to choose from: powers of two up to ``most``, and ``most``."""
    return (*(1 << power for power in range((most - 1).bit_length())), most)


class Trial(NamedTuple):
    """The result of a trial of the next larger (step 1) or smaller (step -1) number of threads.

    seconds_lost: how much longer the trial took than with the chosen number of threads.
    """

    step: int
    is_better: bool
    seconds_lost: float


class ThreadChoice:
    """Chooses the number of threads for one part of forward passes of similar width.

    Stores the mean time per position for the chosen number of threads and the numbers tried.
    """

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self._numbers = numbers
        self._at = len(numbers) - 1
        self._means: dict[int, float] = {}
        self._num_measured = 0  # number of forward passes in the mean of the chosen number
        self._step = 0  # step of the current trial: 1, -1, or 0 for none
        self._tried: list[float] = []
        self._wanted = 0  # requested step of the next trial, or 0 for none
        self._last_step = 1

    @property
    def number(self) -> int:
        """The chosen number of threads; trials do not change it."""
        return self._numbers[self._at]

    def request_trial(self, step: int) -> None:
        """Request a trial of more (1) or fewer (-1) threads, because the load has changed.

        The mean time is measured again.
        """
        self._num_measured, self._wanted = 0, step

    def move(self, step: int) -> None:
        """Choose the next larger (1) or smaller (-1) number of threads."""
        self._at += step
        self._num_measured = TRIALS

    def next(self, *, is_due: bool) -> int:
        """Return the number of threads for the next forward pass.

        is_due: whether a periodic trial may start.
        """
        if not self._step and self._num_measured:
            self._step, self._wanted = self._worth_trying(is_due), 0
        return self._numbers[self._at + self._step]

    def is_slow(self, count: int, seconds: float, units: float) -> bool:
        """Return whether a forward pass was much slower than the mean of earlier ones.

        Always False if ``count`` is not the chosen number of threads.
        """
        mean = self._means.get(self._at)
        return count == self.number and mean is not None and seconds > SLOW * mean * units

    def learn(self, count: int, seconds: float, units: float) -> Trial | None:
        """Record the time of a forward pass with ``count`` threads; return the trial it ended.

        units: the work of the forward pass, in positions. Returns None if no trial ended.
        """
        cost = seconds / units
        if self._step and count != self.number:
            return self._try(cost, units)
        self._num_measured += 1
        mean = self._means.get(self._at, cost)
        part = max(NEW, 1.0 / self._num_measured)
        most = OUTLIER * mean if part < 1.0 else cost
        self._means[self._at] = mean + part * (min(cost, most) - mean)
        return None

    def _worth_trying(self, is_due: bool) -> int:
        """Return the step of the next trial: 1, -1, or 0 for no trial.

        In order of preference: a number that was never tried; fewer threads, if they were better
        when last tried; the requested step; if a trial is due, the step that was not tried last.
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
"""Shapes of forward passes, (rows, tokens per row), for which ``shared_from`` compares results."""
STARTS = (1, 16, 64)
CHECK_SECONDS = 2.0


def limit_threads() -> None:
    """Lower PyTorch's number of threads to the number of cores that this process may use."""
    if torch.get_num_threads() > num_cores():
        torch.set_num_threads(num_cores())


class TorchThreads:
    """Chooses the number of threads for a model that runs in PyTorch.

    In PyTorch the number of threads can change the last bits of a product with few rows. So forward
    passes of fewer than ``shared_from`` positions always use ``base`` threads. The results of wider
    forward passes do not change, so these use up to ``most`` threads. If ``shared_from`` is None,
    all forward passes use ``base`` threads.
    """

    def __init__(self, base: int, most: int, shared_from: int | None) -> None:
        self._base, self._most, self._shared_from = base, most, shared_from
        self._threads = Threads()

    def run(self, part: str, width: int, call: Callable[[], Result]) -> Result:
        """Return the result of ``call``, run with the chosen number of PyTorch threads."""

        def with_threads(count: int) -> Result:
            if torch.get_num_threads() != count:
                torch.set_num_threads(count)
            return call()

        if self._shared_from is None or width < self._shared_from:
            return with_threads(self._base)
        return self._threads.run(part, width, self._most, with_threads)


@torch.inference_mode()
def shared_from(model: Any, most: int) -> int | None:
    """Return the width from which 1 thread and ``most`` threads compute bitwise equal results.

    The function compares hidden states and logits of forward passes of random tokens. It returns
    None if no width in STARTS qualifies or the check takes longer than CHECK_SECONDS. It leaves
    PyTorch's number of threads changed.
    """
    cache = model.new_cache(max(rows for rows, _ in GRID), max(width for _, width in GRID))
    generator = torch.Generator().manual_seed(0)
    until = time.perf_counter() + CHECK_SECONDS
    last = 0  # the largest number of positions at which results differed
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
