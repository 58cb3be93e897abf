"""The handlers of every tab, made once a process of what they share."""

from __future__ import annotations

from dataclasses import dataclass

from app.batch.run import BatchHandlers
from app.examples.book import ExampleBook
from app.grid.run import GridHandlers
from app.live.run import LiveHandlers
from app.review.library import Library
from app.review.making import Making
from app.run_log import RunLogs
from app.serving.checkpoints import CheckpointHandlers
from app.serving.engines import Engines
from app.traffic.run import TrafficHandlers


@dataclass(frozen=True, slots=True)
class Handlers:
    """What the page is built over; each tab takes its own."""

    engines: Engines
    book: ExampleBook
    logs: RunLogs
    checkpoints: CheckpointHandlers
    live: LiveHandlers
    batch: BatchHandlers
    grid: GridHandlers
    traffic: TrafficHandlers
    library: Library
    making: Making


def make_handlers(engines: Engines) -> Handlers:
    """All of them over these engines, with examples and logs of their own."""
    book, logs, checkpoints = ExampleBook(), RunLogs(), CheckpointHandlers(engines)
    library = Library(engines.settings.data)
    return Handlers(
        engines,
        book,
        logs,
        checkpoints,
        LiveHandlers(engines, logs, book, checkpoints.settle),
        BatchHandlers(engines, logs, book),
        GridHandlers(engines, logs, book),
        TrafficHandlers(engines, logs, book),
        library,
        Making(engines, library),
    )
