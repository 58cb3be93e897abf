"""How requests reach an ASGI app: trailing slashes, pages of other origins (CORS), host names."""

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
EXPOSED = ("retry-after", "x-run-id")
"""Response headers that scripts of these pages may read, in addition to the usual ones."""
METHODS = ("GET", "POST", "DELETE")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[^\s/\[\]@?#:*,]+)(:[0-9]{1,5})?")

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:]*)(?::([0-9]*))?", re.IGNORECASE)
OTHER_HOST = (
    "This server accepts requests from this machine only. Open it at localhost or 127.0.0.1, or "
    "set MARS_NUM_PROXIES if it runs behind a proxy."
)


class OriginsError(ValueError):
    """A list with an invalid origin; the message is one sentence."""


def read_origins(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of origins, in the spelling that browsers send. Raises
    OriginsError.
    """
    origins = tuple(part for item in text.split(",") if (part := item.strip().lower()))
    if not all(origin == "*" or _ORIGIN.fullmatch(origin) for origin in origins):
        raise OriginsError(
            f"{ORIGINS} must be * or origins such as https://example.org, separated by commas and "
            f"without a path, got {text!r}."
        )
    return origins


def cors(origins: Sequence[str]) -> list[Middleware]:
    """Return the middleware that lets pages of these origins call the app; none without origins.

    Cookies are never allowed: the pages' scripts send the endpoint's key in a header.
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
    """ASGI middleware: ignore a slash at the end of the path.

    Starlette would redirect to an absolute address with a scheme that is wrong behind a proxy that
    speaks TLS, and many clients do not repeat a POST.
    """

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass the request on, with the path without the slash."""
        if scope["type"] == "http" and scope["path"].endswith("/"):
            scope = {**scope, "path": scope["path"].rstrip("/") or "/"}
        await self._app(scope, receive, send)


class LocalNames:
    """ASGI middleware: at a loopback address, reject requests with another machine's host name.

    With DNS rebinding, a page of another site resolves its own name to 127.0.0.1, and its scripts
    then count as this server's. The Host header of such a request has this server's port. A request
    from a reverse proxy has the proxy's port, or none.
    """

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 403."""
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
