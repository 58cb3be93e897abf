"""The page's document and its configuration, rendered once, and gradio's assets, packed once.

Gradio would do either for each request, in up to 100 ms of a core that decoding uses too."""

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
"""Path -> the path that is rendered for it."""
ASSETS = re.compile(r"/(assets|static)/[\w./-]{1,200}|/theme\.css", re.ASCII)
MAX_ASSETS = 16_000_000  # bytes of packed assets that are stored
KEPT = ("content-type", "etag", "last-modified", "cache-control")
"""Headers of an asset that are stored with it."""
MARKER = "http://origin.invalid"
"""Placeholder in a rendered document for the origin of the request."""
ORIGIN = re.compile(
    r"https?://([\w.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?(/[\w./~-]*)?", re.ASCII | re.IGNORECASE
)
NO_HOST = "The request names a host that is not valid: open the page at its own address."
MAX_PACKED = 8  # answers that are stored, the least recently used ones go first
PACKED = 4
"""How hard what gradio sends is compressed, its streams excepted: decoding uses the same cores."""
Edit = Callable[[str, str], str]
"""Document, origin that it names -> the document that is sent."""


class Documents:
    """ASGI middleware: answer a GET of PATHS or ASSETS with what gradio answered the first one.

    The origin of the request is the only part of it that changes the answer: gradio takes no
    other page and no deep link here. edit: what is changed in the document.
    """

    def __init__(self, app: Application, edit: Edit) -> None:
        self._app = app
        self._edit = edit
        self._rendering = asyncio.Lock()
        self._rendered: dict[str, tuple[str, str]] = {}  # path -> its text and media type
        self._packed: dict[tuple[str, str], bytes] = {}
        self._assets: dict[str, tuple[dict[str, str], bytes]] = {}  # path -> headers, packed

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer, or pass the request on."""
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
        """Have gradio render a document, and store it."""
        status, headers, body = await self._answer(path, scope)
        if status == 200:
            text = body.decode()
            text = self._edit(text, MARKER) if path == "/" else text
            self._rendered[path] = text, headers["content-type"]

    async def _asset(self, scope: Message) -> Response | None:
        """An asset, packed; None where gradio has none."""
        path = scope["path"]
        async with self._rendering:
            stored = self._assets.pop(path, None)
            if stored is None:
                status, told, body = await self._answer(path, scope)
                if status != 200:
                    return None
                headers = {name: told[name] for name in KEPT if name in told}
                headers |= {"vary": "Accept-Encoding", "content-encoding": "gzip"}
                stored = headers, await asyncio.to_thread(gzip.compress, body, PACKED, mtime=0)
            self._assets[path] = stored
            while sum(len(each) for _, each in self._assets.values()) > MAX_ASSETS:
                del self._assets[next(iter(self._assets))]
        headers, packed = stored
        if "etag" in headers and headers["etag"] == Headers(scope=scope).get("if-none-match"):
            return Response(status_code=304, headers=headers)
        return Response(packed, headers=headers)

    async def _answer(self, path: str, scope: Message) -> tuple[int, Headers, bytes]:
        """What gradio answers to a request that names no origin: status, headers and body."""
        host = MARKER.removeprefix("http://").encode()
        headers = [(b"host", host), (b"accept-encoding", b"identity")]
        asked = {**scope, "method": "GET", "path": path, "raw_path": path.encode()}
        asked |= {"query_string": b"", "headers": headers, "scheme": "http"}
        status, answered, parts = 0, Headers(), list[bytes]()

        async def stay() -> Message:
            await asyncio.Event().wait()
            raise AssertionError  # the client stays until it is answered

        async def hear(message: Message) -> None:
            nonlocal status, answered
            if message["type"] == "http.response.start":
                status, answered = message["status"], Headers(raw=message["headers"])
            else:
                parts.append(message.get("body", b""))

        await self._app(asked, replayed(b"", stay), hear)
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
    """The origin at which a client asks, by what a proxy forwarded, else by the request. Raises
    ValueError for a host that is not valid."""
    headers = Headers(scope=scope)
    host, scheme = (
        headers.get(f"x-forwarded-{name}", "").partition(",")[0].strip()
        for name in ("host", "proto")
    )
    base = f"http://{host}" if host else str(Request(scope).base_url)
    return (base.replace("http://", "https://", 1) if scheme == "https" else base).rstrip("/")
