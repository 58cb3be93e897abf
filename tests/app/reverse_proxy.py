"""A reverse proxy as people put before the page: at a port, a scheme and a folder of its own."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from mars_runtime.serving.server import bound

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "host", "content-length"}
OUTER = '<!doctype html><title>Outer</title><iframe src="{}" width="1400" height="1000"></iframe>'


@dataclass
class ReverseProxy:
    """Passes requests below ``folder`` on to ``upstream`` without the folder, and names the host
    without a port, as nginx does with ``proxy_set_header Host $host``.

    strays: what was asked of it outside the folder.
    """

    upstream: str
    folder: str = ""
    scheme: str = "http"
    address: str = ""
    strays: list[str] = field(default_factory=list)

    async def respond(self, request: Request) -> Response:
        """Answer a request."""
        path = request.url.path
        if not path.startswith(f"{self.folder}/"):
            self.strays.append(path)
            return PlainTextResponse("Nothing is served here.", 404)
        headers = {name: v for name, v in request.headers.items() if name not in HOP_BY_HOP}
        headers |= {"host": str(request.url.hostname), "x-forwarded-for": "192.0.2.1",
                    "x-forwarded-proto": self.scheme}  # fmt: skip
        url = httpx.URL(self.upstream.rstrip("/") + path.removeprefix(self.folder))
        url = url.copy_with(query=request.url.query.encode() or None)
        body = await request.body()
        forwarded = self._client.build_request(request.method, url, headers=headers, content=body)
        answer = await self._client.send(forwarded, stream=True)
        headers = {name: v for name, v in answer.headers.items() if name not in HOP_BY_HOP}
        close = BackgroundTask(answer.aclose)
        return StreamingResponse(answer.aiter_raw(), answer.status_code, headers, background=close)

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Keep a client while it is served."""
        async with httpx.AsyncClient(timeout=None, trust_env=False) as self._client:
            yield


@contextmanager
def served(app: Starlette, **tls: str) -> Iterator[int]:
    """Serve in a thread; the port."""
    with bound("127.0.0.1", 0) as listener:
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, **tls)
        server = uvicorn.Server(config)
        run = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        run.start()
        while not server.started:
            assert run.is_alive()
            time.sleep(0.01)
        yield listener.getsockname()[1]
        server.should_exit = True
        run.join()


@contextmanager
def proxied(
    upstream: str, folder: str = "", certificate: Path | None = None
) -> Iterator[ReverseProxy]:
    """A proxy before a page. certificate: of a server of https, with its key."""
    proxy = ReverseProxy(upstream, folder, "https" if certificate else "http")
    methods = ["GET", "HEAD", "POST", "DELETE", "OPTIONS"]
    app = Starlette(
        routes=[Route("/{path:path}", proxy.respond, methods=methods)], lifespan=proxy.lifespan
    )
    tls = {"ssl_certfile": str(certificate), "ssl_keyfile": str(certificate)} if certificate else {}
    with served(app, **tls) as port:
        proxy.address = f"{proxy.scheme}://localhost:{port}{folder}/"
        yield proxy


@contextmanager
def framing(address: str) -> Iterator[str]:
    """A page of another site that shows ``address`` in a frame."""

    async def outer(request: Request) -> Response:
        return HTMLResponse(OUTER.format(address))

    with served(Starlette(routes=[Route("/outer", outer)])) as port:
        yield f"http://127.0.0.1:{port}/outer"


def write_certificate(path: Path) -> Path:
    """Return a self-signed certificate for localhost with its key, in one file."""
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-newkey", "rsa:2048", "-keyout", str(path), "-out", str(path)]
    made = subprocess.run(command, capture_output=True, check=True)
    assert path.is_file(), made.stderr
    return path
