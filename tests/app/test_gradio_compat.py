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
from gradio import queueing, routes
from gradio.mcp import GradioMCPServer
from gradio.queueing import Event, Queue
from scripted_page import TEXT, ScriptedBackend, make_handlers

from app import gradio_compat
from app.page import build
from app.server import make_app

HERE = Path(gradio.__file__).parent
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


def test_what_this_app_uses_inside_gradio_is_still_there(page: gradio.Blocks) -> None:
    """What no other test would miss. After an upgrade ``app/gradio_compat.py`` has to follow."""
    queue = page._queue
    assert queue.sleep_when_free == gradio_compat.QUEUE_PAUSE
    assert "asyncio.sleep(self.sleep_when_free)" in inspect.getsource(Queue.start_processing)
    for module in (queueing, routes):  # exceptions are printed in one way, which is replaced
        assert set(re.findall(r"\btraceback\.(\w+)", inspect.getsource(module))) == {"print_exc"}
    clock = re.search(r"CLOCK = /\^(.*)/;", gradio_compat.CLOCK.read_text("utf-8"))
    scripts = (HERE / "templates" / "frontend" / "assets").glob("*.js")
    assert any(re.search(clock[1], script.read_text("utf-8")) for script in scripts)
    assert queue.event_ids_to_events == queue.pending_event_ids_session == {}
    assert "x" not in queue.pending_messages_per_session
    assert {"session_hash", "fn", "request"} <= inspect.signature(Event).parameters.keys()
    assert all(fn._id == number for number, fn in page.fns.items())
    assert vars(GradioMCPServer).keys() >= TOOLS
    assert "self._local_url" in inspect.getsource(GradioMCPServer)
    assert page.app.state_holder.capacity == gradio_compat.MAX_SESSIONS
    for method, paths, is_ours in (
        ("GET", USED, gradio_compat.READ),
        ("POST", POSTED, gradio_compat.WRITTEN),
    ):
        for path in paths:
            assert has_route(page, method, path), path
            assert is_ours.fullmatch(path), path


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
