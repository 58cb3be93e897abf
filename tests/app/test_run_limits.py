"""Runs without an open stream are ended, and no visitor takes all slots."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import batch_page
import fake_source
import httpx
import pytest
from scripted_page import (
    TEXT,
    ScriptedBackend,
    eventually,
    make_handlers,
    page_served,
)
from visitor import Visitor, assert_serves

from app.api import runs
from app.gradio_compat import GradioQueue
from app.handlers import Handlers
from app.server import ServedPage
from app.server import serve as page_of
from app.serving import run_limits

Served = tuple[ServedPage, Handlers]


@pytest.fixture(scope="module", autouse=True)
def _short_grace() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_limits, "GRACE_SECONDS", 2.0)
        yield


@pytest.fixture(scope="module")
def backend() -> ScriptedBackend:
    return ScriptedBackend(TEXT * 100, 0.05)


@contextmanager
def serving(handlers: Handlers) -> Iterator[Served]:
    page = page_of(handlers, is_blocking=False)
    yield page, handlers
    page.close()
    handlers.engines.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, backend: ScriptedBackend) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("page")
    with serving(make_handlers(folder, backend, port=0, max_runs_per_address=100)) as made:
        yield made


def num_runs(handlers: Handlers) -> int:
    engine = handlers.engines.get("scripted").engine
    return engine.num_running + engine.num_waiting


def call(
    address: str, num_tokens: int, name: str = "generate", seen: str = "", **more: str
) -> httpx.Response:
    """Call an endpoint; its answer holds the id of the event. seen: what proxies saw."""
    body: dict[str, Any] = {"prompts": ["a"]} if name == "batch" else {"prompt": "a"}
    body |= {"method": "ar"} if name == "generate" else {}
    body |= {**more, "max_new_tokens": num_tokens}
    headers = {"x-forwarded-for": seen}
    path = f"{address}gradio_api/call/v2/{name}"
    return httpx.post(path, json=body, headers=headers, timeout=60)


def test_runs_without_a_stream_end(served: Served, backend: ScriptedBackend) -> None:
    page, handlers = served
    backend.forward_seconds = 0.05
    visitors = [Visitor(page.url) for _ in range(17)]
    with ThreadPoolExecutor(len(visitors)) as posts:
        posted = [posts.submit(visitor.run, pace=100, max_new_tokens=512) for visitor in visitors]
        assert eventually(lambda: num_runs(handlers) > 4)
        assert [item.result()[0] for item in posted] == [200] * len(visitors)
    assert call(page.url, 512).status_code == 200
    assert eventually(lambda: num_runs(handlers) == 0)
    line = GradioQueue(page.blocks)
    assert eventually(lambda: not line.events())
    assert eventually(lambda: not any(line.has_session(entry.session) for entry in visitors))
    backend.forward_seconds = 0.0
    assert_serves(Visitor(page.url))


def test_what_is_watched_goes_on_past_the_grace(served: Served, backend: ScriptedBackend) -> None:
    """A run of the page, and a call of an endpoint."""
    page, _ = served
    backend.forward_seconds = 0.1
    num_tokens = round((run_limits.GRACE_SECONDS + 0.3) / backend.forward_seconds)
    watching = Visitor(page.url)
    with ThreadPoolExecutor(1) as reader:
        assert watching.run(view="ar", max_new_tokens=num_tokens)[0] == 200
        streamed = reader.submit(watching.stream)
        event = call(page.url, num_tokens).json()["event_id"]
        answer = httpx.get(f"{page.url}gradio_api/call/generate/{event}", timeout=60)
        assert '"ended": "limit"' in answer.text
        assert '\\"reason\\":\\"limit\\"' in json.dumps(streamed.result()[-2])


def test_an_address_has_so_many_runs_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_limits, "GRACE_SECONDS", 60.0)
    backend = ScriptedBackend(TEXT, 0.2)
    with serving(make_handlers(tmp_path, backend, port=0, max_runs_per_address=3)) as (page, made):
        visitors = [Visitor(page.url) for _ in range(4)]
        chat = {"model": "scripted", "prompt": "a", "stream": True}
        with httpx.stream("POST", f"{page.url}v1/completions", json=chat, timeout=60) as stream:
            lines = stream.iter_lines()
            next(lines)
            assert [visitor.run(max_new_tokens=100)[0] for visitor in visitors[:2]] == [200] * 2
            assert visitors[3].run()[0] == 429
        assert eventually(lambda: visitors[2].run(max_new_tokens=100)[0] == 200)
        status, text = visitors[3].run()
        assert (status, run_limits.FULL.format(3) in text) == (429, True)
        assert call(page.url, 8).status_code == 429
        assert httpx.post(f"{page.url}v1/completions", json=chat).status_code == 429
        assert visitors[3].knobs()[0] == 200
        for visitor in visitors:
            made.live.stop(visitor.session)
        backend.forward_seconds = 0.0
        assert eventually(lambda: not GradioQueue(page.blocks).events())
        assert_serves(visitors[3])


def test_callers_who_leave_while_it_loads_hold_no_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "HEARTBEAT_SECONDS", 0.2)
    source = fake_source.FakeHub()
    made, _ = fake_source.make_handlers(tmp_path, source, port=0, max_runs=1, max_waiting=1)
    with serving(made) as (page, _):
        for name in ("generate", "batch", "compare"):
            event = call(page.url, 8, name, checkpoint="chat").json()["event_id"]
            with httpx.stream(
                "GET", f"{page.url}gradio_api/call/{name}/{event}", timeout=60
            ) as answer:
                assert any("Downloading chat" in line for line in answer.iter_lines())
        assert eventually(lambda: not GradioQueue(page.blocks).events())
        late = Visitor(page.url)
        assert late.run(checkpoint="tiny")[0] == 200
        assert '"reason":"limit"' in late.stream()[-2]["output"]["data"][0]
        source.go.set()


@pytest.mark.parametrize(("num_proxies", "is_distinct"), [(0, False), (1, True)])
def test_callers_are_distinguished_by_what_a_trusted_proxy_saw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_proxies: int, is_distinct: bool
) -> None:
    """What they wrote themselves is further left. An address has one run at a time here."""
    monkeypatch.setattr(run_limits, "GRACE_SECONDS", 60.0)
    backend = ScriptedBackend(TEXT * 100, 0.05)
    caps = {"num_proxies": num_proxies, "max_runs_per_address": 1}
    with serving(make_handlers(tmp_path, backend, port=0, **caps)) as (page, _):
        codes = [
            call(page.url, 200, name, f"6.6.6.6, 10.0.0.{number}").status_code
            for number, name in enumerate(("generate", "compare", "traces", "batch"))
        ]
    assert codes == [200, *[200 if is_distinct else 429] * 3]


@pytest.mark.slow
def test_tools_return_json_and_call_this_server_for_any_requested_host(tmp_path: Path) -> None:
    """Otherwise a caller could have the server call another one, and all later calls go there."""
    mcp = pytest.importorskip("mcp", reason='pip install "gradio[mcp]"')
    from mcp.client.streamable_http import streamablehttp_client

    async def call_tool(address: str, **headers: str) -> dict[str, Any]:
        async with (
            streamablehttp_client(address, headers) as (read, write, _),
            mcp.ClientSession(read, write) as client,
        ):
            await client.initialize()
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert tools == {"generate", "compare", "traces", "batch"}
            asked = {"prompt": "Say it.", "max_new_tokens": 9}
            called = await client.call_tool("generate", asked, timedelta(seconds=60))
            return json.loads(called.content[0].text)

    handlers, _ = batch_page.make_page(tmp_path, port=0)
    with socket.create_server(("127.0.0.1", 0)) as other, page_served(handlers) as url:
        other.setblocking(False)
        named = f"127.0.0.1:{other.getsockname()[1]}"
        headers = {"x-forwarded-host": named, "x-gradio-server": named}
        answer = asyncio.run(call_tool(f"{url}gradio_api/mcp/", **headers))
        with pytest.raises(BlockingIOError):
            other.accept()
    assert answer["num_tokens"] == 9
