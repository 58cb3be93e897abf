"""Caches the page's document, its configuration, and compressed copies of Gradio's assets.

Gradio would render or compress them for each request, which takes up to 100 ms of a core that
decoding also uses.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mars_runtime.serving.limits import Application, Message, Receive, Send, replayed

PATHS = {"/": "/", "/config": "/config", "/config/": "/config"}
"""For each path that a client may request, the path that is requested from Gradio."""
ASSETS = re.compile(r"/(assets|static)/[\w./-]{1,200}|/theme\.css", re.ASCII)
MAX_ASSETS = 16_000_000  # maximum number of bytes of cached assets
KEPT = ("content-type", "etag", "last-modified", "cache-control")
"""Headers of an asset that are cached with the asset."""
MARKER = "http://origin.invalid"
"""Placeholder for the origin of the request in a cached document."""
ORIGIN = re.compile(
    r"https?://([\w.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?(/[\w./~-]*)?", re.ASCII | re.IGNORECASE
)
NO_HOST = "The host name of this request is not valid. Open the page at its public address."
MAX_PACKED = 8  # maximum number of cached responses; the least recently used ones are evicted
PACKED = 4
"""Compression level of Gradio's responses, except streams. It is low, because decoding uses the
same cores.
"""
Edit = Callable[[str, str], str]
"""A function that is called with a document and the origin in it, and returns the edited
document.
"""


class Documents:
    """ASGI middleware that answers GET requests for the document, its configuration and assets with
    cached copies of Gradio's response.

    A response depends only on the path and the origin of the request, because this app has no deep
    links. edit: edits the document before it is cached.
    """

    def __init__(self, app: Application, edit: Edit) -> None:
        self._app = app
        self._edit = edit
        self._rendering = asyncio.Lock()
        self._rendered: dict[str, tuple[str, str]] = {}  # text and media type by path
        self._packed: dict[tuple[str, str], bytes] = {}
        # headers and compressed content by path
        self._assets: dict[str, tuple[dict[str, str], bytes]] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        is_packed = "gzip" in Headers(scope=scope).get("accept-encoding", "")
        path = PATHS.get(scope["path"])
        if path is None:
            is_asset = is_packed and ASSETS.fullmatch(scope["path"])
            response = await self._asset(scope) if is_asset else None
            await (response or self._app)(scope, receive, send)
            return
        try:
            origin = origin_of(scope)
        except ValueError:
            origin = ""
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
        headers = {"vary": "Accept-Encoding", "content-type": kind}
        if is_packed:
            headers["content-encoding"] = "gzip"
            body = await self._packed_for(path, origin)
        else:
            body = text.replace(MARKER, origin).encode()
        await Response(body, headers=headers)(scope, receive, send)

    async def _render(self, path: str, scope: Message) -> None:
        """Request a document from Gradio and cache it."""
        status, headers, body = await self._answer(path, scope)
        if status == 200:
            text = body.decode()
            text = self._edit(text, MARKER) if path == "/" else text
            self._rendered[path] = text, headers["content-type"]

    async def _asset(self, scope: Message) -> Response | None:
        """Return a compressed asset, or None if Gradio does not have it."""
        path = scope["path"]
        async with self._rendering:
            stored = self._assets.pop(path, None)
            if stored is None:
                status, sent, body = await self._answer(path, scope)
                if status != 200:
                    return None
                headers = {name: sent[name] for name in KEPT if name in sent}
                headers |= {"vary": "Accept-Encoding", "content-encoding": "gzip"}
                stored = headers, await asyncio.to_thread(gzip.compress, body, PACKED, mtime=0)
            self._assets[path] = stored
            while sum(len(content) for _, content in self._assets.values()) > MAX_ASSETS:
                del self._assets[next(iter(self._assets))]
        headers, packed = stored
        if "etag" in headers and headers["etag"] == Headers(scope=scope).get("if-none-match"):
            return Response(status_code=304, headers=headers)
        return Response(packed, headers=headers)

    async def _answer(self, path: str, scope: Message) -> tuple[int, Headers, bytes]:
        """Return the status, headers and body of Gradio's response to a request with the origin
        MARKER.
        """
        host = MARKER.removeprefix("http://").encode()
        headers = [(b"host", host), (b"accept-encoding", b"identity")]
        inner = {**scope, "method": "GET", "path": path, "raw_path": path.encode()}
        inner |= {"query_string": b"", "headers": headers, "scheme": "http"}
        status, answered, parts = 0, Headers(), list[bytes]()

        async def stay() -> Message:
            await asyncio.Event().wait()
            raise AssertionError  # never reached, because the event is never set

        async def hear(message: Message) -> None:
            nonlocal status, answered
            if message["type"] == "http.response.start":
                status, answered = message["status"], Headers(raw=message["headers"])
            else:
                parts.append(message.get("body", b""))

        await self._app(inner, replayed(b"", stay), hear)
        return status, answered, b"".join(parts)

    async def _packed_for(self, path: str, origin: str) -> bytes:
        key = (path, origin)
        body = self._packed.pop(key, None)
        if body is None:
            text = self._rendered[path][0].replace(MARKER, origin).encode()
            body = await asyncio.to_thread(gzip.compress, text, PACKED, mtime=0)
        self._packed[key] = body
        while len(self._packed) > MAX_PACKED:
            del self._packed[next(iter(self._packed))]
        return body


def origin_of(scope: Message) -> str:
    """Return the origin of a request, from the forwarded headers of a proxy if present. Raises
    ValueError if the host is invalid.
    """
    headers = Headers(scope=scope)
    host, scheme = (
        headers.get(f"x-forwarded-{name}", "").partition(",")[0].strip()
        for name in ("host", "proto")
    )
    base = f"http://{host}" if host else str(Request(scope).base_url)
    return (base.replace("http://", "https://", 1) if scheme == "https" else base).rstrip("/")
