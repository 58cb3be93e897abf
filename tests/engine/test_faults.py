"""The engine when things go wrong, and what it leaves behind: nothing."""

from __future__ import annotations

import gc
import threading
import tracemalloc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from mars_runtime import folds
from mars_runtime.engine import Engine, EngineError, Request, RequestError
from mars_runtime.events import End, Event, Prefill
from mars_runtime.settings import DecodeSettings
from tests.engine.scripted import FOREVER, Script, Settings, eventually, last, request, steps


def test_a_fault_ends_its_own_run_with_a_sentence() -> None:
    script = Script(fails_at={2: 10})
    with Engine(script) as engine:
        good, bad = engine.submit(request(1, 50)), engine.submit(request(2, 50))
        assert bad.wait(120)
        assert good.wait(120)
        end = last(bad)
        assert isinstance(end, End)
        assert end.reason == "error"
        assert "RuntimeError" in end.message
        assert "secret" not in end.message
        assert len(steps(bad)) == 10
        assert last(good) == End("limit")
        assert engine.submit(request(1)).wait(120)
        assert script.num_open == 0


def test_errors_of_this_package_are_shown_as_they_are() -> None:
    script = Script(fails_at={1: 0}, error=RequestError("Shorten the prompt."))
    with Engine(script) as engine:
        assert list(engine.submit(request()))[-1] == End("error", "Shorten the prompt.")
        script.error = MemoryError()
        end = list(engine.submit(request()))[-1]
        assert isinstance(end, End)
        assert "memory" in end.message


def test_a_decoder_that_stops_too_early_is_an_error() -> None:
    script = Script()
    script.decode = lambda asked, settings: iter([Prefill(1)])  # type: ignore[method-assign]
    with Engine(script) as engine:
        end = list(engine.submit(request()))[-1]
        assert isinstance(end, End)
        assert end.reason == "error"


def test_failing_warm_up_does_not_stop_the_service() -> None:
    script = Script()
    script.prepare = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    with Engine(script) as engine:
        assert engine.submit(request()).wait(120)


def test_no_reader_waits_forever_when_the_worker_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    script = Script(fails_at={1: 2})
    script.error = SystemExit()  # type: ignore[assignment]
    engine = Engine(script)
    runs = [engine.submit(request()), engine.submit(request(2, FOREVER))]
    for run in runs:
        assert run.wait(120)
        end = last(run)
        assert isinstance(end, End)
        assert end.reason == "error"
    with pytest.raises(EngineError, match=r"\.$"):
        engine.submit(request())
    engine.close()


def test_close_ends_every_run_and_the_thread() -> None:
    before = threading.active_count()
    script = Script(seconds={1: 0.002})
    engine = Engine(script, max_runs=1)
    runs = [engine.submit(request(1, FOREVER)) for _ in range(3)]
    engine.close()
    engine.close()
    for run in runs:
        assert run.wait(0)
        assert folds.end(run.events_since(0)) == End("cancelled", "The engine was closed.")
        run.cancel()
    assert threading.active_count() == before
    assert script.num_open == 0
    with pytest.raises(EngineError, match="closed"):
        engine.submit(request())


def test_bad_requests_never_reach_the_worker() -> None:
    settings = DecodeSettings()
    for prompt, deadline in (((), 1.0), ((-1,), 1.0), ((1.5,), 1.0), ((1,), 0.0)):
        with pytest.raises(RequestError, match=r"\.$"):
            Request(prompt, settings, deadline)  # type: ignore[arg-type]
    for deadline in (float("nan"), float("inf"), 1e9):
        with pytest.raises(RequestError, match=r"\.$"):
            Request((1,), settings, deadline)
    with Engine(Script()) as engine:
        for requests in ([], [request()] * 9):
            with pytest.raises(RequestError, match=r"\.$"):
                engine.race(requests)


def test_many_readers_see_the_same_events() -> None:
    with Engine(Script(seconds={1: 0.001})) as engine:
        run = engine.submit(request(1, 30))
        seen: list[list[Event]] = [[] for _ in range(3)]
        readers = [threading.Thread(target=lambda out=out: out.extend(run)) for out in seen]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(120)
    assert [tuple(events) for events in seen] == [run.events_since(0)] * 3


def test_200_cycles_of_submit_and_cancel_leave_nothing_behind() -> None:
    script = Script(seconds={1: 0.0005})
    with Engine(script, max_runs=2, max_waiting=4) as engine:

        def cycle() -> None:
            runs = [engine.submit(request(1, FOREVER), pace=float(n)) for n in range(3)]
            for run in runs:
                run.cancel()
            assert all(run.wait(120) for run in runs)

        for _ in range(20):
            cycle()
        threads = threading.active_count()
        gc.collect()
        tracemalloc.start()
        cycle()
        base = tracemalloc.get_traced_memory()[0]
        for _ in range(200):
            cycle()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - base
        tracemalloc.stop()
        assert threading.active_count() == threads
        assert script.num_open == 0
        assert grown < 100_000
        assert engine.submit(request(2)).wait(120)


def test_a_handle_holds_nothing_of_the_decoder_after_the_end() -> None:
    class Cache:
        """Stands for tensors."""

    caches: list[weakref.ref[Cache]] = []

    class Holding(Script):
        def decode(self, asked: Request, settings: Settings) -> Iterator[Event]:
            events = super().decode(asked, settings)

            def holding() -> Iterator[Event]:
                cache: Any = Cache()
                caches.append(weakref.ref(cache))
                yield from events

            return holding()

    with Engine(Holding(fails_at={2: 3}, error=RuntimeError)) as engine:
        runs = [engine.submit(request(token, 5)) for token in (1, 2)]
        runs.append(engine.submit(request(1, FOREVER), pace=1000.0))
        assert eventually(lambda: len(caches) == 3)
        runs[2].cancel()
        assert all(run.wait(120) for run in runs)
        assert eventually(lambda: all(cache() is None for cache in caches))
        assert len(caches) == 3
