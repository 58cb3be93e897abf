"""What streams of the page share: make way for oneself, wait for the checkpoint, follow a run.

Knows no gradio, order or drawing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, Protocol

from app.engines import Engines, Served
from app.feed import Feed
from app.runs import LiveRuns
from mars_runtime.engine.run import Run
from mars_runtime.events import End

HEARTBEAT_SECONDS = 1.0  # a quiet generator still yields, or a closed tab would go unnoticed
LOOK_SECONDS = 0.2  # between two looks at whether a visitor still waits
CLEAR_SECONDS = 2.0


class Turn(Protocol):
    """What has the device now, of a job whose parts take turns."""

    @property
    def run(self) -> Run: ...
    @property
    def end(self) -> End | None: ...


class Awaited(Protocol):
    """What begins once its checkpoint is there, unless it is stopped before."""

    is_cancelled: bool

    @property
    def feed(self) -> Feed: ...


class Job(Protocol):
    """Parts that run one after the other, and the feed that tells of them."""

    @property
    def feed(self) -> Feed: ...

    def collect(self) -> None: ...


def follow(
    live: LiveRuns[Any], session: str, job: Job, turn: Turn, tell: Callable[[], None], pause: float
) -> Iterator[str]:
    """Yield the feed until this turn has ended or the visitor has begun another job.

    tell: says in the feed what goes on. pause: seconds between two values.
    """
    shown = 0.0
    while live.of(session) is job:
        tell()
        job.collect()
        if turn.end is not None:
            return
        if job.feed.has_news or time.monotonic() - shown >= HEARTBEAT_SECONDS:
            shown = time.monotonic()
            yield job.feed.text()
        turn.run.wait(pause)


def until_loaded(engines: Engines, name: str, job: Awaited) -> Generator[str, None, Served | None]:
    """Wait for the checkpoint, saying what it waits for; returns it, or None if the job was stopped
    meanwhile. Raises UnavailableError."""
    load, feed, shown = engines.begin(name), job.feed, 0.0
    served = load.wait(0.0)
    while served is None and not job.is_cancelled:
        feed.say(load.situation)
        if feed.has_news or time.monotonic() - shown >= HEARTBEAT_SECONDS:
            shown = time.monotonic()
            yield feed.text()
        served = load.wait(LOOK_SECONDS)
    return None if job.is_cancelled else served


def clear(live: LiveRuns[Any], session: str, pause: float) -> None:
    """Stop what the visitor is running, and wait until its last lines are on their way.

    Both streams fill the same component, and the older one must not come last. ``pause``: the
    seconds between two values of a stream.
    """
    if not live.stop(session):
        return
    until = time.monotonic() + CLEAR_SECONDS
    while live.of(session) is not None and time.monotonic() < until:
        time.sleep(pause / 4)
    time.sleep(pause)
