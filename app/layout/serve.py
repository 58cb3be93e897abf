"""Serves the page with the settings of a public demo. Knows gradio's launch; builds nothing."""

from __future__ import annotations

from importlib.util import find_spec

import gradio as gr
from starlette.middleware import Middleware

from app.handlers import Handlers
from app.layout.page import build
from app.layout.theme import head, theme
from app.limits import BodyLimit
from app.replay.recordings import Recording
from app.settings import AppSettings, AppSettingsError

QUEUE_PAUSE = 0.02  # seconds between two looks at the queue of events
IMPORT_PATH = "/gradio_api/component_server"  # where gradio takes calls of server functions
TAKEN = (
    "Nothing can be served at {0.host}:{0.port}, which is taken or not of this machine: choose "
    "another --port (0 takes any that is free) or --host."
)


def serve(
    handlers: Handlers, is_blocking: bool = True, first: Recording | None = None
) -> gr.Blocks:
    """Serve until interrupted, or return the running page when ``is_blocking`` is off.

    first: the recorded run that visitors find, until they run something themselves.
    Nothing leaves the machine: no analytics, fonts or share link. No monitoring page, no uploads,
    no stack traces; the queue is bounded and cannot be gone round. Raises AppSettingsError where
    nothing can be served at the host and port.
    """
    settings = handlers.settings
    page = build(handlers, first)
    page.queue(max_size=settings.max_waiting + 4, default_concurrency_limit=8, api_open=False)
    _calm(page)
    try:
        page.launch(
            server_name=settings.host,
            server_port=settings.port or None,
            theme=theme(),
            head=head(),
            share=False,
            show_error=False,
            enable_monitoring=False,
            run_history=False,
            mcp_server=has_tools(),
            ssr_mode=False,
            pwa=False,
            footer_links=["api"],  # hidden by app.css, but ``?view=api`` needs it
            max_file_size="1mb",
            state_session_capacity=200,
            app_kwargs={"middleware": [_body_limit(settings)]},
            prevent_thread_lock=not is_blocking,
        )
    except OSError as error:
        raise AppSettingsError(TAKEN.format(settings)) from error
    return page


def has_tools() -> bool:
    """Whether the endpoints can be offered as MCP tools: with the optional ``gradio[mcp]`` only."""
    return find_spec("mcp") is not None


def _body_limit(settings: AppSettings) -> Middleware:
    """Small requests everywhere but where a recorded run is brought, which travels as JSON text."""
    imports = {IMPORT_PATH: 2 * settings.max_import_bytes}
    return Middleware(BodyLimit, max_bytes=settings.max_body_bytes, elsewhere=imports)


def _calm(page: gr.Blocks) -> None:
    """Let gradio look at its queue fifty times a second instead of a thousand.

    Its default (``Queue.sleep_when_free`` of 1 ms, 50 ms on Windows) takes several percent of a
    core and of the interpreter lock from the decoding thread, visitors or not.
    """
    page._queue.sleep_when_free = QUEUE_PAUSE
    page._queue.progress_update_sleep_when_free = 1.0  # nothing here reports progress that way
