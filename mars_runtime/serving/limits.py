"""Limits per client address, and the address of a client behind proxies."""

from __future__ import annotations

import hmac
import ipaddress
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mars_runtime.serving.errors import ApiError

NO_ADDRESS = "nobody"
TOO_LARGE = "The request is too large. Shorten the prompt."
BUSY = "Too many requests from your address are being sent. Wait for one to end."
LATE = "The request was not complete in time. Send it again."
NO_KEY = "The API key is missing or wrong. Send it as a bearer token."
WRONG_KEYS = "Too many wrong keys came from your address. Wait a minute."
MAX_BODIES = 16  # maximum number of bodies that an address may be sending at a time
# Maximum size of all bodies in memory, of one address and of all, in multiples of the largest
# allowed body or of MIN_SHARE bytes.
SHARE, WHOLE, MIN_SHARE = 2, 8, 4_000_000
MAX_DRAINED = 64_000_000  # maximum number of bytes of a rejected body that are read and dropped
BODY_SECONDS, MAX_BODY_SECONDS = 10.0, 180.0  # time limit for a body, and what it may grow to
BODY_RATE = 50_000  # received bytes that extend the time limit for a body by one second
MAX_WRONG, BLOCKED_SECONDS = 10, 60.0
_rejected = partial(ApiError, connection="close")


class AddressCounter:
    """Counts what is in progress: at most ``most`` of an address (0: any) and ``whole`` of all.

    elsewhere: counts what an address has in progress in another place.
    """

    def __init__(
        self,
        most: int,
        whole: int = sys.maxsize,
        elsewhere: Callable[[str], int] = lambda address: 0,
    ) -> None:
        self.most = most or sys.maxsize
        self._whole, self._elsewhere = whole, elsewhere
        self._taken: Counter[str] = Counter()

    def take(self, address: str, number: int = 1) -> int:
        own = self.most - self._taken[address] - self._elsewhere(address)
        taken = max(0, min(number, own, self._whole - self._taken.total()))
        self._taken[address] += taken
        return taken

    def release(self, address: str, number: int = 1) -> None:
        self._taken -= Counter({address: number})


class BodyLimit:
    """ASGI middleware that reads a body whole before it passes the request on. Raises ApiError.

    A body counts until its request is answered. elsewhere: limits in bytes, by path.
    """

    def __init__(
        self, app: ASGIApp, max_bytes: int, elsewhere: Mapping[str, int] | None = None
    ) -> None:
        self._app, self._max_bytes = app, max_bytes
        self._elsewhere = elsewhere or {}
        largest = max(max_bytes, *self._elsewhere.values(), MIN_SHARE)
        self._bodies = AddressCounter(MAX_BODIES)
        self._bytes = AddressCounter(SHARE * largest, WHOLE * largest)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_body = scope["type"] == "http" and any(
            name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"]
        )
        if not has_body:
            await self._app(scope, receive, send)
            return
        address = address_of(scope.get("client"))
        max_bytes = self._elsewhere.get(scope["path"].rstrip("/"), self._max_bytes)
        parts: list[bytes] = []
        try:
            await self._read(receive, address, max_bytes, parts)
            await self._app(scope, replayed(b"".join(parts), receive), send)
        finally:
            self._bytes.release(address, sum(map(len, parts)))

    async def _read(
        self, receive: Receive, address: str, max_bytes: int, parts: list[bytes]
    ) -> None:
        if not self._bodies.take(address):
            raise _rejected(429, BUSY, retry_after=1)
        num_bytes, latest = 0, anyio.current_time() + MAX_BODY_SECONDS
        try:
            with anyio.fail_after(BODY_SECONDS) as limit:
                is_more = True
                # The rest of a body that is too large is read and dropped, because a client that is
                # still sending would not read the response.
                while is_more and num_bytes < MAX_DRAINED:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    part = message.get("body", b"")
                    is_more = message.get("more_body", False)
                    num_bytes += len(part)
                    limit.deadline = min(latest, limit.deadline + len(part) / BODY_RATE)
                    if num_bytes <= max_bytes:
                        taken = self._bytes.take(address, len(part))
                        parts.append(part[:taken])
                        if taken < len(part):
                            raise _rejected(429, BUSY, retry_after=1)
        except TimeoutError:
            raise _rejected(408, LATE) from None
        finally:
            self._bodies.release(address)
        if num_bytes > max_bytes:
            raise _rejected(413, TOO_LARGE)


class Proxies:
    """ASGI middleware that sets the address of a client behind ``number`` trusted proxies.

    Each proxy appends the address of its own client to ``X-Forwarded-For``. Values further left
    than the ``number``-th from the right can be forged.
    """

    def __init__(self, app: ASGIApp, number: int) -> None:
        self._app, self._number = app, number

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._number and scope["type"] == "http":
            values = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
            addresses = b",".join(values).decode("latin-1").split(",")
            is_complete = len(addresses) >= self._number
            if is_complete and (address := _without_port(addresses[-self._number])):
                scope = {**scope, "client": (address, 0)}
        await self._app(scope, receive, send)


class KeyCheck:
    """Compares keys in constant time. After MAX_WRONG wrong keys in a period of BLOCKED_SECONDS, an
    address is rejected until the period ends, even with the right key.
    """

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self._until = 0.0  # end of the period
        self._wrong: Counter[str] = Counter()

    async def check(self, request: Request) -> None:
        if not self._key:
            return
        now, address = time.monotonic(), address_of(request.client)
        if now > self._until:
            self._until, self._wrong = now + BLOCKED_SECONDS, Counter()
        if self._wrong[address] >= MAX_WRONG:
            raise ApiError(429, WRONG_KEYS, retry_after=int(BLOCKED_SECONDS))
        scheme, _, sent = request.headers.get("authorization", "").strip().partition(" ")
        is_right = hmac.compare_digest(sent.strip().encode("latin-1"), self._key)
        if scheme.lower() != "bearer" or not is_right:
            self._wrong[address] += 1
            raise ApiError(401, NO_KEY)


def address_of(client: Any) -> str:
    """Return how a (host, port) is counted: by an IPv6 network, which usually is of one client."""
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
    text = text.strip()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text


def is_json(scope: Scope) -> bool:
    kind: bytes = dict(scope["headers"]).get(b"content-type", b"")
    return kind.partition(b";")[0].strip().lower() == b"application/json"


def replayed(body: bytes, receive: Receive) -> Receive:
    is_sent = False

    async def again() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
