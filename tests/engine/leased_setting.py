"""An engine whose device is lent, over scripted processes whose forwards the tests can count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import RawValue
from typing import Any

from mars_runtime.engine.leased.engine import LeasedEngine
from mars_runtime.engine.leased.worker import Lease, SharedMemory, Worker
from mars_runtime.engine.run import Run
from mars_runtime.events import Step
from tests.engine.forked_worker import ForkedWorkers
from tests.engine.scripted import FOREVER, Script, request, steps

FORWARD = 0.005
FOREVER_LONG = request(1, FOREVER)


class Counted(Script):
    """A scripted backend whose forwards the tests can count from outside its process."""

    def __init__(self, counter: Any, **changes: Any) -> None:
        super().__init__(**changes)
        self.counter = counter

    def _forward(self, rows: list[Any]) -> Step:
        self.counter.value += 1
        return super()._forward(rows)


class Setting:
    """An engine, its processes and the number of forwards that they have done."""

    def __init__(self, seconds: float = FORWARD, num: int = 3, **kinds: Any) -> None:
        self.num_forwards = RawValue("q", 0)
        slots = SharedMemory(8)

        def open_backend(name: str, costs: object) -> Script:
            every = dict.fromkeys(range(100), seconds)
            return Counted(self.num_forwards, seconds=every, fails_at={66: 3})

        self.workers = ForkedWorkers(Worker(slots, open_backend).decode, num, **kinds)
        self.slots = slots
        self.engine = self.open(self.workers.lease)

    def open(self, lease: Lease, **caps: int) -> LeasedEngine:
        return LeasedEngine("scripted", lease, self.slots, lambda asked: None, 5000, **caps)

    def close(self) -> None:
        self.engine.close()
        self.workers.end()


@contextmanager
def setting(**kinds: Any) -> Iterator[Setting]:
    made = Setting(**kinds)
    try:
        yield made
    finally:
        made.close()


def begun(run: Run) -> bool:
    return len(steps(run)) > 2
