"""Limits of runs in Gradio's queue: how many an address may have, and that each needs a stream."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from urllib.parse import parse_qs

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.gradio_compat import CALLED, QUEUED, STREAM, GradioQueue
from app.serving.routes import parsed_object
from mars_runtime.serving.errors import ApiError
from mars_runtime.serving.limits import AddressCounter, address_of, replayed

GRACE_SECONDS = 15.0  # time in which a session must open its stream; a busy page is slow
STEP_SECONDS, PAUSED_SECONDS = 0.25, 1.0  # a step that takes longer does not count: the process
# was paused (SIGSTOP, a frozen container) and could not read what clients sent
NO_SESSION = "This run no longer exists. Press Run to start a new one."
LOST = {
    "msg": "unexpected_error",
    "message": NO_SESSION,
    "session_not_found": True,
    "success": False,
}
"""What Gradio sends to a page with an unknown session, before it raises an error."""
FULL = "You already have {} runs in progress. Wait until one ends, or stop one."


class RunLimits:
    """ASGI middleware. is_run: whether the event with this number decodes. runs: counts the runs of
    each address, those in the queue included.
    """

    def __init__(
        self,
        app: ASGIApp,
        queue: GradioQueue,
        is_run: Callable[[object], bool],
        runs: AddressCounter,
    ) -> None:
        self._app = app
        self._page_queue = queue
        self._is_run = is_run
        self._runs = runs
        self._open: Counter[str] = Counter()  # number of open streams by session
        self._expected: dict[str, asyncio.Task[None]] = {}  # timers of the grace period by session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["method"] == "POST" and QUEUED.fullmatch(scope["path"]):
            await self._join(scope, receive, send)
        elif scope["method"] == "GET" and (session := self._session_of(scope)):
            if not self._page_queue.has_session(session):
                await _no_stream(scope, receive, send)
                return
            self._open[session] += 1
            if timer := self._expected.pop(session, None):
                timer.cancel()
            try:
                await self._app(scope, receive, send)
            finally:
                self._open -= Counter([session])
        else:
            await self._app(scope, receive, send)

    def _session_of(self, scope: Scope) -> str:
        """Return the session whose stream is requested, or "" for other requests."""
        if scope["path"] == STREAM:
            query: str = scope["query_string"].decode("latin-1")
            return parse_qs(query).get("session_hash", [""])[0]
        called = CALLED.fullmatch(scope["path"])
        return self._page_queue.session_of(called["event"]) if called else ""

    async def _join(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = (await receive()).get("body", b"")
        is_run = self._decodes(scope["path"], body)
        address = address_of(scope.get("client"))
        if is_run and not self._runs.take(address):
            raise ApiError(429, FULL.format(self._runs.most))
        answered = b""

        async def kept(message: Message) -> None:
            nonlocal answered
            answered += message.get("body", b"")
            await send(message)

        try:
            await self._app(scope, replayed(body, receive), kept)
        finally:
            if is_run:
                self._runs.release(address)  # from now on the queue has it
        event = parsed_object(answered).get("event_id")
        if is_run and isinstance(event, str):
            self._expect(str(parsed_object(body).get("session_hash") or event))

    def _expect(self, session: str) -> None:
        if not self._open[session] and session not in self._expected:
            self._expected[session] = asyncio.create_task(self._forget(session))

    def _decodes(self, path: str, body: bytes) -> bool:
        return not path.endswith("/join") or self._is_run(parsed_object(body).get("fn_index"))

    async def _forget(self, session: str) -> None:
        seconds_left = GRACE_SECONDS
        while seconds_left > 0:
            began = time.monotonic()
            await asyncio.sleep(min(seconds_left, STEP_SECONDS))
            spent = time.monotonic() - began
            seconds_left -= spent if spent < PAUSED_SECONDS else 0.0
        del self._expected[session]
        await self._page_queue.forget(session)


async def _no_stream(scope: Scope, receive: Receive, send: Send) -> None:
    if CALLED.fullmatch(scope["path"]):
        raise ApiError(404, NO_SESSION)
    lost = f"data: {json.dumps(LOST)}\n\n"
    await Response(lost, media_type="text/event-stream")(scope, receive, send)
