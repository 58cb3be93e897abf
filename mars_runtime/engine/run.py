"""The handle of a request that is being served: read its events, steer it, end it.

Any thread may use a handle. It holds plain values only: no tensor, cache or decoder can be reached
from it, so keeping it after the end costs no more than its events.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from mars_runtime.engine.request import Asked
from mars_runtime.engine.scheduler import Job, Lane, Scheduler
from mars_runtime.events import End, Event
from mars_runtime.settings import DecodeSettings, SettingsError

MAX_PACE = 10_000.0


class Bell(threading.Condition):
    """Guards what the engine's worker and the handles share, and wakes the worker.

    has_news: somebody other than the worker changed something since the worker last looked.
    """

    has_news = False

    def ring(self) -> None:
        """Wake the worker. The bell is held."""
        self.has_news = True
        self.notify_all()


class Run(Lane):
    """A request being served. ``clock`` is its device time so far in seconds, without any wait;
    ``num_sharing``, with how many other runs it shared its latest forward. ``submitted`` and
    ``began`` (its first turn, None before) are seconds on the monotonic clock.

    Iterating blocks until the end and wakes the reader for every event; a reader that draws should
    poll ``events_since`` a few times a second instead, which costs the decoding thread nothing.
    """

    def __init__(
        self,
        asked: Asked,
        submitted: float,
        bell: Bell,
        scheduler: Scheduler[Run],
        observers: Sequence[Observer] = (),
    ) -> None:
        """For the engine: ``bell`` wakes its worker and guards ``scheduler``."""
        super().__init__(deadline=submitted + asked.deadline)
        self.asked = asked
        self.submitted = submitted
        self.began: float | None = None
        self.num_sharing = 0
        self.is_cancelled = False
        self._settings = asked.settings
        self._bell = bell
        self._scheduler = scheduler
        self._observers = observers
        self._job: Job[Run] | None = None
        self._events: list[Event] = []
        self._news = threading.Condition()
        self._over = threading.Event()

    if TYPE_CHECKING:
        is_finished: bool  # whether the run is over, its End among the events

    @property
    def settings(self) -> DecodeSettings:
        """In force from the next forward on; replace them at any time.

        Raises SettingsError for anything else than settings, or for more new tokens than there was
        room for at the start.
        """
        return self._settings

    @settings.setter
    def settings(self, settings: DecodeSettings) -> None:
        if not isinstance(settings, DecodeSettings):
            raise SettingsError("Settings of a run must be DecodeSettings.")
        most = self.asked.settings.max_new_tokens
        if settings.max_new_tokens > most:
            raise SettingsError(f"A run that began with room for {most} tokens cannot get more.")
        self._settings = settings
        self._steered()

    @property
    def pace(self) -> float:
        """Slow motion of the whole job: N means a rest of N times each forward; 0 is full speed.

        Raises SettingsError for a pace out of range.
        """
        return self.job.pace

    @pace.setter
    def pace(self, pace: float) -> None:
        with self._bell:
            self.job.pace = check_pace(pace)
            self._bell.ring()
        self._steered()

    @property
    def place(self) -> int:
        """Jobs that must end before this one is served; 0 once it is served or over."""
        with self._bell:
            return self._scheduler.place(self.job)

    @property
    def is_held_up(self) -> bool:
        """Whether it is served but stands by, because another job has the device alone."""
        with self._bell:
            return self._scheduler.is_held_up(self.job)

    @property
    def is_hurried(self) -> bool:
        """Whether its slow motion gives way to others, who wait for a place."""
        with self._bell:
            return self._scheduler.is_hurried(self.job)

    @property
    def is_awaiting_device(self) -> bool:
        """Whether its turn has come and it waits until a device is lent to it."""
        return False

    @property
    def job(self) -> Job[Run]:
        """For the engine: what is served as one with this run."""
        assert self._job is not None, "the engine gives every run a job"
        return self._job

    def cancel(self) -> None:
        """End within one forward, resting or waiting included. A second call does nothing."""
        with self._bell:
            self.is_cancelled = True
            self._bell.ring()
        self._steered()

    def _steered(self) -> None:
        """Settings, pace or the wish to end changed: for a run that is decoded elsewhere."""

    def events_since(self, index: int) -> tuple[Event, ...]:
        """The events from the ``index``-th on, without waiting."""
        return tuple(self._events[index:])

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, ``timeout`` seconds at most; says whether the run is over."""
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
        """For the engine: one more event, but none behind the end: its worker may have hung."""
        with self._news:
            if self._events and isinstance(self._events[-1], End):
                return
            self._events.append(event)
            self._news.notify_all()
        for observe in self._observers:
            observe(self, event)

    def begin(self, now: float) -> None:
        """For the engine: it has a turn; only the first counts."""
        if self.began is None:
            self.began = now

    def announce_end(self) -> None:
        """For the engine: wake whoever waits for the end."""
        self._over.set()

    def join_job(self, job: Job[Run]) -> None:
        """For the engine, once: serve this run as part of ``job``."""
        assert self._job is None, "a run has one job"
        self._job = job


Observer = Callable[[Run, Event], None]
"""Called for every event of every run, most often by the engine's worker between two forwards: it
must return at once, and raise nothing."""


def overdue(runs: Iterable[Run], now: float) -> list[tuple[Run, End]]:
    """The runs that were cancelled or are out of time, with their ends."""
    found = []
    for run in runs:
        if run.is_cancelled:
            found.append((run, End("cancelled")))
        elif run.deadline <= now:
            seconds = run.asked.deadline
            found.append((run, End("deadline", f"The time limit of {seconds:g} s is over.")))
    return found


def check_pace(pace: float) -> float:
    """``pace`` if it is in range. Raises SettingsError."""
    is_real = isinstance(pace, (int, float)) and not isinstance(pace, bool)
    if not is_real or not 0 <= pace <= MAX_PACE:
        raise SettingsError(f"The pace must be a number from 0 (full speed) to {MAX_PACE:g}.")
    return float(pace)
