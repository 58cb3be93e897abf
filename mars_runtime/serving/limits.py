"""Limits per client address: body size, concurrent requests, requests per time, wrong keys.

The module also determines the address of a client behind proxies.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import math
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_to_bytes

from mars_runtime.system.machine import return_freed_memory

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

NO_ADDRESS = "nobody"
RESERVE_RUNS = "mars.reserve_runs"
"""Key in a request's ASGI scope. The value is a function that reserves additional runs for the
request: its argument is the requested number, its result the number that the address's limit
allows.
"""
MAX_REMEMBERED = 10_000  # maximum number of addresses for which wrong keys are counted
MAX_DRAINED = 64_000_000  # maximum number of bytes of a rejected body that are read and dropped
SENTENCE = b'{"detail":"The request is too large; shorten the prompt."}'
BUSY = b'{"detail":"Too many requests from your address are being sent: wait for one to end."}'
MAX_UNFINISHED = 16  # maximum number of bodies that an address may be sending at a time
# Maximum size of all bodies in memory, in multiples of the largest allowed body.
# SHARE limits the bodies of one address, WHOLE those of all addresses together.
SHARE, WHOLE = 2, 8
MIN_SHARE = 4_000_000  # SHARE and WHOLE multiply at least this size, in bytes
LARGE = 1_000_000  # the memory of bodies above this size in bytes is returned to the system
TRIM_SECONDS = 2.0  # delay, so that one call returns the memory of several bodies
MIN_KEY = 16
MAX_WRONG, BLOCKED_SECONDS, MAX_BLOCKED_SECONDS = 10, 60.0, 3600.0
"""After MAX_WRONG wrong keys within a minute an address is blocked for BLOCKED_SECONDS. The time
doubles with each further block, up to MAX_BLOCKED_SECONDS.
"""


class BodyLimit:
    """ASGI middleware that limits the size of request bodies.

    A body longer than ``max_bytes``, declared or received, is answered with 413. An address that
    sends too many bodies, or too much in total, is answered with 429: see MAX_UNFINISHED, SHARE and
    WHOLE. A body counts towards these limits until its request is answered.

    elsewhere: limits in bytes for paths with a limit of their own, by path without a trailing
    slash. refusal, busy: JSON bodies of the responses 413 and 429.
    """

    def __init__(
        self,
        app: Application,
        max_bytes: int,
        elsewhere: Mapping[str, int] | None = None,
        refusal: bytes = SENTENCE,
        busy: bytes = BUSY,
    ) -> None:
        self.app = app
        self.refusal = refusal
        self.busy = busy
        self.max_bytes = max_bytes
        self.elsewhere = elsewhere or {}
        self.largest = max(max_bytes, *self.elsewhere.values(), MIN_SHARE)
        self._unfinished: Counter[str] = Counter()
        self._held: Counter[str] = Counter()
        self._num_held = 0
        self._trim: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not has_body(scope):
            await self.app(scope, receive, send)
            return
        max_bytes = self.elsewhere.get(scope["path"].rstrip("/"), self.max_bytes)
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > max_bytes:
            await _drain(receive)
            await _answer(send, 413, self.refusal)
            return
        address = address_of(scope.get("client"))
        if self._unfinished[address] >= MAX_UNFINISHED:
            await _answer(send, 429, self.busy)
            return
        self._unfinished[address] += 1
        num_bytes, is_refused, is_unfinished = 0, False, True

        def finish() -> None:
            nonlocal is_unfinished
            if is_unfinished:
                is_unfinished = False
                self._unfinished -= Counter([address])

        async def counted() -> Message:
            nonlocal num_bytes, is_refused
            message = await receive()
            size = len(message.get("body", b""))
            num_bytes += size
            self._held[address] += size
            self._num_held += size
            is_more = message.get("more_body", False)
            if not is_more:
                finish()
            if is_refused:
                return {"type": "http.disconnect"}
            if num_bytes > max_bytes:
                is_refused = True
                if is_more:
                    await _drain(receive)
                await _answer(send, 413, self.refusal)
                return {"type": "http.disconnect"}
            if self._held[address] > SHARE * self.largest or self._num_held > WHOLE * self.largest:
                is_refused = True
                await _answer(send, 429, self.busy)
                return {"type": "http.disconnect"}
            return message

        async def unless_refused(message: Message) -> None:
            if not is_refused:
                await send(message)

        try:
            await self.app(scope, counted, unless_refused)
        finally:
            finish()
            self._num_held -= num_bytes
            self._held -= Counter({address: num_bytes})
            if num_bytes > LARGE and self._trim is None:
                self._trim = asyncio.get_running_loop().call_later(TRIM_SECONDS, self._return)

    def _return(self) -> None:
        """Return freed memory to the system; otherwise the allocator would keep it."""
        self._trim = None
        asyncio.get_running_loop().run_in_executor(None, return_freed_memory)


def has_body(scope: Message) -> bool:
    names = {name for name, _ in scope["headers"]}
    return b"content-length" in names or b"transfer-encoding" in names


async def _drain(receive: Receive) -> None:
    """Read and drop the rest of a body.

    A client that is still sending its body would not read the response.
    """
    num_bytes, is_more = 0, True
    while is_more and num_bytes < MAX_DRAINED:
        message = await receive()
        num_bytes += len(message.get("body", b""))
        is_more = message.get("more_body", False)


async def _answer(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    if status == 429:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Proxies:
    """ASGI middleware that sets the client address of requests that come through trusted proxies.

    number: how many trusted proxies there are, one behind the other. Each appends the address of
    its own client to ``X-Forwarded-For``, so the ``number``-th value from the right is the client.
    Values further left can be forged. Without proxies, or if the header has fewer values, the
    address of the connection is used.
    """

    def __init__(self, app: Application, number: int) -> None:
        self._app = app
        self._number = number

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if self._number and scope["type"] == "http":
            values = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
            addresses = b",".join(values).decode("latin-1").split(",")
            is_complete = len(addresses) >= self._number
            if is_complete and (address := _without_port(addresses[-self._number])):
                scope = {**scope, "client": (address, 0)}
        await self._app(scope, receive, send)


class RateLimit:
    """ASGI middleware that limits the number of POST requests in progress per address.

    most: the limit; 0 for none. refusal: the response to a request above the limit.

    A request counts from the time when its body is complete. It counts several times if it reserved
    additional runs (RESERVE_RUNS).
    """

    def __init__(self, app: Application, most: int, refusal: Application) -> None:
        self._app = app
        self._most = most
        self._refusal = refusal
        self._num_running: Counter[str] = Counter()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if not self._most or scope["type"] != "http" or scope["method"] != "POST":
            await self._app({**scope, RESERVE_RUNS: lambda number: number}, receive, send)
            return
        body = await whole_body(receive)
        if body is None:
            return
        address = address_of(scope.get("client"))
        if self._num_running[address] >= self._most:
            await self._refusal(scope, receive, send)
            return
        num_runs = 1
        self._num_running[address] += 1

        def reserve(number: int) -> int:
            nonlocal num_runs
            num_reserved = min(number, self._most - self._num_running[address])
            self._num_running[address] += num_reserved
            num_runs += num_reserved
            return num_reserved

        try:
            scope = {**scope, RESERVE_RUNS: reserve}
            await self._app(scope, replayed(body, receive), send)
        finally:
            self._num_running -= Counter({address: num_runs})


class SlidingWindow:
    """Limits events to ``most`` per address within the last ``seconds``. Thread-safe."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._lock = threading.Lock()
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def admits(self, address: str) -> bool:
        """Count an event and return True, or return False if the address is at the limit."""
        now = time.monotonic()
        with self._lock:
            while self._times and now - next(iter(self._times.values()))[-1] > self._seconds:
                self._times.popitem(last=False)
            times = self._times.setdefault(address, deque())
            while times and now - times[0] > self._seconds:
                times.popleft()
            if len(times) >= self._most:
                return False
            times.append(now)
            self._times.move_to_end(address)
            return True


class BlockedError(Exception):
    """The address is blocked because it sent too many wrong keys.

    seconds: time until the block ends.
    """

    def __init__(self, seconds: int) -> None:
        super().__init__(f"Too many wrong keys came from your address. Wait {seconds} seconds.")
        self.seconds = seconds


@dataclass(slots=True)
class _Wrong:
    """The wrong keys received from one address. Times are those of the monotonic clock.

    since: start of the current count. count: number of wrong keys since then. num_blocks: how often
    the address was blocked. until: end of the latest block.
    """

    since: float
    count: int = 0
    num_blocks: int = 0
    until: float = 0.0


class KeyCheck:
    """Checks clients' keys in constant time; blocks addresses that send MAX_WRONG wrong keys."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self._lock = threading.Lock()
        self._wrong: OrderedDict[str, _Wrong] = OrderedDict()

    def is_right(self, value: str, address: str) -> bool:
        """Return whether a header's value is the key. Raises BlockedError.

        The value may be percent-encoded, because browsers send only ASCII in headers.
        """
        now = time.monotonic()
        with self._lock:
            record = self._wrong.get(address)
            if record and now < record.until:
                raise BlockedError(max(1, math.ceil(record.until - now)))
            sent = value.encode("latin-1", "replace")
            matches = [
                hmac.compare_digest(candidate, self._key)
                for candidate in (sent, unquote_to_bytes(sent))
            ]
            if self._key and any(matches):
                return True
            self._count(address, now)
            return False

    def _count(self, address: str, now: float) -> None:
        record = self._wrong.pop(address, None)
        if record is None or now - max(record.since, record.until) > MAX_BLOCKED_SECONDS:
            record = _Wrong(now)
        if now - record.since > BLOCKED_SECONDS:
            record.since, record.count = now, 0
        record.count += 1
        if record.count >= MAX_WRONG:
            record.until = now + min(MAX_BLOCKED_SECONDS, BLOCKED_SECONDS * 2**record.num_blocks)
            record.num_blocks, record.since, record.count = record.num_blocks + 1, record.until, 0
        self._wrong[address] = record
        while len(self._wrong) > MAX_REMEMBERED:
            self._wrong.popitem(last=False)


def weak_key(name: str, key: str) -> str:
    """Return an error message if ``key`` is too short, else an empty string.

    name: the environment variable or option that contains the key.
    """
    if not key or len(key) >= MIN_KEY:
        return ""
    return f"{name} must have at least {MIN_KEY} characters, got {len(key)}."


def address_of(client: Any) -> str:
    """Return the address under which a client's requests are counted.

    client: (host, port) of an ASGI scope or of Gradio. All clients without an address, as over a
    Unix socket, are counted as one. An IPv6 address is replaced by its /64 network, which usually
    belongs to one client.
    """
    return _network(str(client[0])) if client else NO_ADDRESS


@lru_cache(4096)
def _network(text: str) -> str:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))


def _without_port(text: str) -> str:
    """Remove the port that some proxies add to an address in ``X-Forwarded-For``."""
    text = text.strip()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text


def is_json(scope: Message) -> bool:
    """Return whether the request's content type is JSON, with any charset."""
    kind: bytes = dict(scope["headers"]).get(b"content-type", b"")
    return kind.partition(b";")[0].strip().lower() == b"application/json"


async def whole_body(receive: Receive) -> bytes | None:
    """Return the complete body of a request, or None if the client disconnects."""
    parts, is_more = [], True
    while is_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        is_more = message.get("more_body", False)
    return b"".join(parts)


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return an ASGI ``receive`` that returns ``body`` first, then the messages of ``receive``."""
    is_sent = False

    async def again() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
