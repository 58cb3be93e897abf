"""ASGI middleware for paths with a trailing slash, cross-origin requests (CORS) and host names."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse

from mars_runtime.serving.limits import Application, Message, Receive, Send

ORIGINS = "MARS_ALLOWED_ORIGINS"
"""Environment variable with the origins that may call the endpoint from a browser."""
EXPOSED = ("retry-after",)
"""Response headers that scripts of other origins may read, in addition to CORS's default ones."""
METHODS = ("GET", "POST", "DELETE")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[^\s/\[\]@?#:*,]+)(:[0-9]{1,5})?")

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:]*)(?::([0-9]*))?", re.IGNORECASE)
OTHER_HOST = (
    "This server accepts requests from this machine only. Open it at localhost or 127.0.0.1, or "
    "set MARS_NUM_PROXIES if it runs behind a proxy."
)


class OriginsError(ValueError):
    """A list of origins contains an invalid one. The message is one sentence."""


def read_origins(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of origins; return them in lower case, as browsers send them.

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
    """Return the middleware that lets pages of the given origins call the app.

    The list is empty if there are no origins. Cookies are not allowed, because scripts on these
    pages send the endpoint's key in a header.
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
            expose_headers=EXPOSED,
        )
    ]


class TrailingSlash:
    """ASGI middleware that ignores a slash at the end of the path.

    Without it, Starlette would send a redirect. The redirect's address would have the wrong scheme
    behind a proxy with TLS, and many clients do not repeat a POST request after a redirect.
    """

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].endswith("/"):
            scope = {**scope, "path": scope["path"].rstrip("/") or "/"}
        await self._app(scope, receive, send)


class LocalNames:
    """ASGI middleware that protects a server on a loopback address against DNS rebinding.

    In this attack the host name of another site resolves to 127.0.0.1. The browser then treats this
    server as part of that site, so the site's scripts can read its responses. Such requests have
    the foreign host name and this server's port in their Host header, and are rejected. A request
    from a reverse proxy has the proxy's port, or none, and is accepted.
    """

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle the request, or answer with 403."""
        if scope["type"] == "http" and _is_rebound(scope):
            await JSONResponse({"detail": OTHER_HOST}, 403)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _is_rebound(scope: Message) -> bool:
    address, port = scope.get("server") or ("", None)
    if not _is_address(address) or not ipaddress.ip_address(address).is_loopback:
        return False
    sent = dict(scope["headers"]).get(b"host", b"").decode("latin-1").strip()
    match = _HOST.fullmatch(sent)
    if not match or not match[1]:
        return False
    name = match[1].rstrip(".").lower()
    if _is_address(name.strip("[]")) or name == "localhost" or name.endswith(".localhost"):
        return False
    return int(match[2] or 80) == port


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
