"""Whoever starts runs and does not watch them, or starts too many, keeps nobody out."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fake_source
import pytest
from scripted_page import TEXT, ScriptedBackend, controls, make_handlers
from visitor import Visitor, assert_serves, post

from app.api import runs
from app.api.runs import compare, generate
from app.handlers import Handlers
from app.server import serve as page_of
from app.serving import run_limits


@pytest.fixture(scope="module", autouse=True)
def _short_grace() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_limits, "GRACE_SECONDS", 2.0)
        yield


@pytest.fixture(scope="module")
def backend() -> ScriptedBackend:
    return ScriptedBackend(TEXT * 100, 0.05)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, backend: ScriptedBackend) -> Iterator[Any]:
    """The page as it is served, but that one address may have as many runs as there are places."""
    made = make_handlers(tmp_path_factory.mktemp("page"), backend, port=0, max_runs_per_address=100)
    page = page_of(made, is_blocking=False)
    yield page, made
    page.close()
    made.engines.close()


def num_runs(handlers: Handlers) -> int:
    served = handlers.engines.get("scripted")
    assert served is not None
    return len(served.engine._scheduler)


def eventually(condition: Any, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    return bool(condition())


def call(address: str, num_tokens: int) -> tuple[int, str]:
    """Ask the endpoint for plain AR; its answer holds the id of the event."""
    values = {"prompt": "Say it.", "method": "ar", "max_new_tokens": num_tokens}
    return post(address, "gradio_api/call/v2/generate", json.dumps(values).encode())


def test_runs_that_nobody_watches_are_ended_and_forgotten(
    served: tuple[Any, Handlers], backend: ScriptedBackend
) -> None:
    """Seventeen posts in the slowest motion, each of another session, no stream opened."""
    page, handlers = served
    backend.forward_seconds = 0.05
    visitors = [Visitor(page.url) for _ in range(17)]
    with ThreadPoolExecutor(len(visitors)) as posts:
        posted = [posts.submit(each.run, pace=100, max_new_tokens=512) for each in visitors]
        assert eventually(lambda: num_runs(handlers) > 4, 10)
        assert [each.result()[0] for each in posted] == [200] * len(visitors)
    assert eventually(lambda: num_runs(handlers) == 0, run_limits.GRACE_SECONDS + 10)
    queue = page.blocks._queue
    assert eventually(lambda: not queue.event_ids_to_events, 10)
    assert eventually(lambda: not queue.pending_messages_per_session, 10)
    assert eventually(lambda: not queue.pending_event_ids_session, 10)
    backend.forward_seconds = 0.0
    assert_serves(Visitor(page.url))


def test_so_are_calls_of_the_endpoints(
    served: tuple[Any, Handlers], backend: ScriptedBackend
) -> None:
    page, handlers = served
    backend.forward_seconds = 0.05
    assert call(page.url, 512)[0] == 200
    assert eventually(lambda: num_runs(handlers) == 1, 10)
    assert eventually(lambda: num_runs(handlers) == 0, run_limits.GRACE_SECONDS + 10)


def test_a_run_that_is_watched_goes_on(
    served: tuple[Any, Handlers], backend: ScriptedBackend
) -> None:
    page, _ = served
    backend.forward_seconds = 0.1
    visitor = Visitor(page.url)
    seconds = run_limits.GRACE_SECONDS + 1.0
    num_tokens = round(seconds / backend.forward_seconds)
    began = time.monotonic()
    assert visitor.run(view="ar", max_new_tokens=num_tokens)[0] == 200
    done = visitor.stream()[-2]
    assert time.monotonic() - began > seconds
    assert done["success"]
    assert '"reason":"limit"' in json.dumps(done).replace('\\"', '"').replace(": ", ":")


def test_a_page_that_is_slow_to_listen_still_hears_what_it_opens_with(
    served: tuple[Any, Handlers],
) -> None:
    page, _ = served
    visitor = Visitor(page.url)
    (opening,) = (
        each["id"]
        for each in page.blocks.config["dependencies"]
        if [what for _, what in each["targets"]] == ["load"] and each["queue"] is not False
    )
    body = {"data": ["scripted", 4], "fn_index": opening, "session_hash": visitor.session}
    assert post(page.url, "gradio_api/queue/join", json.dumps(body).encode())[0] == 200
    time.sleep(run_limits.GRACE_SECONDS + 1.0)
    assert any(message["msg"] == "process_completed" for message in visitor.stream())


def test_an_endpoint_that_is_read_goes_on(
    served: tuple[Any, Handlers], backend: ScriptedBackend
) -> None:
    page, _ = served
    backend.forward_seconds = 0.1
    num_tokens = round((run_limits.GRACE_SECONDS + 1.0) / backend.forward_seconds)
    address = page.url + "gradio_api/call/generate"
    status, text = call(page.url, num_tokens)
    assert status == 200
    with urllib.request.urlopen(f"{address}/{json.loads(text)['event_id']}", timeout=60) as answer:
        assert '"ended": "limit"' in answer.read().decode()


def test_slow_motion_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Every place is taken by races in the slowest motion, watched ones."""
    backend = ScriptedBackend(TEXT, 0.005)
    handlers = make_handlers(tmp_path, backend, max_runs=2, max_waiting=4)
    slow = [handlers.live.run(str(n), controls(pace=100, max_new_tokens=200)) for n in range(2)]
    try:
        for stream in slow:
            while '"step"' not in next(stream):
                pass
        began = time.monotonic()
        value = list(handlers.live.run("late", controls(max_new_tokens=10)))[-1]
        assert '"reason":"limit"' in value
        # 400 forwards of 5 ms with rests of 0.5 s each would be two hundred seconds.
        assert time.monotonic() - began < 30
    finally:
        for stream in slow:
            stream.close()
        handlers.engines.close()


def test_an_address_has_so_many_runs_at_once(tmp_path: Path) -> None:
    backend = ScriptedBackend(TEXT, 0.2)
    handlers = make_handlers(tmp_path, backend, port=0, max_runs_per_address=3)
    page = page_of(handlers, is_blocking=False)
    try:
        visitors = [Visitor(page.url) for _ in range(4)]
        assert [visitor.run(max_new_tokens=100)[0] for visitor in visitors[:3]] == [200] * 3
        status, text = visitors[3].run()
        assert (status, run_limits.FULL.format(3) in text) == (429, True)
        assert call(page.url, 8)[0] == 429
        assert visitors[3].knobs()[0] == 200
        for visitor in visitors:
            handlers.live.stop(visitor.session)
        backend.forward_seconds = 0.0
        assert eventually(lambda: not page.blocks._queue.event_ids_to_events, 20)
        assert_serves(visitors[3])
    finally:
        page.close()
        handlers.engines.close()


@pytest.fixture(scope="module")
def loading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A page of one place whose checkpoint "chat" never comes."""
    source = fake_source.FakeSource()
    folder = tmp_path_factory.mktemp("loading")
    handlers, _ = fake_source.make_handlers(folder, source, port=0, max_runs=1, max_waiting=1)
    page = page_of(handlers, is_blocking=False)
    yield page
    source.go.set()
    page.close()
    handlers.engines.close()


@pytest.mark.parametrize("name", ["generate", "compare", "traces", "batch"])
def test_callers_who_leave_while_it_loads_hold_no_places(
    loading: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As many as there are places; the checkpoint they asked for never comes."""
    monkeypatch.setattr(runs, "HEARTBEAT_SECONDS", 0.2)
    asked = {"prompts": ["Say it."]} if name == "batch" else {"prompt": "Say it."}
    body = json.dumps({**asked, "checkpoint": "chat"}).encode()
    for _ in range(3):
        status, told = post(loading.url, f"gradio_api/call/v2/{name}", body)
        assert status == 200
        address = f"{loading.url}gradio_api/call/{name}/{json.loads(told)['event_id']}"
        with urllib.request.urlopen(address, timeout=60) as answer:
            answer.readline()
    assert eventually(lambda: not loading.blocks._queue.event_ids_to_events, 10)
    late = Visitor(loading.url)
    assert late.run(checkpoint="tiny")[0] == 200
    assert '"reason":"limit"' in late.stream()[-2]["output"]["data"][0]


@pytest.mark.parametrize("endpoint", [generate, compare])
def test_callers_read_what_they_wait_for(tmp_path: Path, endpoint: Any) -> None:
    source = fake_source.FakeSource()
    handlers, _ = fake_source.make_handlers(tmp_path, source, max_seconds=20)
    values = {**controls(max_new_tokens=4), "checkpoint": "chat", "method": "mars"}
    answers = endpoint(handlers.engines, handlers.book, values)
    first = next(answers)
    source.go.set()
    *_, last = answers
    handlers.engines.close()
    assert "Fetching chat" in json.dumps(first)
    assert first.keys() == last.keys()
    assert '"ended": "limit"' in json.dumps(last)
    assert "Fetching" not in json.dumps(last)


@pytest.mark.parametrize(
    ("num_proxies", "owners"),
    [(0, {"127.0.0.1"}), (1, {"10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3"}), (3, {"127.0.0.1"})],
)
def test_callers_of_the_endpoints_are_told_apart_by_what_a_trusted_proxy_saw(
    tmp_path: Path, num_proxies: int, owners: set[str]
) -> None:
    """Whatever they wrote themselves stands further left."""
    backend = ScriptedBackend(TEXT * 100, 0.05)
    handlers = make_handlers(tmp_path, backend, port=0, num_proxies=num_proxies)
    page = page_of(handlers, is_blocking=False)
    try:
        scheduler = handlers.engines.get("scripted").engine._scheduler  # type: ignore[union-attr]
        seen: set[str] = set()  # a run to which nobody listens ends after a few seconds
        for n, name in enumerate(("generate", "compare", "traces", "batch")):
            asked: dict[str, Any] = {"prompts": ["a"]} if name == "batch" else {"prompt": "a"}
            request = urllib.request.Request(
                f"{page.url}gradio_api/call/v2/{name}",
                json.dumps({**asked, "max_new_tokens": 200}).encode(),
                {"content-type": "application/json", "x-forwarded-for": f"6.6.6.6, 10.0.0.{n}"},
            )
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert answer.status == 200
            num_before = len(seen)
            is_new = len(owners) > 1 or not seen

            def has_come(wanted: int = num_before + is_new) -> bool:
                seen.update(job.owner for job in scheduler._jobs())
                return len(seen) >= wanted

            assert eventually(has_come, 10)
        assert seen == owners
    finally:
        page.close()
        handlers.engines.close()
