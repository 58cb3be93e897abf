"""What this app depends on inside Gradio is still where it was."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
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
ROOT = Path(__file__).parents[2]
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


def printed_by(module: object) -> set[str]:
    """What a module of Gradio's calls of ``traceback``."""
    return set(re.findall(r"\btraceback\.(\w+)", inspect.getsource(module)))  # type: ignore[arg-type]


def clocks() -> int:
    """How many scripts of Gradio's hold the clock that ``clock.js`` stops."""
    pattern = re.search(r"CLOCK = /\^(.*)/;", gradio_compat.CLOCK.read_text("utf-8"))
    assert pattern is not None
    scripts = (HERE / "templates" / "frontend" / "assets").glob("*.js")
    return sum(bool(re.search(pattern[1], script.read_text("utf-8"))) for script in scripts)


PARTS: dict[str, Callable[[gradio.Blocks], bool]] = {
    "Gradio's class of components no longer calls create_or_modify_pyi(class, name, events).": (
        lambda page: "create_or_modify_pyi(" in inspect.getsource(component_meta.ComponentMeta)
    ),
    "The function that writes stubs ran unchanged: Gradio was imported before app.": (
        lambda page: component_meta.create_or_modify_pyi.__name__ == "<lambda>"
    ),
    "Gradio's queue no longer waits sleep_when_free seconds between two checks.": (
        lambda page: (
            page._queue.sleep_when_free == gradio_compat.QUEUE_PAUSE
            and "asyncio.sleep(self.sleep_when_free)" in inspect.getsource(Queue.start_processing)
        )
    ),
    "Gradio no longer prints exceptions of events by traceback.print_exc alone.": (
        lambda page: printed_by(queueing) == printed_by(routes) == {"print_exc"}
    ),
    "Gradio's document names its root, its manifest or its head in another way.": (
        lambda page: (
            TEMPLATE.count(gradio_compat.MANIFEST) == 1
            and TEMPLATE.count("<head>") == TEMPLATE.count("</head>") == 1
            and "window.gradio_config = {{ config | toorjson }}" in TEMPLATE
            and "const root = {{ config.get('root', '') | toorjson }}" in TEMPLATE
        )
    ),
    "Gradio's loading clock is written in another way: see clock.js.": lambda page: clocks() > 0,
    "A page's app is no longer what its validators and its close() use.": (
        lambda page: (
            "app=self.blocks.app" in inspect.getsource(Queue.push)
            and "self.app.stop_event.set()" in inspect.getsource(gradio.Blocks.close)
            and has_route(page, "GET", "/config")
        )
    ),
    "Gradio's queue keeps events, sessions or messages in another place.": (
        lambda page: (
            page._queue.event_ids_to_events == page._queue.pending_event_ids_session == {}
            and "x" not in page._queue.pending_messages_per_session
            and "session_hash" in inspect.signature(Queue.clean_events).parameters
            and {"session_hash", "fn", "request"} <= inspect.signature(Event).parameters.keys()
            and all(fn._id == number for number, fn in page.fns.items())
        )
    ),
    "Gradio's MCP server calls tools, or keeps its address, in another way.": (
        lambda page: (
            not {
                "_execute_tool_without_progress",
                "_execute_tool_with_progress",
                "postprocess_output_data",
            }
            - vars(GradioMCPServer).keys()
            and "self._local_url" in inspect.getsource(GradioMCPServer)
            and page.mcp_server == (page.mcp_server_obj is not None)
        )
    ),
    "A page no longer takes an MCP server of its own: mcp_server_obj.": (
        lambda page: "blocks.mcp_server_obj.launch_mcp_on_sse(" in inspect.getsource(routes)
    ),
    "The capacity for sessions is no longer state_session_capacity.": (
        lambda page: page.app.state_holder.capacity == gradio_compat.MAX_SESSIONS
    ),
    **{
        f"Gradio has no route for GET {path}.": lambda page, path=path: (
            has_route(page, "GET", path) and bool(gradio_compat.READ.fullmatch(path))
        )
        for path in USED
    },
    **{
        f"Gradio has no route for POST {path}.": lambda page, path=path: (
            has_route(page, "POST", path) and bool(gradio_compat.WRITTEN.fullmatch(path))
        )
        for path in POSTED
    },
}
"""What has moved, in a sentence, and whether it is still there."""


def test_what_this_app_uses_inside_gradio_is_still_there(page: gradio.Blocks) -> None:
    """After an upgrade ``app/gradio_compat.py`` has to follow what moved."""
    moved = []
    for sentence, is_there in PARTS.items():
        try:
            actual = is_there(page)
        except (AttributeError, TypeError, KeyError):
            actual = False
        if not actual:
            moved.append(sentence)
    assert not moved, f"In gradio {gradio.__version__}: {' '.join(moved)}"


def test_the_document_has_this_app_s_scripts_and_no_absolute_address(address: str) -> None:
    text = httpx.get(address, headers={"x-forwarded-host": "a.example", "host": "b.localhost"}).text
    head = text.partition("</head>")[0]
    assert '"root":"."' in head
    assert 'const root = "."' in head
    assert "manifest" not in head
    assert head.index("requestAnimationFrame") < head.index("gradio_config")
    assert 'src="files/page.js/' in head
    assert not re.search(r'\b(src|href)="(/|http)', head)


@pytest.mark.parametrize("first", ["app", "gradio"])
def test_no_stub_is_written_next_to_a_component(tmp_path: Path, first: str) -> None:
    """Whether a script imports this app first, or Gradio."""
    source = tmp_path / "quiet_component.py"
    source.write_text("import gradio\n\n\nclass Quiet(gradio.HTML):\n    pass\n", "utf-8")
    script = f"import sys, {first}, app; sys.path.append(sys.argv[1]); import quiet_component"
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, cwd=ROOT)
    assert not source.with_suffix(".pyi").exists()
