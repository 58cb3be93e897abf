"""Refuses large request bodies before anything reads them, and more at once or in a while from one
address than its share; says whose address that is. Knows no gradio and no route."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

NOBODY = "nobody"
MORE_PLACES = "mars.more_places"
"""In the scope of a request: a function that takes more places for it. It is given a number, and
returns how many of these the address of the client gets."""
MAX_DRAINED = 64_000_000  # bytes
SENTENCE = b'{"detail":"The request is too large; shorten the prompt."}'


class BodyLimit:
    """ASGI middleware: 413 for a body that is, or turns out to be, longer than ``max_bytes``.

    ``elsewhere``: paths (without a slash at the end) that have another limit. ``refusal``: the JSON
    that is answered.
    """

    def __init__(
        self,
        app: Application,
        max_bytes: int,
        elsewhere: Mapping[str, int] | None = None,
        refusal: bytes = SENTENCE,
    ) -> None:
        self.app = app
        self.refusal = refusal
        self.max_bytes = max_bytes
        self.elsewhere = elsewhere or {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass the request on unless its body is too long."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        max_bytes = self.elsewhere.get(scope["path"].rstrip("/"), self.max_bytes)
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > max_bytes:
            await self._refuse(receive, send)
            return
        num_bytes, is_refused = 0, False

        async def counted() -> Message:
            nonlocal num_bytes, is_refused
            message = await receive()
            num_bytes += len(message.get("body", b""))
            if num_bytes <= max_bytes:
                return message
            if not is_refused:
                is_refused = True
                await self._refuse(receive, send, is_more=message.get("more_body", False))
            return {"type": "http.disconnect"}

        async def unless_refused(message: Message) -> None:
            if not is_refused:
                await send(message)

        await self.app(scope, counted, unless_refused)

    async def _refuse(self, receive: Receive, send: Send, is_more: bool = True) -> None:
        """Answer 413 once the body has gone by unkept: who sends on would miss the answer."""
        num_bytes = 0
        while is_more and num_bytes < MAX_DRAINED:
            message = await receive()
            num_bytes += len(message.get("body", b""))
            is_more = message.get("more_body", False)
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": self.refusal})


class Proxies:
    """ASGI middleware: a request comes from the address that the ``number``-th proxy before this
    server saw, counted from here. Each appends to ``X-Forwarded-For`` whom it was asked by, so what
    stands further left was written by anybody. The socket's address without proxies, and where the
    header is shorter than that."""

    def __init__(self, app: Application, number: int) -> None:
        self._app = app
        self._number = number

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass the request on, with its client."""
        if self._number and scope["type"] == "http":
            values = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
            seen = b",".join(values).decode("latin-1").split(",")
            if len(seen) >= self._number and (address := seen[-self._number].strip()):
                scope = {**scope, "client": (address, 0)}
        await self._app(scope, receive, send)


class RateLimit:
    """ASGI middleware: ``refusal`` answers an address that has ``most`` requests going which were
    posted; 0 lets through any number. One counts when it is whole, and counts more than once if it
    took ``MORE_PLACES``."""

    def __init__(self, app: Application, most: int, refusal: Application) -> None:
        self._app = app
        self._most = most
        self._refusal = refusal
        self._going: Counter[str] = Counter()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass the request on, unless it is one too many."""
        if not self._most or scope["type"] != "http" or scope["method"] != "POST":
            await self._app({**scope, MORE_PLACES: lambda number: number}, receive, send)
            return
        body = await whole_body(receive)
        if body is None:
            return
        address = address_of(scope.get("client"))
        if self._going[address] >= self._most:
            await self._refusal(scope, receive, send)
            return
        num_places = 1
        self._going[address] += 1

        def take_more(number: int) -> int:
            nonlocal num_places
            taken = min(number, self._most - self._going[address])
            self._going[address] += taken
            num_places += taken
            return taken

        try:
            scope = {**scope, MORE_PLACES: take_more}
            await self._app(scope, replayed(body, receive), send)
        finally:
            self._going -= Counter({address: num_places})


class Window:
    """How often each address does something within ``seconds``: at most ``most`` times. For any
    thread."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._lock = threading.Lock()
        self._times: defaultdict[str, deque[float]] = defaultdict(deque)

    def admits(self, address: str) -> bool:
        """Count one more, unless it is one too many. Whoever did nothing of late is forgotten."""
        now = time.monotonic()
        with self._lock:
            for each in list(self._times):
                times = self._times[each]
                while times and now - times[0] > self._seconds:
                    times.popleft()
                if not times:
                    del self._times[each]
            if len(self._times[address]) >= self._most:
                return False
            self._times[address].append(now)
            return True


def address_of(client: Any) -> str:
    """Whose a request is, by its scope's client or gradio's: places are dealt out fairly among
    addresses, and all that have none, as over a Unix socket, are one."""
    return str(client[0]) if client else NOBODY


def is_json(scope: Message) -> bool:
    """Whether the body of a request is declared to be JSON, of whatever charset."""
    kind: bytes = dict(scope["headers"]).get(b"content-type", b"")
    return kind.partition(b";")[0].strip().lower() == b"application/json"


async def whole_body(receive: Receive) -> bytes | None:
    """The body of a request; None where the caller has gone."""
    parts, is_more = [], True
    while is_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        is_more = message.get("more_body", False)
    return b"".join(parts)


def replayed(body: bytes, receive: Receive) -> Receive:
    """``receive`` for whoever is to read the body once more."""
    is_sent = False

    async def again() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
