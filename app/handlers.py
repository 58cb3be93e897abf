"""The handlers of every tab, made once a process of what they share."""

from __future__ import annotations

from dataclasses import dataclass

from app.batch.run import BatchHandlers
from app.examples.book import ExampleBook
from app.feed import Feeds
from app.grid.run import GridHandlers
from app.live.run import LiveHandlers
from app.load.run import LoadHandlers
from app.serving.checkpoints import CheckpointHandlers
from app.serving.engines import Engines


@dataclass(frozen=True, slots=True)
class Handlers:
    """What the page is built over; each tab takes its own."""

    engines: Engines
    book: ExampleBook
    feeds: Feeds
    checkpoints: CheckpointHandlers
    live: LiveHandlers
    batch: BatchHandlers
    grid: GridHandlers
    load: LoadHandlers


def make_handlers(engines: Engines) -> Handlers:
    """All of them over these engines, with examples and feeds of their own."""
    book, feeds, checkpoints = ExampleBook(), Feeds(), CheckpointHandlers(engines)
    return Handlers(
        engines,
        book,
        feeds,
        checkpoints,
        LiveHandlers(engines, feeds, book, checkpoints.settle),
        BatchHandlers(engines, feeds, book),
        GridHandlers(engines, feeds, book),
        LoadHandlers(engines, feeds),
    )
