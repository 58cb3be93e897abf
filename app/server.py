"""The page as an ASGI app with the limits of a public demo, and the server that runs it.

Gradio's app is mounted in this module's own FastAPI app, which adds limits and middleware. If
``gradio[mcp]`` is installed, the typed endpoints are also tools of an MCP server.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import partial

import gradio as gr
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app import gradio_compat
from app.handlers import Handlers
from app.page import build
from app.serving.documents import Documents
from app.serving.endpoint import PathRouter, make_endpoint
from app.serving.routes import OTHER_VALUES, AcceptedValues, Refusals, Routes
from app.serving.run_limits import RunLimits
from app.settings import AppSettingsError
from app.ui.files import ADDRESSES, file_address, serve_file
from app.ui.recordings import Recording
from app.ui.theme import head, theme
from app.ui.wiring import RUN
from mars_runtime.engine.backend import where
from mars_runtime.serving.app import PATHS as ENDPOINT
from mars_runtime.serving.errors import ApiError, Faults
from mars_runtime.serving.limits import AddressCounter, BodyLimit, Proxies, address_of
from mars_runtime.serving.server import AddressInUseError, Server, bound, url_of

FILES = Middleware(PathRouter, endpoint=serve_file, paths=ADDRESSES)
"""Middleware that serves the files of the page, including plotly.js."""
PACKED = 4
"""Compression level, except of streams. It is low, because decoding uses the same cores."""
START_SECONDS = 0.01  # time between two checks of whether the server has started
CLOSE_SECONDS = 5.0  # maximum time to wait for the server to end


@dataclass(frozen=True, slots=True)
class ServedPage:
    """A page while it is served. url: its address on this machine, with a trailing slash."""

    blocks: gr.Blocks
    url: str
    server: Server
    thread: threading.Thread

    def wait(self) -> None:
        """Block until the server ends."""
        self.thread.join()

    def close(self) -> None:
        """Stop the server and end the streams of all visitors."""
        self.server.leave()
        self.thread.join(CLOSE_SECONDS)


def serve(
    handlers: Handlers, is_blocking: bool = True, first: Recording | None = None
) -> ServedPage:
    """Serve the page. Block until the server is interrupted, or return at once if ``is_blocking``
    is off.

    first: the recorded run to show until the visitor runs something. The page sends nothing to
    other servers: it has no analytics, web fonts or share link. Raises AppSettingsError if the host
    and port cannot be used.
    """
    settings = handlers.engines.settings
    try:
        listening = bound(settings.host, settings.port)
    except AddressInUseError as error:
        raise AppSettingsError(str(error)) from error
    url = url_of(settings.host, listening.getsockname()[1])
    page = build(handlers, first)
    app = make_app(handlers, page, url)
    handlers.engines.before_serving()
    close = partial(page.close, verbose=False)
    server = Server(app, settings.host, close, is_proxied=settings.num_proxies > 0)
    # The server runs in a thread, so that the main thread can receive signals and close the
    # engines before the server ends.
    thread = threading.Thread(target=server.run, args=[[listening]], daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise RuntimeError("The server could not start. See the log for the reason.")
        time.sleep(START_SECONDS)
    served = ServedPage(page, f"{url}/", server, thread)
    if is_blocking:
        print(f"MARS live is at {url}", flush=True)
        served.wait()
    return served


def make_app(handlers: Handlers, page: gr.Blocks, url: str) -> FastAPI:
    """Return the app that serves the page. url: its address on this machine.

    Monitoring, uploads, stack traces and unused routes (``routes.py``) are disabled. The queue is
    bounded, and clients cannot bypass it.
    """
    settings = handlers.engines.settings
    page.queue(max_size=settings.max_waiting + 4, default_concurrency_limit=8, api_open=False)
    gradio_compat.store_few_sessions(page)
    gradio_compat.poll_less_often(page)
    gradio_compat.log_without_values(where)
    tools = gradio_compat.make_tools(page, url) if gradio_compat.has_tools() else None
    app = FastAPI(
        openapi_url=None,
        middleware=_middleware(handlers, page),
        lifespan=tools.lifespan if tools else None,
    )
    gr.mount_gradio_app(
        app,
        page,
        path="",
        footer_links=["api"],  # hidden by page.css, but ``?view=api`` needs it
        run_history=False,
        app_kwargs={
            "middleware": [Middleware(Faults, respond=_respond)],
            "exception_handlers": {RequestValidationError: _wrong_values},
        },
        show_error=False,
        max_file_size="1mb",
        ssr_mode=False,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,  # the app has its own MCP server
        theme=theme(),
        head=head(),
    )
    gradio_compat.adopt(page, app)
    return app


def _middleware(handlers: Handlers, page: gr.Blocks) -> list[Middleware]:
    """Return the middleware of the app, outermost first.

    The OpenAI-compatible endpoint and the files of the page have paths of their own. Every other
    request is validated by size, path and values before Gradio receives it; only runs and prompts,
    which are sent as JSON text, may be large. The document and its configuration are rendered once
    and cached. The limit on concurrent runs is checked last.
    """
    engines = handlers.engines
    settings = engines.settings
    queue = gradio_compat.GradioQueue(page)
    imports = {gradio_compat.CALLS: 2 * settings.max_import_bytes}

    def is_run(event: object) -> bool:
        function = page.fns.get(event) if isinstance(event, int) else None
        return function is not None and function.concurrency_id == RUN

    def num_queued(address: str) -> int:
        clients = (client for number, client in queue.events() if is_run(number))
        return sum(address_of(client) == address for client in clients)

    runs = AddressCounter(settings.max_runs_per_address, elsewhere=num_queued)
    return [
        Middleware(Faults, respond=_respond),
        Middleware(Proxies, number=settings.num_proxies),
        Middleware(PathRouter, endpoint=make_endpoint(engines, runs), paths=ENDPOINT),
        FILES,
        Middleware(GZipMiddleware, compresslevel=PACKED),
        Middleware(BodyLimit, max_bytes=settings.max_body_bytes, elsewhere=imports),
        Middleware(Refusals),
        Middleware(Routes, _accepted_values(page), has_tools=page.mcp_server),
        Middleware(Documents, edit=_edit_document),
        Middleware(RunLimits, queue=queue, is_run=is_run, runs=runs),
        # Pages of other origins must not read responses. A mounted Gradio app uses the CORS rules
        # of the outer app; Gradio's own rules would allow every port of localhost.
        Middleware(CORSMiddleware, allow_origins=()),
    ]


def _edit_document(text: str, root: str) -> str:
    """Add the page's script to the document."""
    script = f'<script src="{file_address("page.js")}"></script>'
    return gradio_compat.edit_document(text, root, script)


def _accepted_values(page: gr.Blocks) -> AcceptedValues:
    """Return the values that the events, endpoints and server functions of the page accept."""
    endpoints = page.get_api_info()["named_endpoints"]
    return AcceptedValues(
        {number: len(event.inputs) for number, event in page.fns.items() if event.fn},
        {
            name.strip("/"): {
                parameter["parameter_name"]: parameter["parameter_has_default"]
                for parameter in info["parameters"]
            }
            for name, info in endpoints.items()
        },
        {part["id"]: part["props"].get("server_fns") or () for part in page.config["components"]},
    )


def _respond(refusal: ApiError) -> Response:
    return JSONResponse({"detail": str(refusal)}, refusal.status, refusal.headers)


async def _wrong_values(request: Request, error: Exception) -> Response:
    """Respond to a request with values of the wrong types. FastAPI's own response would repeat
    the values, and it fails for numbers that JSON cannot express.
    """
    return _respond(ApiError(422, OTHER_VALUES))
