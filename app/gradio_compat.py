"""All code of this app that depends on Gradio's internals.

Each part explains why Gradio's public interface is not enough, what the part achieves, and which
upstream issue exists. ``tests/app/test_gradio_compat.py`` detects changes after an upgrade. Times
and loads in the texts of this module are processor time, measured with Gradio 6.31 on two CPU
cores.

``app/__init__.py`` imports this module before Gradio. Therefore its functions import Gradio
themselves.
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

from mars_runtime.files.paths import ASSETS

if TYPE_CHECKING:
    import gradio as gr
    from fastapi import FastAPI
    from gradio.mcp import GradioMCPServer

log = logging.getLogger(__name__)

# Paths of the 21 of Gradio's 57 routes that the page needs. Gradio has no setting that disables the
# others, such as uploads, files, a proxy and deep links. Not reported to Gradio.

API = "/gradio_api"
CALLS = f"{API}/component_server"
"""Route for calls of server functions. Gradio passes the posted values on unchanged."""
EVENT = f"{API}/run/predict"
"""Route for events that are not queued."""
READ = re.compile(
    rf"/(config/?|theme\.css|robots\.txt|favicon\.ico|(assets|static)/[\w./-]{{1,200}})?"
    rf"|{API}/(info/?|openapi\.json|app_id/?|queue/data|heartbeat/\w{{1,64}}"
    rf"|call/(v2/)?\w+/\w{{1,64}})"
)
"""GET routes that the page and its endpoints use."""
WRITTEN = re.compile(rf"{EVENT}/?|{CALLS}/?|{API}/(queue/join|cancel|reset/?|call/(v2/)?\w+/?)")
"""POST routes that the page and its endpoints use."""
TOOLS = re.compile(rf"{API}/mcp(/.*)?")
EVENTS = re.compile(rf"{API}/queue/join|{EVENT}/?")
"""Routes to which the page posts an event. The number ``fn_index`` in the body selects the function
to call.
"""
NAMED = re.compile(rf"{API}/call/(?P<v2>v2/)?(?P<name>\w+)/?")
"""Routes that call an endpoint by its name."""
QUEUED = re.compile(rf"{API}/(queue/join|call/(v2/)?\w+/?)")
"""Routes that add an event to the queue."""
STREAM = f"{API}/queue/data"
"""Route for the stream of a session."""
CALLED = re.compile(rf"{API}/call/(v2/)?\w+/(?P<event>\w+)")
"""Route for the stream of a call."""

STUB_WRITER = "gradio.component_meta"


class _WriterFinder(MetaPathFinder):
    """Import hook that disables Gradio's module for writing type stubs when the module is
    imported.
    """

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
    """Prevent Gradio from writing type stubs.

    On import, Gradio parses the source of every component, this app's included, and writes a stub
    file next to it. mypy would read the stub instead of the source. Preventing this reduces the
    time to import Gradio from 2.03 s to 1.06 s. https://github.com/gradio-app/gradio/issues/7791
    """
    writer = sys.modules.get(STUB_WRITER)
    if writer is None:
        sys.meta_path.insert(0, _WriterFinder())
    else:  # Gradio was imported before this app
        _disable_writing(writer)


MAX_SESSIONS = 200


def store_few_sessions(page: gr.Blocks) -> None:
    """Reduce the number of sessions for which Gradio stores state. Gradio's default is 10,000.

    ``launch`` has a parameter for it, but ``gr.mount_gradio_app`` does not. Not reported to Gradio.
    """
    page.state_session_capacity = MAX_SESSIONS


QUEUE_PAUSE = 0.02  # seconds between two checks of the event queue


def poll_less_often(page: gr.Blocks) -> None:
    """Make Gradio check its event queue every 20 ms instead of every millisecond.

    This lowers the load of an idle server from 6.3 % to 1.5 % of a core. Not reported to Gradio.
    """
    page._queue.sleep_when_free = QUEUE_PAUSE


def log_without_values(describe: Callable[[BaseException], str]) -> None:
    """Make Gradio log where an event failed, as text from ``describe``, instead of printing the
    exception.

    The text of an exception may contain a visitor's input. Gradio can suppress this output for a
    ``gr.Error`` (https://github.com/gradio-app/gradio/issues/10136), but not for other exceptions.
    """
    from gradio import queueing, routes

    def log_place() -> None:
        error = sys.exc_info()[1]
        if error is not None:
            log.error("an event failed: %s", describe(error))

    for module in (queueing, routes):
        module.traceback = SimpleNamespace(print_exc=log_place)  # type: ignore[attr-defined]


CLOCK = ASSETS / "web" / "views" / "page" / "clock.js"
"""Script that stops Gradio's loading clock, which redraws every frame while the page is open. It
lowers the load of an idle page from 6.8 % to 0.1 % of a core in the browser. Not reported to
Gradio.
"""
MANIFEST = '<link rel="manifest" href="/manifest.json" />'
ICON = '<link rel="icon" href="favicon.ico" />'


def edit_document(text: str, root: str, scripts: str) -> str:
    """Return the page's document with the app's scripts added and absolute URLs removed.

    root: the URL at which Gradio was requested. It is replaced by ".", because behind a proxy that
    does not forward its port or folder, Gradio derives a URL that visitors cannot reach
    (https://github.com/gradio-app/gradio/issues/11714). The link to the manifest is also absolute;
    it is replaced by a link to the icon, which the browser would otherwise request outside the
    folder.

    scripts: elements for the end of the head, which run before Gradio's modules. The elements of
    Gradio's parameter ``head`` are inserted only by these modules
    (https://github.com/gradio-app/gradio/issues/6426).
    """
    named = rf'("root":|const root = )"{re.escape(root)}[^"]*"'
    text = re.sub(named, r'\1"."', text)
    text = text.replace(MANIFEST, ICON)
    clock = CLOCK.read_text("utf-8")
    text = text.replace("<head>", f"<head>\n<script>\n{clock}</script>", 1)
    return text.replace("</head>", f"{scripts}\n</head>", 1)


def adopt(page: gr.Blocks, app: FastAPI) -> None:
    """Make ``page.app`` the Gradio app that is mounted in ``app``.

    ``gr.mount_gradio_app`` does not do this. Without it, ``page.close`` would not end streams. Not
    reported to Gradio.
    """
    from starlette.routing import Mount

    (page.app,) = (route.app for route in app.routes if isinstance(route, Mount))  # type: ignore[assignment]


class GradioQueue:
    """Access to Gradio's event queue for ``serving/run_limits.py``.

    If a session never opens its stream, Gradio nevertheless stores its messages and runs its events
    for up to MARS_MAX_SECONDS (300). With this class, the app can end such events after 15 seconds.
    Not reported to Gradio.
    """

    def __init__(self, page: gr.Blocks) -> None:
        self._page = page

    def has_session(self, session: str) -> bool:
        """Whether Gradio has a message queue for this session; that queue may be empty."""
        return session in self._page._queue.pending_messages_per_session

    def session_of(self, event: str) -> str:
        """Return the session of the event with this id. If the event has ended, return the event
        id.
        """
        queued = self._page._queue.event_ids_to_events.get(event)
        return event if queued is None else queued.session_hash

    def events(self) -> list[tuple[int, Any]]:
        """Return the function number and the client of each queued or running event."""
        events = list(self._page._queue.event_ids_to_events.values())
        return [(event.fn._id, event.request.client) for event in events]

    async def forget(self, session: str) -> None:
        """Cancel a session's queued and running events, and drop its messages."""
        queue = self._page._queue
        await queue.clean_events(session_hash=session)
        queue.pending_messages_per_session.pop(session, None)
        queue.pending_event_ids_session.pop(session, None)


TOOL_SECONDS = 0.2  # time between two checks of whether a tool has begun


def has_tools() -> bool:
    """Whether the installed version of the package ``mcp`` works with Gradio's MCP server."""
    from gradio.mcp import GradioMCPServer

    return hasattr(GradioMCPServer, "StreamableHTTPSessionManager")


def make_tools(page: gr.Blocks, url: str) -> GradioMCPServer:
    """Return an MCP server whose tools are the typed endpoints. Gradio serves it with the page.

    url: the URL of the page. ``gr.mount_gradio_app`` has no such parameter
    (https://github.com/gradio-app/gradio/pull/11567 proposes one), so Gradio would call the host
    that a request names.

    Gradio's own MCP server has other problems: it blocks a thread for each call, continues a call
    after its client has disconnected (no upstream issue), and shows a URL in the error message of a
    rejected call. In this server, each returned value is one JSON text; no endpoint returns files.
    """
    from gradio.mcp import GradioMCPServer

    class Tools(GradioMCPServer):
        async def _execute_tool_without_progress(self, job: Any) -> list[Any]:
            result = asyncio.wrap_future(job.future)
            # Retrieve the exception; otherwise asyncio logs its text, which may contain user input.
            result.add_done_callback(lambda it: it.cancelled() or it.exception())
            with _cancelled_with_client(job), _with_plain_message():
                return [await asyncio.shield(result)]

        async def _execute_tool_with_progress(self, job: Any, progress_token: str | int) -> Any:
            with _cancelled_with_client(job), _with_plain_message():
                return await super()._execute_tool_with_progress(job, progress_token)

        def postprocess_output_data(self, data: Sequence[Any], root_url: str) -> list[Any]:
            texts = (json.dumps(value, ensure_ascii=False) for value in data)
            return [self.types.TextContent(type="text", text=text) for text in texts]

    tools = Tools(page)
    tools._local_url = url
    page.mcp_server_obj, page.mcp_server = tools, True
    return tools


@contextmanager
def _cancelled_with_client(job: Any) -> Iterator[None]:
    """Cancel the job when its client disconnects. A thread does it, because cancelling sends a
    request to this server.
    """
    try:
        yield
    except asyncio.CancelledError:
        threading.Thread(target=_cancel, args=[job], daemon=True).start()
        raise


def _cancel(job: Any) -> None:
    """Cancel a job once it has returned its first value, because Gradio cannot cancel it
    earlier.
    """
    import httpx

    while not job.done() and not job.outputs():
        time.sleep(TOOL_SECONDS)
    with suppress(httpx.HTTPError):  # the server has shut down
        job.cancel()


@contextmanager
def _with_plain_message() -> Iterator[None]:
    """Replace the error of a rejected call by its message, without the status and URL."""
    import httpx

    try:
        yield
    except httpx.HTTPStatusError as error:
        raise RuntimeError(error.response.json()["detail"]) from None
