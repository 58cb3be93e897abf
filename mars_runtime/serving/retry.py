"""ASGI middleware for Ray's proxies: retries requests when a replica dies, and rewrites errors.

If a replica dies before it has sent any part of its response, the request is sent to another
replica. If it dies during a stream, the stream ends with an error message. Ray's plain-text errors
are replaced by errors in OpenAI's format.
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
# A health request needs a time limit, because Ray queues requests until there is a replica.
HEALTH, HEALTH_SECONDS = "/health", 2.0


def middlewares() -> list[Middleware]:
    """Return the middleware for every proxy. Ray imports this function by its name."""
    limit = Middleware(BodyLimit, max_bytes=DEFAULT_CAPS.max_body_bytes, refusal=too_large())
    return [*cors(allowed_origins()), limit, Middleware(Retry)]


class Retry:
    """ASGI middleware that repeats requests for paths of the endpoint when a replica dies."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the request to a replica, up to NUM_TRIES times until there is a response."""
        if scope["type"] != "http" or not PATHS.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        body = await whole_body(receive)
        if body is None:
            return
        forward = self._is_in_time if scope["path"] == HEALTH else self._is_answered
        if not await forward(scope, receive, send, body):
            refusal = ApiError(503, NO_MACHINE, retry_after=RETRY_SECONDS)
            await refusal.response(scope, receive, send)

    async def _is_in_time(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> bool:
        """Send the request; return whether it was answered within HEALTH_SECONDS.

        A later response is dropped, because Ray may answer a request after it was cancelled.
        """
        is_late = False

        async def unless_late(message: Message) -> None:
            if not is_late:
                await send(message)

        attempt = asyncio.ensure_future(self._is_answered(scope, receive, unless_late, body))
        await asyncio.wait({attempt}, timeout=HEALTH_SECONDS)
        is_late = not attempt.done()
        attempt.cancel()
        return not is_late and attempt.result()

    async def _is_answered(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> bool:
        """Send the request; return whether any response was sent to the client."""
        for _ in range(NUM_TRIES):
            attempt = Attempt(replayed(body, receive), send)
            await self._app(scope, attempt.receive, attempt.send)
            if attempt.is_gone or attempt.is_over:
                return True
            if attempt.has_begun:
                await attempt.end_broken()
                return True
        return False


class Attempt:
    """One attempt to answer a request, and the state of its response.

    has_begun: whether a part of the response was sent. is_over: whether all of it was sent.
    is_gone: whether the client has disconnected.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self.is_gone = self.has_begun = self.is_over = False
        self._receive = receive
        self._send = send
        self._start: Message = {}
        self._refusal: ApiError | None = None

    async def receive(self) -> Message:
        """Return the client's next message (ASGI ``receive``)."""
        message = await self._receive()
        self.is_gone = self.is_gone or message["type"] == "http.disconnect"
        return message

    async def send(self, message: Message) -> None:
        """Send a message of the replica to the client (ASGI ``send``).

        The head of the response is sent together with the first part of its body. So a replica that
        dies before that can be replaced by another one.
        """
        if message["type"] == "http.response.start":
            self._start = message
            self._refusal = replacement_error(message)
            return
        is_last = not message.get("more_body", False)
        if self._refusal is not None:
            message = {**message, "body": b"" if not is_last else self._error_body()}
        if not self.has_begun:
            self.has_begun = True
            await self._send(self._start)
        await self._send(message)
        self.is_over = is_last

    async def end_broken(self) -> None:
        """End a broken stream of events with an error event. Other responses are just cut off."""
        if _header(self._start, b"content-type").startswith(EVENTS):
            error_json = json.dumps(ApiError(503, TORN, retry_after=RETRY_SECONDS).body)
            end = f"data: {error_json}\n\ndata: [DONE]\n\n".encode()
            await self._send({"type": "http.response.body", "body": end})

    def _error_body(self) -> bytes:
        return json.dumps(self._refusal.body).encode() if self._refusal else b""


def replacement_error(start: Message) -> ApiError | None:
    """Return the error that replaces a plain-text error of Ray, and change ``start`` accordingly.

    start: the head of the response. Returns None for a response of the replica, which is sent
    unchanged.
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
