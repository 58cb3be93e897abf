"""The live runs of each visitor, and the lines that the drawing component reads of them.

A visitor is a session: nobody can see or move another's run. Knows the engine's handles and the
trace format; knows no gradio, no drawing and no model.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from app.controls import STEERED, Order, lane_settings
from app.feed import RunFeed
from mars_runtime.events import End, Event, Step
from mars_runtime.folds import visible_tokens
from mars_runtime.settings import DecodeSettings

if TYPE_CHECKING:
    from mars_runtime.engine.run import Run
    from mars_runtime.trace import TraceWriter


@dataclass
class Lane:
    """One run of a race, and how much of it has been written down."""

    name: str
    run: Run
    writer: TraceWriter
    num_seen: int = 0
    tokens: list[int] = field(default_factory=list)
    end: End | None = None

    def collect(self) -> list[str]:
        """Trace lines of the events that came since the last call, the header first."""
        lines = [] if self.num_seen else [self.writer.header_line()]
        events: Sequence[Event] = self.run.events_since(self.num_seen)
        if not events:
            return []
        for event in events:
            if isinstance(event, Step):
                self.tokens.extend(visible_tokens(event.rows[0]))
            elif isinstance(event, End):
                self.end = event
            lines.append(self.writer.line(event))
        self.num_seen += len(events)
        return lines


def situation(runs: Iterable[Run]) -> str:
    """What a visitor reads whose runs wait or share; empty where they do neither."""
    runs = tuple(runs)
    place = max((run.place for run in runs), default=0)
    if place:
        return f"Waiting: {place} {'run is' if place == 1 else 'runs are'} ahead of yours."
    if any(run.is_held_up for run in runs):
        return "Waiting: another run has the device alone."
    if any(run.is_hurried for run in runs):
        return "Slow motion gives way while others wait for a place."
    others = max((run.num_sharing for run in runs), default=0)
    return f"Shared with {others} {'other' if others == 1 else 'others'}." if others else ""


class LiveRace:
    """What one visitor is running: its lanes, none before its checkpoint is there, and the feed
    that tells of them."""

    def __init__(self, order: Order, feed: RunFeed) -> None:
        self.order = order
        self.feed = feed
        self.lanes: tuple[Lane, ...] = ()
        self.is_cancelled = False

    def begin(self, lanes: Sequence[Lane]) -> None:
        """Follow these lanes; where Stop came before them they end at once."""
        self.lanes = tuple(lanes)
        if self.is_cancelled:
            self.cancel()

    @property
    def is_finished(self) -> bool:
        """Whether every lane has written its end."""
        return bool(self.lanes) and all(lane.end is not None for lane in self.lanes)

    def situation(self) -> str:
        """One sentence on the company it has on the device, empty while it has none."""
        return situation(lane.run for lane in self.lanes if lane.end is None)

    @property
    def is_begun(self) -> bool:
        """Whether anything has been decoded."""
        return any(lane.tokens for lane in self.lanes)

    def collect(self) -> None:
        """Move new events into the feed."""
        for lane in self.lanes:
            for line in lane.collect():
                self.feed.add(lane.name, line)

    def wait(self, seconds: float) -> None:
        """Wait that long, or until the first unfinished lane has ended."""
        for lane in self.lanes:
            if lane.end is None:
                lane.run.wait(seconds)
                return

    def steer(self, changes: DecodeSettings, pace: float) -> None:
        """Let tau, B, metric, lossless and pace act from the next forward on."""
        if not self.lanes:
            settings = steered_settings(self.order.settings, changes)
            self.order = replace(self.order, settings=settings)
        for lane in self.lanes:
            steered = steered_settings(lane.run.settings, changes)
            if lane.name == "mars" and steered != lane.run.settings:
                lane.run.settings = lane_settings(steered, "mars")
            if lane.run.pace != pace:
                lane.run.pace = pace
        if pace != self.order.pace:
            self.order = replace(self.order, pace=pace)
            self.feed.add("pace", {"pace": pace})

    def cancel(self) -> None:
        """End every lane within one forward; a second call does nothing."""
        self.is_cancelled = True
        for lane in self.lanes:
            lane.run.cancel()


def steered_settings(settings: DecodeSettings, changes: DecodeSettings) -> DecodeSettings:
    """The settings with those of the changes that may be made while text streams."""
    return replace(settings, **{name: getattr(changes, name) for name in STEERED})


class Cancellable(Protocol):
    """What can be ended; a second call does nothing."""

    def cancel(self) -> None: ...


R = TypeVar("R", bound=Cancellable)


class LiveRuns(Generic[R]):
    """Session -> the race (or batch) it is running, at most one; safe between threads."""

    def __init__(self) -> None:
        self._races: dict[str, R] = {}
        self._lock = threading.Lock()

    def begin(self, session: str, start: Callable[[], R]) -> R:
        """Cancel what the session was running and start anew. Raises what ``start`` raises."""
        self.stop(session)
        race = start()
        with self._lock:
            previous = self._races.get(session)
            self._races[session] = race
        if previous is not None:
            previous.cancel()
        return race

    def of(self, session: str) -> R | None:
        """The session's race, if it is running one."""
        with self._lock:
            return self._races.get(session)

    def stop(self, session: str) -> bool:
        """Cancel the session's race; says whether there was one."""
        race = self.of(session)
        if race is not None:
            race.cancel()
        return race is not None

    def end(self, session: str, race: R) -> None:
        """Cancel this race and forget it, unless the session has begun another since."""
        race.cancel()
        with self._lock:
            if self._races.get(session) is race:
                del self._races[session]

    def __len__(self) -> int:
        with self._lock:
            return len(self._races)
