"""The options of ``serve``, and the HTTP server of the endpoint and the page.

At shutdown, streams end with an error message. There are time limits for receiving a request and
for sending an answer. Heavy packages such as torch are imported only when a model is loaded.
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

GRACE_SECONDS = 10  # at shutdown, seconds for answers in progress to end
HEAD_SECONDS = BODY_SECONDS = 10.0
"""Time limits for receiving the headers and for receiving a body. The limit for the headers begins
with the connection or, for later requests, with their first byte."""
BODY_RATE = 50_000  # received bytes that extend the time limit for a body by one second
MAX_BODY_SECONDS = 180.0  # maximum time limit for a body
LATE = b'{"detail":"The request was not complete in time: send it again."}'
DRAIN_SECONDS = 30.0
DRAINED = 16_000  # number of bytes that a client must read of an answer within DRAIN_SECONDS
PAUSED_SECONDS = 1.0
"""If a timer runs this many seconds late, the process was paused (SIGSTOP, a frozen container)."""
PIECE = 65_536  # number of bytes of an answer that are buffered for a client
MAX_CONNECTIONS = 800  # total; less than 1,024, a common limit for open files
MAX_OF_ADDRESS = 200
"""Maximum number of connections per address. Not applied behind a trusted proxy, because all
connections then have the proxy's address.
"""
HEADERS = (("x-content-type-options", "nosniff"), ("referrer-policy", "same-origin"))
"""HTTP headers that every response contains."""
CROWDED = b'{"detail":"Too many connections are open: close some and try again."}'
KEY = "MARS_API_KEY"
"""Environment variable with the key that clients must send. If it is not set, no key is needed."""
PROXIES = "MARS_NUM_PROXIES"
"""Environment variable with the number of trusted proxies in front of the server."""


class PlanError(ValueError):
    """An option or environment variable is invalid. The message is one sentence."""


def num_proxies() -> int:
    """Return the number of trusted proxies in front of the server. Raises PlanError."""
    text = os.environ.get(PROXIES, "").strip() or "0"
    if not re.fullmatch(r"[0-9]{1,3}", text):
        raise PlanError(f"{PROXIES} must be a whole number from 0 to 999, got {text!r}.")
    return int(text)


def allowed_origins() -> tuple[str, ...]:
    """Return the origins that may call the endpoint. Raises PlanError."""
    try:
        return read_origins(os.environ.get(ORIGINS, ""))
    except OriginsError as error:
        raise PlanError(str(error)) from None


def api_key() -> str:
    """Return the key that clients must send, or an empty string if none is needed.

    Raises PlanError for a key that is too short.
    """
    key = os.environ.get(KEY, "").strip()
    if fault := weak_key(KEY, key):
        raise PlanError(fault)
    return key


@dataclass(frozen=True, slots=True)
class ServePlan:
    """The options of an endpoint. Raises PlanError for invalid ones.

    max_runs: maximum number of requests that a replica decodes at the same time.
    max_waiting: maximum number of requests in the queue of a replica.
    busy_tau: the lowest limit of tau while requests wait; None to keep the settings of requests.
    threads: number of compute threads of a replica, and of cores reserved for it.
    min_replicas, max_replicas: minimum and maximum number of replicas with autoscaling.
    """

    checkpoint: str
    device: str = "auto"
    dtype: str = "auto"
    max_runs: int = 8
    max_waiting: int = 32
    busy_tau: float | None = None
    threads: int = 1
    min_replicas: int = 1
    max_replicas: int = 2

    def __post_init__(self) -> None:
        if self.max_runs < 1 or self.max_waiting < 0:
            raise PlanError(
                f"--max-runs must be at least 1 and --max-waiting at least 0, got {self.max_runs} "
                f"and {self.max_waiting}."
            )
        if self.busy_tau is not None and not 0 <= self.busy_tau <= 1:
            raise PlanError(f"--busy-tau must be between 0 and 1, got {self.busy_tau:g}.")
        if self.threads < 1:
            raise PlanError(f"--threads must be at least 1, got {self.threads}.")
        if not 1 <= self.min_replicas <= self.max_replicas:
            raise PlanError(
                "--min-replicas must be at least 1 and at most --max-replicas, got "
                f"{self.min_replicas} and {self.max_replicas}."
            )

    @classmethod
    def of(cls, args: argparse.Namespace) -> ServePlan:
        """Build the options from the command's flags, which have the same names."""
        return cls(**{field.name: getattr(args, field.name) for field in fields(cls)})


def bring(plan: ServePlan, metrics: Metrics | None = None) -> EngineModel:
    """Load the checkpoint and start its engine. Raises CheckpointError.

    metrics: counts the runs of the engine; None to count nothing.
    """
    from mars_runtime.model.config import memory_for

    with memory_for(plan.checkpoint):  # importing torch takes memory too
        from mars_runtime.engine.busy import BusyRule
        from mars_runtime.engine.engine import Engine
        from mars_runtime.model.load import load_checkpoint
        from mars_runtime.serving.models import EngineModel

        checkpoint = load_checkpoint(plan.checkpoint, device=plan.device, dtype=plan.dtype)
        busy = None if plan.busy_tau is None else BusyRule(plan.busy_tau, checkpoint.block_size)
        engine = Engine(checkpoint, plan.max_runs, plan.max_waiting, busy=busy)
    if metrics is not None:
        metrics.watch(checkpoint.name, engine)
    return EngineModel.of(checkpoint, engine)


class AddressInUseError(OSError):
    """The server cannot bind a host and port. The message is one sentence."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            f"The address {authority(host, port)} is in use or does not belong to this machine. "
            "Choose another --port (0 picks a free one) or --host."
        )


def bound(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises AddressInUseError.

    host: a name or an address, for IPv6 with or without brackets. A name with IPv4 and IPv6
    addresses is bound to its IPv4 address. ``::`` also accepts IPv4 connections if the system
    supports it. port: 0 for any free port.

    TCP_NODELAY is set, so that accepted connections send each write immediately. asyncio sets this
    option only on sockets that it opens itself. Without it, a small answer is delayed by about 40
    ms, until the client has acknowledged the header.
    """
    try:
        # getaddrinfo is called without the port, because it would convert 99999 to 34463.
        family, *_, (address, _, *scope) = min(
            socket.getaddrinfo(
                host.strip("[]") or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            ),
            key=lambda info: info[0] != socket.AF_INET,
        )
        is_dual = address == "::" and socket.has_dualstack_ipv6()
        listener = socket.create_server(
            (address, port, *scope), family=family, backlog=512, dualstack_ipv6=is_dual
        )
    except (OSError, OverflowError, ValueError):  # ValueError: the host is not a valid name
        raise AddressInUseError(host, port) from None
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def authority(host: str, port: int) -> str:
    """Return ``host:port`` for a URL, with brackets around an IPv6 address."""
    host = host.strip("[]")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def url_of(host: str, port: int) -> str:
    """Return the URL by which clients on this machine reach a server that is bound to ``host``."""
    loopback = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
    host = host.strip("[]")
    return f"http://{authority(loopback.get(host, host), port)}"


class PunctualProtocol(H11Protocol):
    """uvicorn's HTTP protocol with limits for time and for the number of connections.

    A request that arrives too slowly is answered with 408, a connection above the limit with 503. A
    client that does not read its answer is disconnected. The time for computing an answer is not
    limited here.
    """

    _opened = 0.0
    _drain_timer: asyncio.TimerHandle | None = None
    _num_undelivered = 0
    _timer: asyncio.TimerHandle | None = None
    _awaited: tuple[object, ...] = ()
    _since = 0.0  # when waiting for the headers or the body began
    _num_received = _chunk = 0  # bytes received since then, and in the latest read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the headers, or reject the connection with 503."""
        super().connection_made(transport)
        self._opened = self.loop.time()
        # With this limit, pause_writing is called as soon as a byte cannot be sent.
        transport.set_write_buffer_limits(high=0)
        if self._is_crowded():
            self._send_whole(503, "Service Unavailable", CROWDED)
            transport.close()
            return
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._chunk = len(data)
        self._num_received += len(data)
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request on this connection."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._disarm()
        self._end_drain()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection.

        If the process was paused, the timer is restarted instead. A request may have arrived during
        the pause, and timers run before it is read.
        """
        if _was_paused(self.timeout_keep_alive_task, self.loop.time()):
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        else:
            super().timeout_keep_alive_handler()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Stop the timers and leave the connection to the WebSocket protocol."""
        self._disarm()
        self._end_drain()
        super().handle_websocket_upgrade(event)

    def pause_writing(self) -> None:
        """Start the timer for a client that does not read its answer."""
        super().pause_writing()
        self._end_drain()
        self._num_undelivered = self.transport.get_write_buffer_size()
        self._drain_timer = self.loop.call_later(DRAIN_SECONDS, self._check_drain)

    def resume_writing(self) -> None:
        """Stop the timer, because the client has read everything."""
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
        """Return whether to reject this connection, because there are too many.

        If the server is full and another address has more connections than this one, one of the
        other address's connections is closed instead.
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
        """Write a complete response without involving the app."""
        headers = [("content-type", "application/json"), ("connection", "close"), *HEADERS]
        head = h11.Response(status_code=status, headers=headers, reason=reason.encode())
        events = (head, h11.Data(data=body), h11.EndOfMessage())
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))

    def _watch(self) -> None:
        """Restart the timer if the server now waits for another part of a request."""
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
        """End a request if its time limit is over, or restart the timer if time is left.

        Received bytes extend the limit for a body. A pause of the process does not count.
        """
        now = self.loop.time()
        if _was_paused(self._timer, now):
            self._since = now
        seconds = body_seconds(self._num_received) if is_body else HEAD_SECONDS
        remaining = self._since + seconds - now
        if remaining > 0:
            self._timer = self.loop.call_later(remaining, self._late, is_body)
        else:
            self._end()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _end(self) -> None:
        """Close the connection; first answer with 408 if a request has begun."""
        state = self.conn.our_state
        if state is h11.SEND_RESPONSE or (state is h11.IDLE and self.conn.trailing_data[0]):
            self._send_whole(408, "Request Timeout", LATE)
            if self.cycle is not None:
                self.cycle.disconnected = True
        self.transport.close()


def _was_paused(timer: asyncio.TimerHandle | None, now: float) -> bool:
    """Return whether a pause of the process delayed this timer."""
    return timer is not None and now - timer.when() > PAUSED_SECONDS


def body_seconds(num_received: int) -> float:
    """Return the time limit in seconds for a body of which ``num_received`` bytes have arrived.

    The declared length of the body does not affect the limit.
    """
    return min(MAX_BODY_SECONDS, BODY_SECONDS + num_received / BODY_RATE)


class InPieces:
    """ASGI middleware that sends a large answer in pieces.

    Each piece is sent when the client has read the previous one. Without this, uvicorn would buffer
    the whole answer for every client.
    """

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
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

    is_proxied: whether clients connect through trusted proxies. options: further options of
    uvicorn. uvicorn's handling of proxy headers is switched off; ``limits.Proxies`` replaces it.
    """

    def __init__(self, app: ASGIApp, is_proxied: bool = False, **options: Any) -> None:
        in_pieces = InPieces(app if is_proxied else LocalNames(app))
        super().__init__(
            in_pieces, http=PunctualProtocol, proxy_headers=False, headers=[*HEADERS], **options
        )
        self.is_proxied = is_proxied


class Server(uvicorn.Server):
    """Serves an app until SIGTERM, SIGINT or a call of ``leave``.

    close: ends all runs. It is called at shutdown, because uvicorn waits until all streams end.
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
        """Shut down in the same way as after SIGTERM. Thread-safe."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End all runs, so that their streams end with an error message, then close the server."""
        await asyncio.to_thread(self._close)
        await super().shutdown(sockets)
