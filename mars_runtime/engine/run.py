"""Handle of a running request. Any thread may use it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from mars_runtime.engine.request import AnyRequest
from mars_runtime.engine.scheduler import Lane, Scheduler
from mars_runtime.runs.events import End, Event
from mars_runtime.settings import DecodeSettings, SettingsError

MAX_PACE = 10_000.0


class WakeCondition(threading.Condition):
    """Lock that guards the state shared by the worker and the runs.

    has_news: whether another thread changed something since the worker last checked.
    """

    has_news = False

    def wake(self) -> None:
        """Call with the lock held."""
        self.has_news = True
        self.notify_all()


class Run(Lane):
    """Iterating yields every event as it is added; the last is the End. Polling ``events_since`` a
    few times a second does not slow down the worker, iterating does.

    num_sharing: number of other runs that shared its latest forward pass.
    is_cut: set by its reader when a stop string or stop token ended the answer.
    """

    def __init__(
        self,
        request: AnyRequest,
        submitted: float,
        condition: WakeCondition,
        scheduler: Scheduler[Run],
        observers: Sequence[Observer] = (),
    ) -> None:
        super().__init__(deadline=submitted + request.deadline)
        self.request = request
        self.submitted = submitted
        self.began: float | None = None
        self.num_sharing = 0
        self.is_cancelled = False
        self.is_cut = False
        self._settings = request.settings
        self._condition = condition
        self._scheduler = scheduler
        self._observers = observers
        self._events: list[Event] = []
        self._news = threading.Condition()
        self._over = threading.Event()

    if TYPE_CHECKING:
        is_finished: bool  # whether the run has ended, with an End as its last event

    @property
    def settings(self) -> DecodeSettings:
        """Settings that apply from the next forward pass on. Assigning raises SettingsError, also
        for more new tokens than at the start.
        """
        return self._settings

    @settings.setter
    def settings(self, settings: DecodeSettings) -> None:
        if not isinstance(settings, DecodeSettings):
            raise SettingsError("The settings of a run must be DecodeSettings.")
        most = self.request.settings.max_new_tokens
        if settings.max_new_tokens > most:
            raise SettingsError(
                f"max_new_tokens cannot be raised during a run: choose at most {most}, got "
                f"{settings.max_new_tokens}."
            )
        self._settings = settings
        self._on_change()

    @property
    def pace(self) -> float:
        """Slow motion of the job (see ``BaseEngine.submit``). Assigning raises SettingsError."""
        return self.job.pace

    @pace.setter
    def pace(self, pace: float) -> None:
        with self._condition:
            self.job.pace = check_pace(pace)
            self._condition.wake()
        self._on_change()

    @property
    def num_ahead(self) -> int:
        with self._condition:
            return self._scheduler.num_ahead(self.job)

    @property
    def is_held_up(self) -> bool:
        with self._condition:
            return self._scheduler.is_held_up(self.job)

    @property
    def is_hurried(self) -> bool:
        with self._condition:
            return self._scheduler.is_hurried(self.job)

    @property
    def is_awaiting_device(self) -> bool:
        """Whether the run is active but its device has not been leased yet."""
        return False

    def cancel(self) -> None:
        """End the run within one forward pass, also while it pauses or waits."""
        with self._condition:
            self.is_cancelled = True
            self._condition.wake()
        self._on_change()

    def _on_change(self) -> None:
        """Called after a new setting, pace or cancellation."""

    def events_since(self, index: int) -> tuple[Event, ...]:
        return tuple(self._events[index:])

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether the run has ended, after at most ``timeout`` seconds."""
        return self._over.wait(timeout)

    def __iter__(self) -> Iterator[Event]:
        index = 0
        while True:
            with self._news:
                while len(self._events) <= index:
                    self._news.wait()
            new = self.events_since(index)
            yield from new
            if isinstance(new[-1], End):
                return
            index += len(new)

    def add(self, event: Event) -> None:
        """Ignores events after the End, which a hanging worker may still send."""
        with self._news:
            if self._events and isinstance(self._events[-1], End):
                return
            self._events.append(event)
            self._news.notify_all()
        for observe in self._observers:
            observe(self, event)

    def announce_end(self) -> None:
        self._over.set()


Observer = Callable[[Run, Event], None]
"""Called by the worker between two forward passes, so it must return immediately and not raise."""


def overdue(runs: Iterable[Run], now: float) -> list[tuple[Run, End]]:
    ends = []
    for run in runs:
        if run.is_cancelled:
            ends.append((run, End("cancelled")))
        elif run.deadline <= now:
            seconds = run.request.deadline
            ends.append((run, End("deadline", f"The time limit of {seconds:g} s was reached.")))
    return ends


def check_pace(pace: float) -> float:
    is_real = isinstance(pace, (int, float)) and not isinstance(pace, bool)
    if not is_real or not 0 <= pace <= MAX_PACE:
        raise SettingsError(f"The pace must be a number from 0 (full speed) to {MAX_PACE:g}.")
    return float(pace)
