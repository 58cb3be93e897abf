"""Files that the page loads. Each URL contains a digest of the content, so browsers can cache the
file, and the compiled script, forever.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import lzma
import re
from collections.abc import Callable
from functools import lru_cache, partial

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Send

from app.ui.recordings import TABS, recorded, tab_value
from mars_runtime.display import web
from mars_runtime.display.replay_page import shell
from mars_runtime.files.paths import ASSETS

ADDRESSES = re.compile(r"/files/[\w.-]{1,40}/[0-9a-f]{16}", re.ASCII)
"""Matches all paths that ``serve_file`` serves."""
FOR_GOOD = "public, max-age=31536000, immutable"
NO_FILE = "This file does not exist or is out of date. Reload the page."
RECORDED = """document.head.append(Object.assign(document.createElement("script"), {
  type: "application/json", id: "mars-recorded", textContent: %s,
}));"""


def _page() -> str:
    address = json.dumps(file_address("recordings.js"))
    return f"{web.script('page')}\nwindow.mars.mountRecordings({address});"


def _plotly() -> str:
    path = web.plotly_file()
    return path.read_text("utf-8") if path else ""


def _study() -> str:
    path = ASSETS / "review" / "study.jsonl.xz"
    return lzma.decompress(path.read_bytes()).decode() if path.exists() else ""


SCRIPT, PAGE, TEXT = "text/javascript", "text/html", "text/plain"
FILES: dict[str, tuple[str, Callable[[], str]]] = {
    "page.js": (SCRIPT, _page),
    "recordings.js": (SCRIPT, lambda: RECORDED % json.dumps(recorded())),
    "plotly.js": (SCRIPT, _plotly),
    "replay.html": (PAGE, shell),
    "study.jsonl": (TEXT, _study),
    **{f"{tab}.txt": (TEXT, partial(tab_value, tab)) for tab in TABS},
}
"""Media type of each file, and a function that returns its content."""


@lru_cache
def file_address(name: str) -> str:
    """Return the URL of a file, relative to the page so that it works behind any host, port, scheme
    and folder. Return "" for a file without content, such as a missing recording.

    Raises KeyError for an unknown name.
    """
    text = FILES[name][1]()
    return f"files/{name}/{hashlib.sha256(text.encode()).hexdigest()[:16]}" if text else ""


@lru_cache
def _plain(name: str) -> bytes:
    return FILES[name][1]().encode()


@lru_cache
def _zipped(name: str) -> bytes:
    return gzip.compress(_plain(name), mtime=0)


async def serve_file(scope: Message, receive: Receive, send: Send) -> None:
    """ASGI app that serves the files."""
    path = scope["path"]
    name = path.split("/")[2]
    is_current = name in FILES and path == f"/{file_address(name)}"
    if not is_current or scope["method"] not in ("GET", "HEAD"):
        await JSONResponse({"detail": NO_FILE}, 404)(scope, receive, send)
        return
    headers = {"cache-control": FOR_GOOD, "vary": "accept-encoding"}
    is_packed = "gzip" in Headers(scope=scope).get("accept-encoding", "")
    if is_packed:
        headers["content-encoding"] = "gzip"
    body = await asyncio.to_thread(_zipped if is_packed else _plain, name)
    await Response(body, headers=headers, media_type=FILES[name][0])(scope, receive, send)
