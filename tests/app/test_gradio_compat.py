"""What this app depends on inside Gradio is still where it was."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import fastapi
import gradio
import httpx
import pytest
from gradio import component_meta, queueing, routes
from gradio.mcp import GradioMCPServer
from gradio.queueing import Event, Queue
from scripted_page import TEXT, ScriptedBackend, make_handlers

from app import gradio_compat
from app.page import build
from app.server import make_app

HERE = Path(gradio.__file__).parent
TEMPLATE = (HERE / "templates" / "frontend" / "index.html").read_text("utf-8")
USED = [
    *["/", "/config", "/theme.css", "/robots.txt", "/favicon.ico", "/assets/a.js", "/static/a.js"],
    *["/gradio_api/info", "/gradio_api/openapi.json", "/gradio_api/app_id"],
    *["/gradio_api/queue/data", "/gradio_api/heartbeat/a"],
    *["/gradio_api/call/a/b", "/gradio_api/call/v2/a/b"],
]
POSTED = [
    *["/gradio_api/run/predict", "/gradio_api/component_server", "/gradio_api/queue/join"],
    *["/gradio_api/cancel", "/gradio_api/reset", "/gradio_api/call/a", "/gradio_api/call/v2/a"],
]
TOOLS = {
    *("_execute_tool_without_progress", "_execute_tool_with_progress", "postprocess_output_data")
}


@pytest.fixture
def page(tmp_path: Path) -> Iterator[gradio.Blocks]:
    """A page with its app made, but not served."""
    handlers = make_handlers(tmp_path, ScriptedBackend(TEXT), port=0)
    made = build(handlers)
    make_app(handlers, made, "http://127.0.0.1:1")
    yield made
    handlers.engines.close()


def has_route(page: gradio.Blocks, method: str, path: str) -> bool:
    scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
    matches = [route.matches(scope)[0] for route in page.app.routes]
    return fastapi.routing.Match.FULL in matches


def wrong_parts(page: gradio.Blocks) -> Iterator[tuple[str, bool]]:
    """What has moved, and whether it has."""
    queue = page._queue
    yield (
        "create_or_modify_pyi of components",
        (
            "create_or_modify_pyi(" not in inspect.getsource(component_meta.ComponentMeta)
            or component_meta.create_or_modify_pyi.__name__ != "<lambda>"
        ),
    )
    yield (
        "pause of the queue",
        (
            queue.sleep_when_free != gradio_compat.QUEUE_PAUSE
            or "asyncio.sleep(self.sleep_when_free)"
            not in inspect.getsource(Queue.start_processing)
        ),
    )
    printed = [re.findall(r"\btraceback\.(\w+)", inspect.getsource(m)) for m in (queueing, routes)]
    yield (
        "exceptions are printed by traceback.print_exc",
        any(set(names) != {"print_exc"} for names in printed),
    )
    yield (
        "root, manifest or head of the document",
        (
            TEMPLATE.count(gradio_compat.MANIFEST) != 1
            or not TEMPLATE.count("<head>") == TEMPLATE.count("</head>") == 1
            or "window.gradio_config = {{ config | toorjson }}" not in TEMPLATE
            or "const root = {{ config.get('root', '') | toorjson }}" not in TEMPLATE
        ),
    )
    clock = re.search(r"CLOCK = /\^(.*)/;", gradio_compat.CLOCK.read_text("utf-8"))
    scripts = (HERE / "templates" / "frontend" / "assets").glob("*.js")
    yield (
        "loading clock, see clock.js",
        not any(clock and re.search(clock[1], script.read_text("utf-8")) for script in scripts),
    )
    yield (
        "app of a page",
        (
            "app=self.blocks.app" not in inspect.getsource(Queue.push)
            or "self.app.stop_event.set()" not in inspect.getsource(gradio.Blocks.close)
        ),
    )
    yield (
        "events, sessions and messages of the queue",
        not (
            queue.event_ids_to_events == queue.pending_event_ids_session == {}
            and "x" not in queue.pending_messages_per_session
            and "session_hash" in inspect.signature(Queue.clean_events).parameters
            and {"session_hash", "fn", "request"} <= inspect.signature(Event).parameters.keys()
            and all(fn._id == number for number, fn in page.fns.items())
        ),
    )
    yield (
        "tools and address of the MCP server",
        (
            not vars(GradioMCPServer).keys() >= TOOLS
            or "self._local_url" not in inspect.getsource(GradioMCPServer)
            or "blocks.mcp_server_obj.launch_mcp_on_sse(" not in inspect.getsource(routes)
            or page.mcp_server != (page.mcp_server_obj is not None)
        ),
    )
    capacity = page.app.state_holder.capacity
    yield "capacity for sessions", capacity != gradio_compat.MAX_SESSIONS
    for method, path, is_ours in (
        *(("GET", path, gradio_compat.READ) for path in USED),
        *(("POST", path, gradio_compat.WRITTEN) for path in POSTED),
    ):
        yield f"{method} {path}", not (has_route(page, method, path) and is_ours.fullmatch(path))


def test_what_this_app_uses_inside_gradio_is_still_there(page: gradio.Blocks) -> None:
    """After an upgrade ``app/gradio_compat.py`` has to follow what moved."""
    assert [name for name, is_moved in wrong_parts(page) if is_moved] == []


def test_the_document_has_this_app_s_scripts_and_no_absolute_address(address: str) -> None:
    text = httpx.get(address, headers={"x-forwarded-host": "a.example", "host": "b.localhost"}).text
    head = text.partition("</head>")[0]
    assert '"root":"."' in head
    assert 'const root = "."' in head
    assert "manifest" not in head
    assert head.index("requestAnimationFrame") < head.index("gradio_config")
    assert 'src="files/page.js/' in head
    assert not re.search(r'\b(src|href)="(/|http)', head)


def test_no_stub_is_written_next_to_a_component(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "quiet_component.py"
    source.write_text("import gradio\n\n\nclass Quiet(gradio.HTML):\n    pass\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("quiet_component")
    assert not source.with_suffix(".pyi").exists()
