"""The handlers of all tabs, which are created once per process."""

from __future__ import annotations

from dataclasses import dataclass

from app.engines.engines import Engines
from app.live.lanes import LiveHandlers
from app.throughput.run import ThroughputHandlers
from app.tradeoff.grid import GridHandlers
from app.ui.checkpoints import CheckpointHandlers
from app.ui.examples import ExampleBook
from app.ui.stream import RunLogs


@dataclass(frozen=True, slots=True)
class Handlers:
    engines: Engines
    book: ExampleBook
    logs: RunLogs
    checkpoints: CheckpointHandlers
    live: LiveHandlers
    throughput: ThroughputHandlers
    grid: GridHandlers


def make_handlers(engines: Engines) -> Handlers:
    book, logs, checkpoints = ExampleBook(), RunLogs(), CheckpointHandlers(engines)
    shared = engines, logs, book, checkpoints.settle
    tabs = LiveHandlers(*shared), ThroughputHandlers(*shared), GridHandlers(*shared)
    return Handlers(engines, book, logs, checkpoints, *tabs)
