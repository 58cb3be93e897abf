"""The page as an ASGI app, with the settings of a public demo, and the server that serves it.

Gradio's app is mounted in an app of our own, so the server, its limits and its middleware are ours.
The typed endpoints are also tools of an MCP server where ``gradio[mcp]`` is installed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import gradio as gr
import httpx
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from gradio import mcp, queueing, route_utils, routes
from jinja2 import ChoiceLoader, DictLoader
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount

from app.components import assets
from app.components.files import ADDRESSES, file_address, serve_file
from app.handlers import Handlers
from app.layout.page import build
from app.layout.theme import head, theme
from app.layout.wiring import RUN
from app.recordings import Recording
from app.review.routes import PATHS as REVIEW
from app.review.routes import make_review
from app.serving.documents import PACKED, Documents
from app.serving.endpoint import Beside, make_endpoint
from app.serving.routes import CALLS, OTHER_VALUES, Refusals, Routes, Takes
from app.serving.run_limits import RunLimits
from app.serving.settings import AppSettingsError
from mars_runtime.engine.backend import where
from mars_runtime.serving.app import PATHS as ENDPOINT
from mars_runtime.serving.errors import ApiError, Faults
from mars_runtime.serving.limits import BodyLimit, Proxies
from mars_runtime.serving.server import PlaceTakenError, Server, bound, url_of

log = logging.getLogger(__name__)
FILES = Middleware(Beside, endpoint=serve_file, paths=ADDRESSES)
"""Without which no view finds plotly.js."""
TOOL_SECONDS = 0.2  # between two looks at whether a tool has begun
QUEUE_PAUSE = 0.02  # seconds between two looks at the queue of events
START_SECONDS = 0.01  # between two checks of whether the server has started
CLOSE_SECONDS = 5.0  # that a server may take to end
MAX_SESSIONS = 200  # whose state Gradio stores


@dataclass(frozen=True, slots=True)
class ServedPage:
    """A page that is being served. url: its address on this machine, with a slash at the end."""

    blocks: gr.Blocks
    url: str
    server: Server
    thread: threading.Thread

    def wait(self) -> None:
        """Block until the server ends."""
        self.thread.join()

    def close(self) -> None:
        """End the server and the streams of its visitors."""
        self.server.leave()
        self.thread.join(CLOSE_SECONDS)


def serve(
    handlers: Handlers, is_blocking: bool = True, first: Recording | None = None
) -> ServedPage:
    """Serve until interrupted, or return the running page when ``is_blocking`` is off.

    first: the recorded run that visitors find, until they run something themselves.
    Nothing leaves the machine: no analytics, fonts or share link. Raises AppSettingsError where
    nothing can be served at the host and port.
    """
    settings = handlers.engines.settings
    try:
        listening = bound(settings.host, settings.port)
    except PlaceTakenError as error:
        raise AppSettingsError(str(error)) from error
    url = url_of(settings.host, listening.getsockname()[1])
    page = build(handlers, first)
    app = make_app(handlers, page, url)
    handlers.engines.before_serving()
    server = Server(app, partial(page.close, verbose=False), is_proxied=settings.num_proxies > 0)
    # In a thread: the main thread receives the signals, and ends the engines before the server.
    thread = threading.Thread(target=server.run, args=[[listening]], daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise RuntimeError("The page could not be started; the log says why.")
        time.sleep(START_SECONDS)
    served = ServedPage(page, f"{url}/", server, thread)
    if is_blocking:
        print(f"MARS live is at {url}", flush=True)
        served.wait()
    return served


def make_app(handlers: Handlers, page: gr.Blocks, url: str) -> FastAPI:
    """The app that serves the page. url: its address on this machine.

    No monitoring page, no uploads, no stack traces, no route that the app does not use
    (``routes.py``); the queue is bounded and cannot be bypassed.
    """
    settings = handlers.engines.settings
    page.queue(max_size=settings.max_waiting + 4, default_concurrency_limit=8, api_open=False)
    page.state_session_capacity = MAX_SESSIONS
    _look_less_often(page)
    _write_document()
    _log_without_values()
    lifespan = None
    if has_tools():
        # Not by ``mcp_server=True``, which makes a server of Gradio's own class.
        tools = Tools(page, url)
        page.mcp_server_obj, page.mcp_server, lifespan = tools, True, tools.lifespan
    app = FastAPI(
        openapi_url=None,
        middleware=_middleware(handlers, page),
        lifespan=lifespan,
    )
    gr.mount_gradio_app(
        app,
        page,
        path="",
        footer_links=["api"],  # hidden by page.css, but ``?view=api`` needs it
        run_history=False,
        app_kwargs={
            "middleware": [Middleware(Faults, respond=_respond)],
            "exception_handlers": {RequestValidationError: _misfit},
        },
        show_error=False,
        max_file_size="1mb",
        ssr_mode=False,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,
        theme=theme(),
        head=head(),
    )
    (mounted,) = (route.app for route in app.routes if isinstance(route, Mount))
    page.app = mounted  # type: ignore[assignment]  # else validators and ``close`` use another app
    return app


def _write_document() -> None:
    """Put into the document that gradio fills in ``clock.js``, before all else, and the page's own
    script, before gradio's: what ``head=`` holds comes later than its scripts.

    The document finds the server at its own address, not at the one that gradio derives from the
    headers of a proxy, which may lack a port or a folder. There is an icon, which browsers would
    look for outside the folder, and no manifest, which is not served.
    """
    loader, name = routes.templates.env.loader, "frontend/index.html"
    assert loader is not None
    if isinstance(loader, ChoiceLoader):  # a page was served before
        return
    clock = (assets.WEB / "views" / "page" / "clock.js").read_text("utf-8")
    script = f'<script src="{file_address("page.js")}"></script>'
    document, *_ = loader.get_source(routes.templates.env, name)
    icon = '<link rel="icon" href="favicon.ico" />'
    document = document.replace('<link rel="manifest" href="/manifest.json" />', icon)
    document = '{%- set config = dict(config, root=".") -%}\n' + document
    document = document.replace("<head>", f"<head>\n<script>\n{clock}</script>", 1)
    document = document.replace("</head>", f"{script}\n</head>", 1)
    routes.templates.env.loader = ChoiceLoader([DictLoader({name: document}), loader])


def _middleware(handlers: Handlers, page: gr.Blocks) -> list[Middleware]:
    """What a request passes before gradio sees it, the first one first: the endpoint for programs,
    what is reviewed and the page's files, which answer at their own addresses; what packs gradio's
    answers; small requests everywhere but where a recorded run is brought, which travels as JSON
    text; only to what is used; the document and configuration, rendered once; and only so many
    runs, for whoever watches them."""
    engines = handlers.engines
    settings = engines.settings
    review = make_review(handlers.library, handlers.making, settings)
    imports = {CALLS: 2 * settings.max_import_bytes}

    def is_run(event: object) -> bool:
        found = page.fns.get(event) if isinstance(event, int) else None
        return found is not None and found.concurrency_id == RUN

    return [
        Middleware(Faults, respond=_respond),
        Middleware(Proxies, number=settings.num_proxies),
        Middleware(Beside, endpoint=make_endpoint(engines), paths=ENDPOINT),
        Middleware(Beside, endpoint=review, paths=REVIEW),
        FILES,
        Middleware(GZipMiddleware, compresslevel=PACKED),
        Middleware(BodyLimit, max_bytes=settings.max_body_bytes, elsewhere=imports),
        Middleware(Refusals),
        Middleware(Routes, _takes(page), has_tools()),
        Middleware(Documents, origin_of=_origin),
        Middleware(
            RunLimits,
            line=lambda: page._queue,
            is_run=is_run,
            max_runs=settings.max_runs_per_address,
        ),
        # No page of another origin reads an answer. Gradio leaves that to the middleware of the app
        # that it is mounted in; its own would admit every port of localhost.
        Middleware(CORSMiddleware, allow_origins=()),
    ]


def _origin(request: Request, path: str) -> str:
    """The origin at which a client asks, as gradio reads it. Raises ValueError."""
    try:
        return str(route_utils.get_request_origin(request, path))
    except httpx.InvalidURL as error:
        raise ValueError(str(error)) from None


def _takes(page: gr.Blocks) -> Takes:
    endpoints = page.get_api_info()["named_endpoints"]
    return Takes(
        {number: len(event.inputs) for number, event in page.fns.items() if event.fn},
        {
            name.strip("/"): {
                each["parameter_name"]: each["parameter_has_default"] for each in info["parameters"]
            }
            for name, info in endpoints.items()
        },
        {part["id"]: part["props"].get("server_fns") or () for part in page.config["components"]},
    )


def _respond(refusal: ApiError) -> Response:
    return JSONResponse({"detail": str(refusal)}, refusal.status)


async def _misfit(request: Request, error: Exception) -> Response:
    """Instead of FastAPI's own answer, which repeats what was sent, or fails where JSON cannot."""
    return _respond(ApiError(422, OTHER_VALUES))


def _look_less_often(page: gr.Blocks) -> None:
    """Let gradio look at its queue fifty times a second instead of a thousand, and sum up the times
    of all events at none of them.

    Its default (``Queue.sleep_when_free`` of 1 ms, 50 ms on Windows) takes several percent of a
    core and of the interpreter lock from the decoding thread, visitors or not; the sums, for a page
    of monitoring that is not served, 3 to 9 ms for each event.
    """
    page._queue.sleep_when_free = QUEUE_PAUSE
    page._queue.progress_update_sleep_when_free = 1.0  # nothing here reports progress that way
    page._queue.ANAYLTICS_CACHE_FREQUENCY = sys.maxsize


def _log_without_values() -> None:
    """Let gradio log where something went wrong without the words of the exception.

    Its own hold what a visitor sent, such as all values of an event that got too few.
    """

    def where_it_was() -> None:
        error = sys.exc_info()[1]
        if error is not None:
            log.error("an event failed: %s", where(error))

    for module in (queueing, routes, route_utils):
        module.traceback = SimpleNamespace(print_exc=where_it_was)  # type: ignore[attr-defined]
    queueing.print = lambda *words: None  # type: ignore[attr-defined]  # the text of an exception


def has_tools() -> bool:
    """Whether the endpoints can be offered as tools: where gradio found all of the package that it
    was written for, which a plain ``pip install mcp`` does not bring."""
    return hasattr(Tools, "StreamableHTTPSessionManager")


class Tools(mcp.GradioMCPServer):
    """Gradio calls the page's own endpoints by HTTP, each call a job of its client.

    url: where the page is served. Without it Gradio would ask whatever host a request names.
    """

    def __init__(self, page: gr.Blocks, url: str) -> None:
        super().__init__(page)
        self._local_url = url

    async def _execute_tool_without_progress(self, job: Any) -> list[Any]:
        result = asyncio.wrap_future(job.future)
        result.add_done_callback(lambda it: it.cancelled() or it.exception())  # if nobody reads it
        with _ended_with_its_caller(job), _in_a_sentence():
            return [await asyncio.shield(result)]

    async def _execute_tool_with_progress(self, job: Any, progress_token: str | int) -> Any:
        with _ended_with_its_caller(job), _in_a_sentence():
            return await super()._execute_tool_with_progress(job, progress_token)

    def postprocess_output_data(self, data: Sequence[Any], root_url: str) -> list[Any]:
        """One text of JSON for each value; no endpoint gives files."""
        texts = (json.dumps(value, ensure_ascii=False) for value in data)
        return [self.types.TextContent(type="text", text=text) for text in texts]


@contextmanager
def _ended_with_its_caller(job: Any) -> Iterator[None]:
    """Cancelled where nobody reads on: in a thread, because it asks this server by HTTP."""
    try:
        yield
    except asyncio.CancelledError:
        threading.Thread(target=_cancel, args=[job], daemon=True).start()
        raise


def _cancel(job: Any) -> None:
    """Once it has given a value: gradio does not end what has given none yet."""
    while not job.done() and not job.outputs():
        time.sleep(TOOL_SECONDS)
    with suppress(httpx.HTTPError):  # the server has ended meanwhile
        job.cancel()


@contextmanager
def _in_a_sentence() -> Iterator[None]:
    """What was refused on the way to gradio says why, not which address refused it."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        raise RuntimeError(error.response.json()["detail"]) from None
