"""Serves the endpoint alone, until it is told to end: then every stream ends with a sentence.

Knows uvicorn; no model.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

GRACE_SECONDS = 10  # for answers that are on their way when the server ends


class PlaceTakenError(OSError):
    """Nothing can be served at a host and port; the message is one sentence."""


def bound(host: str, port: int) -> socket.socket:
    """A socket at the address; port 0 takes any that is free. Raises PlaceTakenError."""
    try:
        return socket.create_server((host, port), family=_family(host), backlog=512)
    except (OSError, OverflowError):
        raise PlaceTakenError(
            f"Nothing can be served at {host}:{port}, which is taken or not of this machine: "
            "choose another --port (0 takes any that is free) or --host."
        ) from None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class Server(uvicorn.Server):
    """Serves ``app`` until SIGTERM, SIGINT or ``leave``. close: ends every run; uvicorn waits for
    streams to end, which they would not do by themselves."""

    def __init__(self, app: ASGIApp, close: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=GRACE_SECONDS
        )
        super().__init__(config)
        self._close = close

    def leave(self) -> None:
        """End as if told by a signal; from any thread."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let streams end with a sentence, then close everything."""
        await asyncio.to_thread(self._close)
        await super().shutdown(sockets)
