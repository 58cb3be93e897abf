"""The page behind reverse proxies fetches everything from the address that visitors use."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which

import httpx
import pytest
import uvicorn
from browser import PATIENCE, needs_browser, shared
from live_page import LOADED, ROOT, open_tab
from scripted_page import TEXT, ScriptedBackend, make_handlers, page_served
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from mars_runtime.serving.server import bound
from tests.engine.scripted import eventually

OUTER = '<!doctype html><title>Outer</title><iframe src="{}" width="1400" height="1000"></iframe>'
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "host", "content-length"}


@dataclass
class ReverseProxy:
    """Passes requests below ``folder`` on to ``upstream`` without the folder, and names the host
    without a port, as nginx does with ``proxy_set_header Host $host``.

    outer: a page of another site, which shows the page in a frame. strays: what was asked of it
    outside the folder.
    """

    upstream: str
    folder: str = ""
    scheme: str = "http"
    address: str = ""
    outer: str = ""
    strays: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._client = httpx.AsyncClient(timeout=None, trust_env=False)

    async def respond(self, request: Request) -> Response:
        """Answer a request."""
        path = request.url.path
        if path == "/outer":
            return HTMLResponse(OUTER.format(self.address))
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


@contextmanager
def proxied(
    upstream: str, folder: str = "", certificate: Path | None = None
) -> Iterator[ReverseProxy]:
    """A proxy before a page. certificate: of a server of https, with its key."""
    proxy = ReverseProxy(upstream, folder, "https" if certificate else "http")
    methods = ["GET", "HEAD", "POST", "DELETE", "OPTIONS"]
    app = Starlette(routes=[Route("/{path:path}", proxy.respond, methods=methods)])
    tls = {"ssl_certfile": str(certificate), "ssl_keyfile": str(certificate)} if certificate else {}
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, **tls)
    server = uvicorn.Server(config)
    with bound("127.0.0.1", 0) as listener:
        run = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        run.start()
        assert eventually(lambda: server.started)
        port = listener.getsockname()[1]
        proxy.address = f"{proxy.scheme}://localhost:{port}{folder}/"
        proxy.outer = f"{proxy.scheme}://127.0.0.1:{port}/outer"
        yield proxy
        server.should_exit = True
        run.join()


def write_certificate(path: Path) -> Path:
    """Return a self-signed certificate for localhost with its key, in one file."""
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-newkey", "rsa:2048", "-keyout", str(path), "-out", str(path)]
    made = subprocess.run(command, capture_output=True, check=True)
    assert path.is_file(), made.stderr
    return path


pytestmark = needs_browser

VIEWPORT = {"width": 1440, "height": 1000}
HAS_PLOT = "document.querySelector('#race [data-chart=time] .rv-plot')?.data"


@pytest.fixture
def place() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_tls_a_folder_and_a_frame(address: str, place: ExitStack, tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path / "tls.pem") if which("openssl") else None
    proxy = place.enter_context(proxied(address, "/some/mars", certificate))
    visit(place, proxy, proxy.outer)


def test_a_known_folder(place: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIO_ROOT_PATH", "/mars")
    handlers = make_handlers(tmp_path, ScriptedBackend(TEXT), port=0)
    upstream = place.enter_context(page_served(handlers))
    proxy = place.enter_context(proxied(upstream, "/mars"))
    visit(place, proxy)


def visit(place: ExitStack, proxy: ReverseProxy, outer: str = "") -> None:
    """Use the page behind the proxy, in a frame of another site if ``outer`` is its address. Fails
    on script errors and on requests to anywhere else."""
    address = proxy.address
    context = shared().browser.new_context(
        ignore_https_errors=True, viewport=VIEWPORT, reduced_motion="reduce"
    )
    place.callback(context.close)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    requests: list[str] = []
    troubles: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto(outer or address)
    frame = page.wait_for_selector("iframe").content_frame() if outer else page.main_frame
    frame.wait_for_selector(f"{ROOT}[data-state=empty]")
    frame.wait_for_function(LOADED)
    linked = frame.eval_on_selector_all("link[href]", "links => links.map(link => link.href)")
    assert f"{address}favicon.ico" in linked
    assert [url for url in linked if not url.startswith(address)] == []  # fetched or not
    frame.fill("#prompt textarea", "Say it.")
    frame.click("#run")
    frame.wait_for_selector(f"{ROOT}[data-state=finished]")
    frame.locator("#race [data-chart=time]").evaluate("node => node.scrollIntoView()")
    frame.wait_for_function(HAS_PLOT)
    open_tab(frame, "review")
    frame.wait_for_selector(".mars-review[data-phase=ready] .rv-pane >> nth=1")
    open_tab(frame, "live")
    frame.click("#race .rv-top .ex-menu summary")
    with page.expect_download() as replay:
        frame.click("#race .rv-top .ex-menu button:has-text('HTML')")
    assert "mars-race" in replay.value.path().read_text("utf-8")
    page.goto("about:blank")
    outside = [url for url in requests if not url.startswith((address, "data:", "blob:", "about:"))]
    assert (outside, troubles) == ([outer] * bool(outer), [])
    assert proxy.strays == []
