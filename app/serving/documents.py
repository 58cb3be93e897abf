"""The page's document and its configuration, rendered once.

Gradio would render them for each request, in up to 100 ms of a core that decoding uses too."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mars_runtime.serving.limits import Application, Message, Receive, Send

PATHS = {"/": "/", "/config": "/config", "/config/": "/config"}
"""Path -> the path that is rendered for it."""
MARKER = "http://origin.invalid"
"""Stands in what is rendered for the origin of the request."""
ORIGIN = re.compile(
    r"https?://([\w.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?(/[\w./~-]*)?", re.ASCII | re.IGNORECASE
)
NO_HOST = "The request names a host that is not valid: open the page at its own address."
MAX_PACKED = 8  # answers that are stored, the least recently used ones go first
PACKED = 4
"""How hard what gradio sends is compressed, its streams excepted: decoding uses the same cores."""
OriginOf = Callable[[Request, str], str]


class Documents:
    """ASGI middleware: answer a GET of PATHS with what gradio rendered at the first one.

    The origin of the request is the only part of it that the answer depends on: gradio takes no
    other page and no deep link here. origin_of: the origin of a request for a path, as gradio reads
    it. Raises ValueError.
    """

    def __init__(self, app: Application, origin_of: OriginOf) -> None:
        self._app = app
        self._origin_of = origin_of
        self._rendering = asyncio.Lock()
        self._rendered: dict[str, tuple[str, str]] = {}  # path -> its text and media type
        self._packed: dict[tuple[str, str], bytes] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer, or pass the request on."""
        path = PATHS.get(scope["path"]) if scope["type"] == "http" else None
        if path is None or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        try:
            origin = self._origin_of(Request(scope), path)
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
        if "gzip" in Headers(scope=scope).get("accept-encoding", ""):
            headers["content-encoding"] = "gzip"
            body = await self._packed_for(path, origin)
        else:
            body = text.replace(MARKER, origin).encode()
        await Response(body, headers=headers)(scope, receive, send)

    async def _render(self, path: str, scope: Message) -> None:
        """Have gradio answer a request that names no origin, and store what it says."""
        host = MARKER.removeprefix("http://").encode()
        headers = [(b"host", host), (b"accept-encoding", b"identity")]
        asked = {**scope, "method": "GET", "path": path, "raw_path": path.encode()}
        asked |= {"query_string": b"", "headers": headers, "scheme": "http"}
        status, kind, parts = 0, "", list[bytes]()

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def hear(message: Message) -> None:
            nonlocal status, kind
            if message["type"] == "http.response.start":
                status = message["status"]
                kind = Headers(raw=message["headers"]).get("content-type", "")
            else:
                parts.append(message.get("body", b""))

        await self._app(asked, receive, hear)
        if status == 200:
            self._rendered[path] = b"".join(parts).decode(), kind

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
