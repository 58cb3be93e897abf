"""Caches the page's document and configuration, which take Gradio up to 100 ms of a core each."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mars_runtime.serving.limits import replayed

PATHS = {"/": "/", "/config": "/config", "/config/": "/config"}  # requested -> Gradio's
MARKER = "http://origin.invalid"  # for the origin of the request in a cached document
ORIGIN = re.compile(
    r"https?://([\w.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?(/[\w./~-]*)?", re.ASCII | re.IGNORECASE
)
NO_HOST = "The host name of this request is not valid. Open the page at its public address."


class Documents:
    """ASGI middleware. A response depends only on the path and the origin of the request, because
    this app has no deep links. edit: (document, origin in it) -> document to cache.
    """

    def __init__(self, app: ASGIApp, edit: Callable[[str, str], str]) -> None:
        self._app = app
        self._edit = edit
        self._rendering = asyncio.Lock()
        self._rendered: dict[str, tuple[str, str]] = {}  # text and media type by path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = PATHS.get(scope["path"]) if scope["type"] == "http" else None
        if path is None or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        origin = origin_of(scope)
        if not ORIGIN.fullmatch(origin):
            await JSONResponse({"detail": NO_HOST}, 400)(scope, receive, send)
            return
        async with self._rendering:
            if path not in self._rendered:
                await self._render(path, scope)
        if path not in self._rendered:
            await self._app(scope, receive, send)
            return
        text, kind = self._rendered[path]
        text = text.replace(MARKER, origin)
        await Response(text, headers={"content-type": kind})(scope, receive, send)

    async def _render(self, path: str, scope: Scope) -> None:
        """Request a document from Gradio, for the origin MARKER, and cache it."""
        host = MARKER.removeprefix("http://").encode()
        inner = {**scope, "method": "GET", "path": path, "raw_path": path.encode()}
        inner |= {"query_string": b"", "headers": [(b"host", host)], "scheme": "http"}
        status, kind, body = 0, "", b""

        async def stay() -> Message:
            await asyncio.Event().wait()
            raise AssertionError  # never reached, because the event is never set

        async def hear(message: Message) -> None:
            nonlocal status, kind, body
            if message["type"] == "http.response.start":
                status = message["status"]
                kind = Headers(raw=message["headers"]).get("content-type", "")
            else:
                body += message.get("body", b"")

        await self._app(inner, replayed(b"", stay), hear)
        if status == 200:
            text = body.decode()
            self._rendered[path] = self._edit(text, MARKER) if path == "/" else text, kind


def origin_of(scope: Scope) -> str:
    """Return the origin that the headers name, a proxy's first; empty for an invalid host."""
    headers = Headers(scope=scope)
    host, scheme = (
        headers.get(f"x-forwarded-{name}", "").partition(",")[0].strip()
        for name in ("host", "proto")
    )
    try:
        base = f"http://{host}" if host else str(Request(scope).base_url)
    except ValueError:
        return ""
    return (base.replace("http://", "https://", 1) if scheme == "https" else base).rstrip("/")
