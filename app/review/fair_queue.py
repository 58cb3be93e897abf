"""The threads that do Review's work on files and figures, and the line of requests before them.

Each address has at most one piece of work in progress and a bounded line of its own; the threads
take from the lines in turn. Work whose client has left is dropped, and none takes longer than its
budget of seconds.
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
"""Pieces of work that wait: of one address, and in all."""
MAX_SECONDS = 10.0
FULL = "Many requests from your address are waiting: try again in a moment."
BUSY = "Many visitors are using Review at the moment: try again in a moment."
T = TypeVar("T")


class _Piece:
    """Work that waits or is in progress, and its result."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.result: Future[Any] = Future()
        self.budget: Budget | None = None


class FairQueue:
    """Runs work in threads of its own, shared out fairly by address."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[_Piece]] = OrderedDict()
        self._busy: set[str] = set()
        self._changed = threading.Condition()
        self._num_threads = 0

    async def done(self, work: Callable[[], T], address: str, receive: Receive) -> T:
        """The result of the work. Raises what it raises, ApiError where the line is full, and
        ClientDisconnect where the client leaves first."""
        piece = self._enqueue(work, address)
        try:
            return await unless_gone(receive, _result(piece.result))
        finally:
            self._drop(piece, address)
            del piece, work  # else an exception, its traceback and a request's body are a cycle

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
        """Take a piece of work out of the line, or end it early."""
        with self._changed:
            own = self._waiting.get(address)
            if own and piece in own:
                own.remove(piece)
                if not own:
                    del self._waiting[address]
            if piece.budget is not None:
                piece.budget.cancel()

    def _serve(self) -> None:
        while True:
            with self._changed:
                while (address := self._next()) is None:
                    self._changed.wait()
                own = self._waiting[address]
                piece = own.popleft()
                if own:
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
            del piece  # with its request's body
            with self._changed:
                self._busy.discard(address)
                self._changed.notify()

    def _next(self) -> str | None:
        """The address whose turn it is."""
        return next((each for each in self._waiting if each not in self._busy), None)


async def _result(future: Future[T]) -> T:
    try:
        return await asyncio.shield(asyncio.wrap_future(future))
    finally:
        del future
