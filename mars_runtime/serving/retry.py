"""ASGI middleware of Ray's proxies: retries when a replica dies, and rewrites Ray's errors.

A request without any answer so far is sent again, to another replica. A stream that breaks ends
with an error message. Ray's own plain-text errors become errors in OpenAI's format.
"""

from __future__ import annotations

import asyncio
import json

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mars_runtime.serving.addresses import cors
from mars_runtime.serving.app import PATHS, too_large
from mars_runtime.serving.errors import BUSY_SECONDS, ApiError
from mars_runtime.serving.limits import BodyLimit, replayed, whole_body
from mars_runtime.serving.requests import DEFAULT_CAPS
from mars_runtime.serving.server import allowed_origins

NUM_TRIES = 3
EVENTS = b"text/event-stream"
TORN = "The connection to the machine that wrote this answer was lost. Send the request again."
NO_MACHINE = "No machine can answer right now. Send the request again in a moment."
FULL = "All machines are busy. Send the request again in a moment."
RETRY_SECONDS = 5
HEALTH, HEALTH_SECONDS = "/health", 2.0  # Ray holds a request until there is a replica for it


def middlewares() -> list[Middleware]:
    """Return the middleware of every proxy. Ray imports this function by its name."""
    limit = Middleware(BodyLimit, max_bytes=DEFAULT_CAPS.max_body_bytes, refusal=too_large())
    return [*cors(allowed_origins()), limit, Middleware(Retry)]


class Retry:
    """ASGI middleware that resends requests to the endpoint's routes when a replica dies."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; resend it while there is no answer, at most NUM_TRIES times in
        all.
        """
        if scope["type"] != "http" or not PATHS.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        body = await whole_body(receive)
        if body is None:
            return
        passed = self._is_in_time if scope["path"] == HEALTH else self._is_answered
        if not await passed(scope, receive, send, body):
            refusal = ApiError(503, NO_MACHINE, retry_after=RETRY_SECONDS)
            await refusal.response(scope, receive, send)

    async def _is_in_time(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> bool:
        """Return whether the request is answered within HEALTH_SECONDS. Ray may ignore the
        cancellation, so a late answer is dropped.
        """
        is_late = False

        async def unless_late(message: Message) -> None:
            if not is_late:
                await send(message)

        trying = asyncio.ensure_future(self._is_answered(scope, receive, unless_late, body))
        await asyncio.wait({trying}, timeout=HEALTH_SECONDS)
        is_late = not trying.done()
        trying.cancel()
        return not is_late and trying.result()

    async def _is_answered(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> bool:
        for _ in range(NUM_TRIES):
            answer = Passing(replayed(body, receive), send)
            await self._app(scope, answer.receive, answer.send)
            if answer.is_gone or answer.is_over:
                return True
            if answer.has_begun:
                await answer.end_torn()
                return True
        return False


class Passing:
    """One answer passing through the proxy.

    ``has_begun``: some of it was sent; ``is_over``: all of it was sent; ``is_gone``: the client has
    disconnected.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self.is_gone = self.has_begun = self.is_over = False
        self._receive = receive
        self._send = send
        self._start: Message = {}
        self._refusal: ApiError | None = None

    async def receive(self) -> Message:
        """Return the client's next message to the replica (ASGI ``receive``)."""
        message = await self._receive()
        self.is_gone = self.is_gone or message["type"] == "http.disconnect"
        return message

    async def send(self, message: Message) -> None:
        """Send for the replica: hold back the response head until the first part of the body."""
        if message["type"] == "http.response.start":
            self._start = message
            self._refusal = refusal_of(message)
            return
        is_last = not message.get("more_body", False)
        if self._refusal is not None:
            message = {**message, "body": b"" if not is_last else self._refused()}
        if not self.has_begun:
            self.has_begun = True
            await self._send(self._start)
        await self._send(message)
        self.is_over = is_last

    async def end_torn(self) -> None:
        """End a broken event stream with an error event. Other responses are cut off, as Ray does
        it.
        """
        if _header(self._start, b"content-type").startswith(EVENTS):
            error_json = json.dumps(ApiError(503, TORN, retry_after=RETRY_SECONDS).body)
            end = f"data: {error_json}\n\ndata: [DONE]\n\n".encode()
            await self._send({"type": "http.response.body", "body": end})

    def _refused(self) -> bytes:
        return json.dumps(self._refusal.body).encode() if self._refusal else b""


def refusal_of(start: Message) -> ApiError | None:
    """Return the error that replaces Ray's plain-text one, and put its headers into ``start``; None
    for the replica's own answers.
    """
    is_ours = start["status"] < 400 or _header(start, b"content-type") == b"application/json"
    if is_ours:
        return None
    is_full = start["status"] == 429
    refusal = ApiError(429, FULL, None, BUSY_SECONDS) if is_full else _no_machine()
    headers = refusal.response.raw_headers
    length = str(len(json.dumps(refusal.body).encode())).encode()
    other_headers = [(name, value) for name, value in headers if name != b"content-length"]
    start["status"] = refusal.status
    start["headers"] = [*other_headers, (b"content-length", length)]
    return refusal


def _no_machine() -> ApiError:
    return ApiError(503, NO_MACHINE, retry_after=RETRY_SECONDS)


def _header(start: Message, name: bytes) -> bytes:
    value: bytes = dict(start.get("headers", ())).get(name, b"")
    return value
