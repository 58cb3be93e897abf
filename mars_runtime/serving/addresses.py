"""ASGI middleware for paths with a trailing slash and for cross-origin requests (CORS)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

ORIGINS = "MARS_ALLOWED_ORIGINS"
"""Environment variable with the origins that may call the endpoint from a browser."""
METHODS = ("GET", "POST", "DELETE")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[^\s/\[\]@?#:*,]+)(:[0-9]{1,5})?")


class OriginsError(ValueError):
    """The message is one sentence."""


def read_origins(text: str) -> tuple[str, ...]:
    """Parse origins that are separated by commas, in lower case as browsers send them.

    Raises OriginsError.
    """
    origins = tuple(part for item in text.split(",") if (part := item.strip().lower()))
    if not all(origin == "*" or _ORIGIN.fullmatch(origin) for origin in origins):
        raise OriginsError(
            f"{ORIGINS} must be * or origins such as https://example.org, separated by commas and "
            f"without a path, got {text!r}."
        )
    return origins


def cors(origins: Sequence[str]) -> list[Middleware]:
    """Let pages of these origins call the app, without cookies: their scripts send the key in a
    header.
    """
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=METHODS,
            allow_headers=["*"],
            allow_private_network=True,
            expose_headers=["retry-after"],
        )
    ]


class TrailingSlash:
    """Ignores a slash at the end of a path. Starlette would redirect, behind a proxy with TLS to
    the wrong scheme.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].endswith("/"):
            scope = {**scope, "path": scope["path"].rstrip("/") or "/"}
        await self._app(scope, receive, send)
