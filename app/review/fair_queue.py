"""A fair queue with worker threads, for the Review tab's work on files and statistics.

Each address has at most one task in progress and a bounded queue of its own; the threads serve the
queues in turn. A task is dropped when its client disconnects, and stopped when it exceeds its time
limit.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from mars_runtime.review.budget import Budget, limited
from mars_runtime.serving.answer import unless_disconnected
from mars_runtime.serving.errors import ApiError
from mars_runtime.serving.limits import Receive

NUM_THREADS = 4
MAX_OF_ONE, MAX_WAITING = 32, 400
"""Maximum number of waiting tasks per address, and in total."""
MAX_SECONDS = 10.0
FULL = "Too many requests from your address are waiting. Wait a moment, then try again."
BUSY = "The Review tab is busy. Wait a moment, then try again."
T = TypeVar("T")


class _Task:
    """A waiting or active task, and its result."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.result: Future[Any] = Future()
        self.budget: Budget | None = None


class FairQueue:
    """Runs tasks in worker threads, which are shared fairly among addresses."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[_Task]] = OrderedDict()
        self._busy: set[str] = set()
        self._changed = threading.Condition()
        self._num_threads = 0

    async def done(self, work: Callable[[], T], address: str, receive: Receive) -> T:
        """Run ``work`` in a worker thread and return its result. Raises the exceptions of ``work``,
        ApiError if the queue is full, and ClientDisconnect if the client disconnects first.
        """
        task = self._enqueue(work, address)
        try:
            return await unless_disconnected(receive, _result(task.result))
        finally:
            self._drop(task, address)
            # Break the reference cycle through the exception's traceback, which would keep the
            # body of the request in memory.
            del task, work

    def _enqueue(self, work: Callable[[], Any], address: str) -> _Task:
        task = _Task(work)
        with self._changed:
            if len(self._waiting.get(address, ())) >= MAX_OF_ONE:
                raise ApiError(429, FULL, retry_after=1)
            if sum(map(len, self._waiting.values())) >= MAX_WAITING:
                raise ApiError(429, BUSY, retry_after=1)
            self._waiting.setdefault(address, deque()).append(task)
            if self._num_threads < NUM_THREADS:
                self._num_threads += 1
                threading.Thread(target=self._serve, name="review", daemon=True).start()
            self._changed.notify()
        return task

    def _drop(self, task: _Task, address: str) -> None:
        """Remove a task from the queue, or stop it if it is in progress."""
        with self._changed:
            queue = self._waiting.get(address)
            if queue and task in queue:
                queue.remove(task)
                if not queue:
                    del self._waiting[address]
            if task.budget is not None:
                task.budget.cancel()

    def _serve(self) -> None:
        while True:
            with self._changed:
                while (address := self._next()) is None:
                    self._changed.wait()
                queue = self._waiting[address]
                task = queue.popleft()
                if queue:
                    self._waiting.move_to_end(address)
                else:
                    del self._waiting[address]
                self._busy.add(address)
                task.budget = Budget(MAX_SECONDS)
            try:
                with limited(task.budget):
                    task.result.set_result(task.work())
            except BaseException as error:
                task.result.set_exception(error)
            del task  # otherwise the body of the request stays in memory until the next task
            with self._changed:
                self._busy.discard(address)
                self._changed.notify()

    def _next(self) -> str | None:
        """Return the address to serve next, or None if there is none."""
        return next((address for address in self._waiting if address not in self._busy), None)


async def _result(future: Future[T]) -> T:
    try:
        return await asyncio.shield(asyncio.wrap_future(future))
    finally:
        del future
