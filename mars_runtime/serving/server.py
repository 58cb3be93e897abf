"""The options of ``serve``, and the HTTP server of the endpoint and the page."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import socket
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated

import uvicorn
from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError
from pydantic.dataclasses import dataclass
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from mars_runtime.files.json_values import fault_of
from mars_runtime.serving.limits import address_of

if TYPE_CHECKING:
    from mars_runtime.serving.metrics import Metrics
    from mars_runtime.serving.models import EngineModel

GRACE_SECONDS = 10  # for answers in progress to end at shutdown
HEAD_SECONDS = 10.0  # from the connection to the end of the first request's headers
PIECE = 65_536  # number of bytes of an answer that are buffered for a client
MAX_CONNECTIONS = 800  # total; less than 1,024, a common limit for open files
MAX_OF_ADDRESS = 200  # not applied behind a trusted proxy, whose address all connections have
HEADERS = (("x-content-type-options", "nosniff"), ("referrer-policy", "same-origin"))
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LOCAL_NAMES = ("localhost", "*.localhost", "127.0.0.1", "::1", "[::1]")
KEY = "MARS_API_KEY"
ORIGINS = "MARS_ALLOWED_ORIGINS"
PROXIES = "MARS_NUM_PROXIES"
"""Environment variables: the key that clients must send, the sites that may call the endpoint from
a browser, the number of trusted proxies in front of the server.
"""
MIN_KEY = 16
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[^\s/\[\]@?#:*,]+)(:[0-9]{1,5})?")


class PlanError(ValueError):
    """An invalid option or environment variable. The message is one sentence."""


def num_proxies() -> int:
    text = os.environ.get(PROXIES, "").strip() or "0"
    if not re.fullmatch(r"[0-9]{1,3}", text):
        raise PlanError(f"{PROXIES} must be a whole number from 0 to 999, got {text!r}.")
    return int(text)


def allowed_origins() -> tuple[str, ...]:
    return read_origins(os.environ.get(ORIGINS, ""))


def read_origins(text: str) -> tuple[str, ...]:
    """Parse origins that are separated by commas, in lower case as browsers send them.

    Raises PlanError.
    """
    origins = tuple(part for item in text.split(",") if (part := item.strip().lower()))
    if not all(origin == "*" or _ORIGIN.fullmatch(origin) for origin in origins):
        raise PlanError(
            f"{ORIGINS} must be * or origins such as https://example.org, separated by commas and "
            f"without a path, got {text!r}."
        )
    return origins


def api_key() -> str:
    """Return the key that clients must send; empty for none. Raises PlanError."""
    key = os.environ.get(KEY, "").strip()
    check_key(key)
    return key


def check_key(key: str) -> None:
    """Raise PlanError if the key is too short."""
    if 0 < len(key) < MIN_KEY:
        raise PlanError(f"{KEY} must have at least {MIN_KEY} characters, got {len(key)}.")


@dataclass(frozen=True, slots=True)
class ServePlan:
    """The options of ``serve`` or of a replica. busy_tau: lowest limit of tau while others wait."""

    checkpoint: str
    device: str = "auto"
    dtype: str = "auto"
    max_runs: PositiveInt = 8
    max_waiting: NonNegativeInt = 32
    busy_tau: Annotated[float, Field(ge=0, le=1)] | None = None
    threads: PositiveInt = 1
    min_replicas: PositiveInt = 1
    max_replicas: PositiveInt = 2

    @classmethod
    def of(cls, args: argparse.Namespace) -> ServePlan:
        try:
            return cls(**{entry.name: getattr(args, entry.name) for entry in fields(cls)})
        except ValidationError as error:
            name, sentence = fault_of(error)
            raise PlanError(sentence.replace(name, f"--{name.replace('_', '-')}")) from None


def bring(plan: ServePlan, metrics: Metrics | None = None) -> EngineModel:
    """Load the checkpoint and start its engine. Imports torch. Raises CheckpointError."""
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
    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            f"The address {authority(host, port)} is in use or does not belong to this machine. "
            "Choose another --port (0 picks a free one) or --host."
        )


def bound(host: str, port: int) -> socket.socket:
    """Return a listening socket: of a name at its IPv4 address, of ``::`` for IPv4 too.

    Raises AddressInUseError.
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
    # asyncio sets this only on sockets that it opens; without it small answers are 40 ms late.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def authority(host: str, port: int) -> str:
    host = host.strip("[]")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def url_of(host: str, port: int) -> str:
    """Return the URL by which this machine reaches a server that is bound to ``host``."""
    loopback = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
    host = host.strip("[]")
    return f"http://{authority(loopback.get(host, host), port)}"


class BoundedProtocol(H11Protocol):
    """Adds to uvicorn a time limit for the first headers of a connection, and a number of
    connections per address, above which a request gets uvicorn's 503.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = address_of(self.client)
        clients = (getattr(other, "client", None) for other in self.connections)
        if sum(address_of(client) == address for client in clients) > MAX_OF_ADDRESS:
            self.limit_concurrency = 0
        self.loop.call_later(HEAD_SECONDS, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if self.cycle is None:
            self.transport.close()


class InPieces:
    """ASGI middleware that sends a large answer as the client reads it. uvicorn would buffer it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_pieces(message: Message) -> None:
            body = message.get("body", b"")
            if message["type"] != "http.response.body" or len(body) <= PIECE:
                await send(message)
                return
            for start in range(0, len(body), PIECE):
                is_more = start + PIECE < len(body) or message.get("more_body", False)
                await send({**message, "body": body[start : start + PIECE], "more_body": is_more})

        await self._app(scope, receive, send_pieces)


class Server(uvicorn.Server):
    """Serves an app until SIGTERM, SIGINT or a call of ``leave``; at a loopback address only for
    names of this machine (DNS rebinding). close: ends all streams, for which uvicorn waits.
    """

    def __init__(
        self, app: ASGIApp, host: str, close: Callable[[], None], is_proxied: bool = False
    ) -> None:
        if host.strip("[]") in LOOPBACK and not is_proxied:
            app = TrustedHostMiddleware(app, LOCAL_NAMES, www_redirect=False)
        config = uvicorn.Config(
            InPieces(app),
            http="h11" if is_proxied else BoundedProtocol,
            proxy_headers=False,
            headers=[*HEADERS],
            limit_concurrency=MAX_CONNECTIONS,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        super().__init__(config)
        self._close = close

    def leave(self) -> None:
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await asyncio.to_thread(self._close)
        await super().shutdown(sockets)
