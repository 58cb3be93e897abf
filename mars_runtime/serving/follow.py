"""Follows a run for a client that may leave: then the run ends within one forward.

Looks at its events some fifty times a second, which costs the decoding thread nothing. Knows no
JSON and no route.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Protocol, TypeVar

from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from mars_runtime.events import End
from mars_runtime.serving.answer import Answer, Piece
from mars_runtime.serving.errors import ApiError
from mars_runtime.serving.models import Answering

POLL_SECONDS = 0.02
SHUTTING_DOWN = "The server is shutting down: please send the request again in a moment."
T = TypeVar("T")


async def pieces(run: Answering, answer: Answer) -> AsyncIterator[Piece]:
    """What is new, until the answer is over. Raises ApiError for one that fails."""
    num_read = 0
    while not answer.is_over:
        events = run.events_since(num_read)
        num_read += len(events)
        piece = answer.read(events)
        if piece:
            yield piece
        if not events:
            await asyncio.sleep(POLL_SECONDS)
    check(answer.end)


def check(end: End | None) -> None:
    """Raises ApiError for an end that is none of the answer's own."""
    if end is not None and end.reason == "cancelled":
        raise ApiError(503, SHUTTING_DOWN, retry_after=5)
    if end is not None and end.reason == "error":
        raise ApiError(503, end.message, retry_after=1)


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` returns; it is cancelled where the client leaves meanwhile. Raises
    ClientDisconnect then."""
    tasks = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnect
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Cancellable(Protocol):
    """What ends with the stream that tells of it."""

    def cancel(self) -> None: ...


class EventStream(StreamingResponse):
    """Server-sent events for as long as somebody is there; ``run`` is cancelled at the end."""

    def __init__(self, lines: AsyncIterator[str], run: Cancellable) -> None:
        super().__init__(lines, media_type="text/event-stream")
        self.headers["cache-control"] = "no-cache"
        self.headers["x-accel-buffering"] = "no"
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the stream is over or the client leaves, also one who waits in line."""
        try:
            await unless_gone(receive, self.stream_response(send))
        except ClientDisconnect:
            pass
        finally:
            self._run.cancel()
