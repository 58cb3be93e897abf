"""Options of ``serve``, and the HTTP server of a standalone endpoint.

At shutdown every stream ends with an error message. Every request and every answer has a time
limit. Nothing heavier than uvicorn is imported before a model is loaded.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import socket
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from mars_runtime.serving.addresses import ORIGINS, LocalNames, OriginsError, read_origins
from mars_runtime.serving.limits import Application, Message, Receive, Send, address_of, weak_key

if TYPE_CHECKING:
    from mars_runtime.serving.metrics import Metrics
    from mars_runtime.serving.models import EngineModel

GRACE_SECONDS = 10  # for answers in progress at shutdown
HEAD_SECONDS = BODY_SECONDS = 10.0
"""Time limits: for all headers, from their first byte or from the connection; and for a body."""
BODY_RATE = 50_000  # received bytes that extend the body's limit by a second
MAX_BODY_SECONDS = 180.0  # for a body of any size
LATE = b'{"detail":"The request did not come to its end in time: send it again."}'
DRAIN_SECONDS = 30.0
DRAINED = 16_000  # bytes of an answer that a client must read in DRAIN_SECONDS
PAUSED_SECONDS = 1.0
"""A timer that is later than this was delayed by a pause of the process (SIGSTOP, a frozen
container).
"""
PIECE = 65_536  # bytes of an answer buffered for one client
MAX_CONNECTIONS = 800  # in total; below 1,024, a common limit of open files
MAX_OF_ADDRESS = 200
"""Connections per address. Applies only without a trusted proxy: all connections through a proxy
have its address.
"""
HEADERS = (("x-content-type-options", "nosniff"), ("referrer-policy", "same-origin"))
"""Headers of every answer."""
CROWDED = b'{"detail":"Too many connections are open: close some and try again."}'
KEY = "MARS_API_KEY"
"""Environment variable with the key that clients must send; without it no key is required."""
PROXIES = "MARS_NUM_PROXIES"
"""Environment variable with the number of trusted proxies in front of the server."""


class PlanError(ValueError):
    """An invalid option; the message is one sentence."""


def num_proxies() -> int:
    """Return the number of trusted proxies (``limits.Proxies``). Raises PlanError."""
    text = os.environ.get(PROXIES, "").strip() or "0"
    if not re.fullmatch(r"[0-9]{1,3}", text):
        raise PlanError(f"{PROXIES} must be a whole number, such as 1.")
    return int(text)


def allowed_origins() -> tuple[str, ...]:
    """Return the origins that may call the endpoint. Raises PlanError."""
    try:
        return read_origins(os.environ.get(ORIGINS, ""))
    except OriginsError as error:
        raise PlanError(str(error)) from None


def api_key() -> str:
    """Return the key that clients must send, without a trailing line break; empty for none. Raises
    PlanError for a key that is easy to guess.
    """
    key = os.environ.get(KEY, "").strip()
    if fault := weak_key(KEY, key):
        raise PlanError(fault)
    return key


@dataclass(frozen=True, slots=True)
class ServePlan:
    """Options of an endpoint. Raises PlanError for invalid ones.

    max_runs, max_waiting: requests served at once and queued, per replica. threads: compute threads
    of a replica, and the cores reserved for it. min_replicas, max_replicas: bounds of the
    autoscaling.
    """

    checkpoint: str
    device: str = "auto"
    dtype: str = "auto"
    max_runs: int = 8
    max_waiting: int = 32
    threads: int = 1
    min_replicas: int = 1
    max_replicas: int = 2

    def __post_init__(self) -> None:
        if self.max_runs < 1 or self.max_waiting < 0:
            raise PlanError(
                f"--max-runs must be at least 1 and --max-waiting at least 0, got {self.max_runs} "
                f"and {self.max_waiting}."
            )
        if self.threads < 1:
            raise PlanError(f"--threads must be at least 1, got {self.threads}.")
        if not 1 <= self.min_replicas <= self.max_replicas:
            raise PlanError(
                "--min-replicas must be at least 1 and at most --max-replicas, got "
                f"{self.min_replicas} and {self.max_replicas}."
            )

    @classmethod
    def of(cls, args: argparse.Namespace) -> ServePlan:
        """Build the options from flags of the same names. Raises PlanError."""
        return cls(**{field.name: getattr(args, field.name) for field in fields(cls)})


def bring(plan: ServePlan, metrics: Metrics | None = None) -> EngineModel:
    """Load the checkpoint and start its engine; register it with ``metrics`` if given. Raises
    CheckpointError.
    """
    from mars_runtime.model.config import memory_for

    with memory_for(plan.checkpoint):  # importing torch takes memory too
        from mars_runtime.engine.engine import Engine
        from mars_runtime.model.load import load_checkpoint
        from mars_runtime.serving.models import EngineModel

        checkpoint = load_checkpoint(plan.checkpoint, device=plan.device, dtype=plan.dtype)
        engine = Engine(checkpoint, max_runs=plan.max_runs, max_waiting=plan.max_waiting)
    if metrics is not None:
        metrics.watch(checkpoint.name, engine)
    return EngineModel.of(checkpoint, engine)


class PlaceTakenError(OSError):
    """A host and port that cannot be bound; the message is one sentence."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            f"The address {authority(host, port)} is in use or does not belong to this machine. "
            "Choose another --port (0 picks a free one) or --host."
        )


def bound(host: str, port: int) -> socket.socket:
    """Return a socket bound to a name or an address, IPv6 ones with or without brackets.

    Port 0 takes any free port. Raises PlaceTakenError. A name with addresses of both kinds is bound
    to its IPv4 address; ``::`` also accepts IPv4 connections if the system supports it.

    Accepted connections send each write at once (TCP_NODELAY). asyncio sets that option only on
    sockets that it opens itself; without it a small answer waits some 40 ms for the client to
    acknowledge the header.
    """
    try:
        # The port is set afterwards: getaddrinfo reads 99999 as 34463.
        family, *_, (address, _, *scope) = min(
            socket.getaddrinfo(
                host.strip("[]") or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            ),
            key=lambda info: info[0] != socket.AF_INET,
        )
        is_dual = address == "::" and socket.has_dualstack_ipv6()
        place = (address, port, *scope)
        made = socket.create_server(place, family=family, backlog=512, dualstack_ipv6=is_dual)
    except (OSError, OverflowError, ValueError):  # ValueError: not a valid name
        raise PlaceTakenError(host, port) from None
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def authority(host: str, port: int) -> str:
    """Return ``host:port`` as in a URL, with brackets around an IPv6 address."""
    host = host.strip("[]")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def url_of(host: str, port: int) -> str:
    """Return the URL at which clients on this machine reach a server bound to ``host``."""
    loopback = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
    host = host.strip("[]")
    return f"http://{authority(loopback.get(host, host), port)}"


class PunctualProtocol(H11Protocol):
    """uvicorn's HTTP protocol with limits of time and number.

    A request that arrives too slowly gets 408, a connection above the limit gets 503, and a client
    that does not read its answer is disconnected. Computing an answer has no limit here.
    """

    _opened = 0.0
    _drain_timer: asyncio.TimerHandle | None = None
    _num_undelivered = 0
    _timer: asyncio.TimerHandle | None = None
    _awaited: tuple[object, ...] = ()
    _since = 0.0  # when the awaited part began
    _num_received = _chunk = 0  # bytes since then, and of the latest read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the headers, or reject the connection with 503."""
        super().connection_made(transport)
        self._opened = self.loop.time()
        transport.set_write_buffer_limits(high=0)  # pause_writing at any undelivered byte
        if self._is_crowded():
            self._send_whole(503, "Service Unavailable", CROWDED)
            transport.close()
            return
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Count the bytes, parse them and update the timer."""
        self._chunk = len(data)
        self._num_received += len(data)
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Continue with the next request on this connection."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        super().connection_lost(exc)
        self._disarm()
        self._end_drain()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection. After a pause of the process it waits once more, because timers
        run before a request that arrived during the pause is read.
        """
        if _was_paused(self.timeout_keep_alive_task, self.loop.time()):
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        else:
            super().timeout_keep_alive_handler()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand over the connection to the WebSocket protocol; its request is complete."""
        self._disarm()
        self._end_drain()
        super().handle_websocket_upgrade(event)

    def pause_writing(self) -> None:
        """Start the timer for the client to read."""
        super().pause_writing()
        self._end_drain()
        self._num_undelivered = self.transport.get_write_buffer_size()
        self._drain_timer = self.loop.call_later(DRAIN_SECONDS, self._check_drain)

    def resume_writing(self) -> None:
        """Stop the timer: the client has read everything."""
        super().resume_writing()
        self._end_drain()

    def _check_drain(self) -> None:
        """Disconnect a client that reads its answer too slowly."""
        before, self._num_undelivered = (
            self._num_undelivered,
            self.transport.get_write_buffer_size(),
        )
        is_paused = _was_paused(self._drain_timer, self.loop.time())
        if before - self._num_undelivered < DRAINED and not is_paused:
            self.transport.abort()
        else:
            self._drain_timer = self.loop.call_later(DRAIN_SECONDS, self._check_drain)

    def _end_drain(self) -> None:
        if self._drain_timer is not None:
            self._drain_timer.cancel()

    def _is_crowded(self) -> bool:
        """Whether there are too many connections, in total or from this address.

        On a full server, an address with fewer connections replaces one of the address with the
        most.
        """
        by_address: defaultdict[str, list[PunctualProtocol]] = defaultdict(list)
        for connection in self.connections:
            if isinstance(connection, PunctualProtocol):
                by_address[address_of(connection.client)].append(connection)
        of_address = by_address[address_of(self.client)]
        is_proxied = isinstance(self.config, Config) and self.config.is_proxied
        if self.client is not None and not is_proxied and len(of_address) > MAX_OF_ADDRESS:
            return True
        if len(self.connections) <= MAX_CONNECTIONS:
            return False
        most = max(by_address.values(), key=len)
        if len(most) <= len(of_address):
            return True
        oldest = min(most, key=lambda connection: (connection._is_answering, connection._opened))
        oldest.transport.abort()
        self.connections.discard(oldest)
        return False

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _send_whole(self, status: int, reason: str, body: bytes) -> None:
        """Write a response that does not come from the app."""
        headers = [("content-type", "application/json"), ("connection", "close"), *HEADERS]
        head = h11.Response(status_code=status, headers=headers, reason=reason.encode())
        events = (head, h11.Data(data=body), h11.EndOfMessage())
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))

    def _watch(self) -> None:
        """Restart the timer when the connection begins to wait for a different part of a
        request.
        """
        part = self.conn.their_state
        is_idle = part is h11.IDLE and self.timeout_keep_alive_task is not None
        awaited = (part, is_idle, self.cycle)
        if awaited == self._awaited:
            return
        self._disarm()
        self._awaited = awaited
        if part in (h11.IDLE, h11.SEND_BODY) and not is_idle and not self.transport.is_closing():
            self._since, self._num_received = self.loop.time(), self._chunk
            is_body = part is h11.SEND_BODY
            seconds = BODY_SECONDS if is_body else HEAD_SECONDS
            self._timer = self.loop.call_later(seconds, self._late, is_body)

    def _late(self, is_body: bool) -> None:
        """End a request that is over its time limit. Received bytes of a body extend it, and a
        pause of the process does not count.
        """
        now = self.loop.time()
        if _was_paused(self._timer, now):
            self._since = now
        seconds = body_seconds(self._num_received) if is_body else HEAD_SECONDS
        left = self._since + seconds - now
        if left > 0:
            self._timer = self.loop.call_later(left, self._late, is_body)
        else:
            self._end()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _end(self) -> None:
        """Close the connection, with 408 if a request has begun and has no answer yet."""
        state = self.conn.our_state
        if state is h11.SEND_RESPONSE or (state is h11.IDLE and self.conn.trailing_data[0]):
            self._send_whole(408, "Request Timeout", LATE)
            if self.cycle is not None:
                self.cycle.disconnected = True
        self.transport.close()


def _was_paused(timer: asyncio.TimerHandle | None, now: float) -> bool:
    """Whether the process was paused until after this timer was due."""
    return timer is not None and now - timer.when() > PAUSED_SECONDS


def body_seconds(num_received: int) -> float:
    """Return the time limit in seconds of a body of which ``num_received`` bytes have arrived. A
    large declared length does not extend it.
    """
    return min(MAX_BODY_SECONDS, BODY_SECONDS + num_received / BODY_RATE)


class InPieces:
    """ASGI middleware: send an answer in pieces, each after the client has read the one before.

    Otherwise uvicorn copies the whole answer into its buffer for every client.
    """

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass the request on and send its answer in pieces."""

        async def send_pieces(message: Message) -> None:
            body = message.get("body", b"")
            if message["type"] != "http.response.body" or len(body) <= PIECE:
                await send(message)
                return
            for start in range(0, len(body), PIECE):
                is_more = start + PIECE < len(body) or message.get("more_body", False)
                await send({**message, "body": body[start : start + PIECE], "more_body": is_more})

        await self._app(scope, receive, send_pieces)


class Config(uvicorn.Config):
    """uvicorn's configuration for the endpoint and the page.

    uvicorn's own handling of proxy headers is off; ``limits.Proxies`` replaces it. is_proxied:
    whether clients come through trusted proxies.
    """

    def __init__(self, app: ASGIApp, is_proxied: bool = False, **rest: Any) -> None:
        in_pieces = InPieces(app if is_proxied else LocalNames(app))
        super().__init__(
            in_pieces, http=PunctualProtocol, proxy_headers=False, headers=[*HEADERS], **rest
        )
        self.is_proxied = is_proxied


class Server(uvicorn.Server):
    """Serves ``app`` until SIGTERM, SIGINT or ``leave``.

    close: ends every run, so their streams end; uvicorn waits for that at shutdown.
    """

    def __init__(self, app: ASGIApp, close: Callable[[], None], is_proxied: bool = False) -> None:
        config = Config(
            app,
            is_proxied=is_proxied,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        super().__init__(config)
        self._close = close

    def leave(self) -> None:
        """Shut down, as after a signal. Can be called from any thread."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the runs so that streams end with an error message, then close the server."""
        await asyncio.to_thread(self._close)
        await super().shutdown(sockets)
