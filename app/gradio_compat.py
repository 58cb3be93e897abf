"""Everything in this app that depends on Gradio's internals.

Each part states why Gradio's public interface is not enough, what the part saves, and the upstream
issue. ``tests/app/test_gradio_compat.py`` reports what has changed after an upgrade. Figures:
Gradio 6.31 on two CPU cores, processor seconds.

``app/__init__.py`` imports this module before Gradio, so functions here import Gradio themselves.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from mars_runtime.places import ASSETS

if TYPE_CHECKING:
    import gradio as gr
    from fastapi import FastAPI
    from gradio.mcp import GradioMCPServer

log = logging.getLogger(__name__)

# Paths of Gradio's routes. The page needs 21 of the 57. Gradio has no setting that leaves out the
# others, such as uploads, files, a proxy and deep links. No upstream issue.

API = "/gradio_api"
CALLS = f"{API}/component_server"
"""Route for calls of server functions; Gradio passes their values on unchanged."""
EVENT = f"{API}/run/predict"
"""Route for events that skip the queue."""
READ = re.compile(
    rf"/(config/?|theme\.css|robots\.txt|favicon\.ico|(assets|static)/[\w./-]{{1,200}})?"
    rf"|{API}/(info/?|openapi\.json|app_id/?|queue/data|heartbeat/\w{{1,64}}"
    rf"|call/(v2/)?\w+/\w{{1,64}})"
)
"""Routes that the page and its endpoints read."""
WRITTEN = re.compile(rf"{EVENT}/?|{CALLS}/?|{API}/(queue/join|cancel|reset/?|call/(v2/)?\w+/?)")
"""Routes that they post to."""
TOOLS = re.compile(rf"{API}/mcp(/.*)?")
EVENTS = re.compile(rf"{API}/queue/join|{EVENT}/?")
"""Routes that take an event by its number."""
NAMED = re.compile(rf"{API}/call/(?P<v2>v2/)?(?P<name>\w+)/?")
"""Routes that call an endpoint by its name."""
QUEUED = re.compile(rf"{API}/(queue/join|call/(v2/)?\w+/?)")
"""Routes that take an event for the queue."""
STREAM = f"{API}/queue/data"
"""Route of a session's stream."""
CALLED = re.compile(rf"{API}/call/(v2/)?\w+/(?P<event>\w+)")
"""Route of a call's stream."""

STUB_WRITER = "gradio.component_meta"


class _WriterFinder(MetaPathFinder):
    """Finds Gradio's module that writes type stubs, as Python would, and disables its writing."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != STUB_WRITER:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            _disable_writing(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _disable_writing(module: ModuleType) -> None:
    module.__dict__["create_or_modify_pyi"] = lambda *_: None


def write_no_stubs() -> None:
    """Keep Gradio from writing type stubs.

    At each import Gradio parses the source of every component and compares it with a stub, which it
    writes next to the source, this app's own included; mypy then reads the stub instead. Import of
    Gradio: 1.06 s instead of 2.03 s. https://github.com/gradio-app/gradio/issues/7791
    """
    writer = sys.modules.get(STUB_WRITER)
    if writer is None:
        sys.meta_path.insert(0, _WriterFinder())
    else:  # a script imported Gradio before this app
        _disable_writing(writer)


MAX_SESSIONS = 200


def store_few_sessions(page: gr.Blocks) -> None:
    """Bound the number of sessions whose state Gradio stores, which is 10,000 by default.

    A parameter of ``launch``, but not of ``gr.mount_gradio_app``. No upstream issue.
    """
    page.state_session_capacity = MAX_SESSIONS


QUEUE_PAUSE = 0.02  # seconds between two checks of the queue


def poll_less_often(page: gr.Blocks) -> None:
    """Let Gradio check its queue of events every 20 ms instead of every millisecond.

    An idle server takes 1.5 % of a core instead of 6.3 %, decoding or not. No upstream issue.
    """
    page._queue.sleep_when_free = QUEUE_PAUSE


def log_without_values(describe: Callable[[BaseException], str]) -> None:
    """Make Gradio log where an event failed, by ``describe``, instead of printing the exception.

    The text of an exception may contain a visitor's input. Gradio can only suppress a ``gr.Error``
    (https://github.com/gradio-app/gradio/issues/10136), not other exceptions.
    """
    from gradio import queueing, routes

    def log_place() -> None:
        error = sys.exc_info()[1]
        if error is not None:
            log.error("an event failed: %s", describe(error))

    for module in (queueing, routes):
        module.traceback = SimpleNamespace(print_exc=log_place)  # type: ignore[attr-defined]
    queueing.print = lambda *_: None  # type: ignore[attr-defined]  # of what a validator raised


CLOCK = ASSETS / "web" / "views" / "page" / "clock.js"
"""A script that stops Gradio's loading clock, which redraws every frame while a page is open. The
browser of an idle page uses 0.1 % of a core instead of 6.8 %. No upstream issue.
"""
MANIFEST = '<link rel="manifest" href="/manifest.json" />'
ICON = '<link rel="icon" href="favicon.ico" />'


def edit_document(text: str, root: str, scripts: str) -> str:
    """Return the page's document with our scripts added and absolute addresses removed.

    root: the address at which Gradio was requested. The document gets "." instead: behind a proxy
    that does not forward its port or folder, Gradio derives an address that visitors cannot reach
    (https://github.com/gradio-app/gradio/issues/11714). The manifest has an absolute address; it is
    replaced by an icon, which a browser would otherwise request outside the folder.

    scripts: elements for the end of the head, which run before Gradio's modules. Gradio's own
    ``head`` is only inserted by those modules (https://github.com/gradio-app/gradio/issues/6426).
    """
    named = rf'("root":|const root = )"{re.escape(root)}[^"]*"'
    text = re.sub(named, r'\1"."', text)
    text = text.replace(MANIFEST, ICON)
    clock = CLOCK.read_text("utf-8")
    text = text.replace("<head>", f"<head>\n<script>\n{clock}</script>", 1)
    return text.replace("</head>", f"{scripts}\n</head>", 1)


def adopt(page: gr.Blocks, app: FastAPI) -> None:
    """Make the Gradio app that is mounted in ``app`` the one that the page refers to.

    ``gr.mount_gradio_app`` does not: validators would store session state in another app, and
    ``page.close`` would not end streams. No upstream issue.
    """
    from starlette.routing import Mount

    (page.app,) = (route.app for route in app.routes if isinstance(route, Mount))  # type: ignore[assignment]


class GradioQueue:
    """Access to Gradio's queue for ``serving/run_limits.py``.

    If a session never opens its stream, Gradio stores its events and messages and runs the events
    to their end: up to MARS_MAX_SECONDS (300) instead of 5. No upstream issue.
    """

    def __init__(self, page: gr.Blocks) -> None:
        self._page = page

    def has_session(self, session: str) -> bool:
        """Whether the queue has, or may get, messages for a session."""
        return session in self._page._queue.pending_messages_per_session

    def session_of(self, event: str) -> str:
        """Return the session of an event. For an event that has ended, return the event itself."""
        queued = self._page._queue.event_ids_to_events.get(event)
        return event if queued is None else queued.session_hash

    def events(self) -> list[tuple[int, Any]]:
        """Return the function number and the client of each queued or running event."""
        events = list(self._page._queue.event_ids_to_events.values())
        return [(event.fn._id, event.request.client) for event in events]

    async def forget(self, session: str) -> None:
        """Cancel a session's queued and running events and drop its messages."""
        queue = self._page._queue
        await queue.clean_events(session_hash=session)
        queue.pending_messages_per_session.pop(session, None)
        queue.pending_event_ids_session.pop(session, None)


TOOL_SECONDS = 0.2  # between two checks whether a tool has begun


def has_tools() -> bool:
    """Whether the installed ``mcp`` package has what Gradio's MCP server needs; other versions of
    it may not.
    """
    from gradio.mcp import GradioMCPServer

    return hasattr(GradioMCPServer, "StreamableHTTPSessionManager")


def make_tools(page: gr.Blocks, url: str) -> GradioMCPServer:
    """Return an MCP server with the typed endpoints as tools, which Gradio serves with the page.

    url: where the page is served. ``gr.mount_gradio_app`` has no such parameter
    (https://github.com/gradio-app/gradio/pull/11567 was to add it), so Gradio would call the host
    that a request names.

    Gradio's own server blocks a thread for each call, continues a call after its client has left
    (no upstream issue), and includes the address in the message of a rejected call. Each value
    becomes one JSON text; no endpoint returns files.
    """
    from gradio.mcp import GradioMCPServer

    class Tools(GradioMCPServer):
        async def _execute_tool_without_progress(self, job: Any) -> list[Any]:
            result = asyncio.wrap_future(job.future)
            # Read the exception; otherwise asyncio logs its text.
            result.add_done_callback(lambda it: it.cancelled() or it.exception())
            with _ended_with_its_caller(job), _in_a_sentence():
                return [await asyncio.shield(result)]

        async def _execute_tool_with_progress(self, job: Any, progress_token: str | int) -> Any:
            with _ended_with_its_caller(job), _in_a_sentence():
                return await super()._execute_tool_with_progress(job, progress_token)

        def postprocess_output_data(self, data: Sequence[Any], root_url: str) -> list[Any]:
            texts = (json.dumps(value, ensure_ascii=False) for value in data)
            return [self.types.TextContent(type="text", text=text) for text in texts]

    tools = Tools(page)
    tools._local_url = url
    page.mcp_server_obj, page.mcp_server = tools, True
    return tools


@contextmanager
def _ended_with_its_caller(job: Any) -> Iterator[None]:
    """Cancel the job when its client leaves. This is a request to this server, so it needs a
    thread.
    """
    try:
        yield
    except asyncio.CancelledError:
        threading.Thread(target=_cancel, args=[job], daemon=True).start()
        raise


def _cancel(job: Any) -> None:
    """Cancel a job after its first value; Gradio does not cancel it before."""
    import httpx

    while not job.done() and not job.outputs():
        time.sleep(TOOL_SECONDS)
    with suppress(httpx.HTTPError):  # the server has shut down
        job.cancel()


@contextmanager
def _in_a_sentence() -> Iterator[None]:
    """Raise a rejected call's own message, without its status and address."""
    import httpx

    try:
        yield
    except httpx.HTTPStatusError as error:
        raise RuntimeError(error.response.json()["detail"]) from None
