"""A fair queue, and the worker threads that do Review's work on files and statistics.

Each address has at most one piece of work in progress and a bounded queue of its own; the threads
take from the queues in turn. Work is dropped when its client disconnects, and stopped when it
exceeds its time budget.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from mars_runtime.review.budget import Budget, limited
from mars_runtime.serving.answer import unless_gone
from mars_runtime.serving.errors import ApiError
from mars_runtime.serving.limits import Receive

NUM_THREADS = 4
MAX_OF_ONE, MAX_WAITING = 32, 400
"""Most waiting pieces of work: per address, and in total."""
MAX_SECONDS = 10.0
FULL = "Too many requests from your address are waiting. Try again in a moment."
BUSY = "Too many visitors are using Review right now. Try again in a moment."
T = TypeVar("T")


class _Piece:
    """A piece of work that waits or is in progress, and its result."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.result: Future[Any] = Future()
        self.budget: Budget | None = None


class FairQueue:
    """Runs work in its own threads and shares them fairly between addresses."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[_Piece]] = OrderedDict()
        self._busy: set[str] = set()
        self._changed = threading.Condition()
        self._num_threads = 0

    async def done(self, work: Callable[[], T], address: str, receive: Receive) -> T:
        """Return the result of ``work``. Raises its exceptions, ApiError if the queue is full, and
        ClientDisconnect if the client disconnects first.
        """
        piece = self._enqueue(work, address)
        try:
            return await unless_gone(receive, _result(piece.result))
        finally:
            self._drop(piece, address)
            del piece, work  # break the cycle of exception, traceback and the request's body

    def _enqueue(self, work: Callable[[], Any], address: str) -> _Piece:
        piece = _Piece(work)
        with self._changed:
            if len(self._waiting.get(address, ())) >= MAX_OF_ONE:
                raise ApiError(429, FULL, retry_after=1)
            if sum(map(len, self._waiting.values())) >= MAX_WAITING:
                raise ApiError(429, BUSY, retry_after=1)
            self._waiting.setdefault(address, deque()).append(piece)
            if self._num_threads < NUM_THREADS:
                self._num_threads += 1
                threading.Thread(target=self._serve, name="review", daemon=True).start()
            self._changed.notify()
        return piece

    def _drop(self, piece: _Piece, address: str) -> None:
        """Remove a piece of work from the queue, or stop it if it is in progress."""
        with self._changed:
            queue = self._waiting.get(address)
            if queue and piece in queue:
                queue.remove(piece)
                if not queue:
                    del self._waiting[address]
            if piece.budget is not None:
                piece.budget.cancel()

    def _serve(self) -> None:
        while True:
            with self._changed:
                while (address := self._next()) is None:
                    self._changed.wait()
                queue = self._waiting[address]
                piece = queue.popleft()
                if queue:
                    self._waiting.move_to_end(address)
                else:
                    del self._waiting[address]
                self._busy.add(address)
                piece.budget = Budget(MAX_SECONDS)
            try:
                with limited(piece.budget):
                    piece.result.set_result(piece.work())
            except BaseException as error:
                piece.result.set_exception(error)
            del piece  # frees the request's body too
            with self._changed:
                self._busy.discard(address)
                self._changed.notify()

    def _next(self) -> str | None:
        """Return the address whose turn it is."""
        return next((address for address in self._waiting if address not in self._busy), None)


async def _result(future: Future[T]) -> T:
    try:
        return await asyncio.shield(asyncio.wrap_future(future))
    finally:
        del future
