"""Waiting for a lent device, the time it is lent for, and what is refused."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from mars_runtime.engine import EngineBusy, EngineError, Request, RequestError, Solo
from mars_runtime.engine.leased import Call, LeasedEngine, News
from mars_runtime.engine.request import Asked
from mars_runtime.events import End, Event
from mars_runtime.settings import DecodeSettings
from tests.engine.leased_setting import FOREVER_LONG, Setting, begun, setting
from tests.engine.scripted import Settings, eventually, last, request


@pytest.fixture
def lent() -> Iterator[Setting]:
    with setting() as made:
        yield made


def test_who_waits_is_told_how_many_are_ahead_and_when_it_is_for_a_device(lent: Setting) -> None:
    gate = threading.Event()

    def lease(call: Call) -> Generator[News, None, None]:
        assert gate.wait(60)
        yield from lent.workers.lease(call)

    engine = lent.open(lease, max_runs=1, max_waiting=2)
    first, second, third = (engine.submit(request(1, 5)) for _ in range(3))
    with pytest.raises(EngineBusy, match="try again"):
        engine.submit(request(1))
    assert [run.place for run in (first, second, third)] == [0, 1, 2]
    assert [run.is_awaiting_device for run in (first, second, third)] == [True, False, False]
    second.cancel()
    assert second.wait(5)
    assert third.place == 1
    gate.set()
    assert first.wait(60)
    assert third.wait(60)
    assert last(third) == End("limit")
    assert not first.is_awaiting_device
    engine.close()


def test_who_leaves_while_waiting_for_a_device_makes_room_at_once(lent: Setting) -> None:
    gate = threading.Event()

    def lease(call: Call) -> Generator[News, None, None]:
        assert gate.wait(60)
        yield from lent.workers.lease(call)

    engine = lent.open(lease, max_runs=1, max_waiting=0)
    run = engine.submit(request(1, 5))
    run.cancel()
    assert run.wait(5)
    assert list(run) == [End("cancelled")]
    gate.set()
    assert list(engine.submit(request(2, 5)))[-1] == End("limit")
    engine.close()


def test_a_deadline_holds_while_a_device_is_waited_for(lent: Setting) -> None:
    gate = threading.Event()

    def lease(call: Call) -> Generator[News, None, None]:
        gate.wait(60)
        yield News()

    engine = lent.open(lease)
    run = engine.submit(request(1, 5, deadline=0.05))
    assert run.wait(5)
    assert last(run) == End("deadline", "The time limit of 0.05 s is over.")
    gate.set()
    engine.close()


def test_a_run_ends_before_the_time_that_was_asked_for_does(monkeypatch: Any) -> None:
    monkeypatch.setattr("mars_runtime.engine.leased.calls.MOST_SECONDS", 2.2)
    with setting() as lent:
        run = lent.engine.submit(FOREVER_LONG)
        end = list(run)[-1]
        assert isinstance(end, End)
        assert end.reason == "deadline"
        assert "fewer tokens" in end.message
        assert begun(run)


def test_the_time_that_is_asked_for_follows_prompt_and_answer(lent: Setting) -> None:
    asked: list[Call] = []

    def lease(call: Call) -> Generator[News, None, None]:
        asked.append(call)
        yield News()

    engine = lent.open(lease)
    long = Request((1,) * 2000, DecodeSettings(max_new_tokens=5))
    for lanes in ([request(1, 5)], [request(1, 500)], [request(1, 500)] * 2, [long]):
        assert all(run.wait(60) for run in engine.race(lanes))
    few, many, race, read = [call.seconds for call in asked]
    assert few < many < race
    assert few < read
    engine.close()


def test_closing_ends_what_runs_and_refuses_more(lent: Setting) -> None:
    run = lent.engine.submit(FOREVER_LONG)
    assert eventually(lambda: begun(run))
    lent.engine.close()
    assert last(run) == End("cancelled", "The engine was closed.")
    assert not lent.engine.is_alive
    with pytest.raises(EngineError):
        lent.engine.submit(request(1))
    assert eventually(lambda: not lent.workers.busy)


def test_slots_come_back_whatever_happens(lent: Setting) -> None:
    for _ in range(20):  # more often than there are slots
        run = lent.engine.submit(request(1, 2))
        assert run.wait(60)
    assert eventually(lambda: len(lent.slots._free) == 8)


def test_what_cannot_be_sent_to_another_process_is_a_sentence(lent: Setting) -> None:
    def decode(model: object, vocabulary: object, settings: Settings) -> Iterator[Event]:
        raise AssertionError

    (end,) = lent.engine.solo(decode, DecodeSettings())
    assert isinstance(end, End)
    assert end.reason == "error"
    assert list(lent.engine.submit(request(1)))[-1] == End("limit")


def test_what_is_refused_is_refused_before_anything_is_lent(lent: Setting) -> None:
    def check(asked: Asked) -> None:
        assert isinstance(asked, (Request, Solo))
        raise RequestError("Too long.")

    engine = LeasedEngine("scripted", lent.workers.lease, lent.slots, check, 10)
    with pytest.raises(RequestError, match="Too long"):
        engine.submit(request(1))
    engine.close()


def test_the_device_is_asked_for_in_the_context_of_whoever_asked(lent: Setting) -> None:
    """ZeroGPU finds the visitor whose quota it is in context variables."""
    visitor: ContextVar[str] = ContextVar("visitor", default="nobody")
    seen: list[str] = []

    def lease(call: Call) -> Generator[News, None, None]:
        seen.append(visitor.get())
        yield from lent.workers.lease(call)

    engine = lent.open(lease)
    for name in ("one", "another"):
        visitor.set(name)
        engine.submit(request(1, 2)).wait(60)
    assert seen == ["one", "another"]
    engine.close()
