"""The engine when things go wrong, and what it leaves behind: nothing."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mars_runtime.engine import Engine, EngineError, Request, RequestError
from mars_runtime.engine import engine as module
from mars_runtime.engine.backend import sentence
from mars_runtime.engine.engine import DEAD, FORKED
from mars_runtime.errors import DecodeError
from mars_runtime.runs import folds
from mars_runtime.runs.events import End, Event, Step
from mars_runtime.settings import DecodeSettings
from tests.engine.scripted import (
    FOREVER,
    Clock,
    Script,
    Settings,
    eventually,
    last,
    prefilled,
    request,
    steps,
)


@pytest.mark.parametrize("is_named", [False, True])
def test_a_fault_ends_the_runs_of_its_forward_or_those_that_it_names(is_named: bool) -> None:
    """A forward raises at its tenth step; other runs and the next request continue."""

    class Named(Script):
        def step(self, numbers: Sequence[int]) -> Step:
            try:
                return super().step(numbers)
            except RuntimeError:
                named = tuple(number for number in numbers if self.rows[number].token == 2)
                raise DecodeError("This row cannot be decoded.", named) from None

    start = threading.Event()
    script = (Named if is_named else Script)(fails_at={2: 10}, start=start)
    with Engine(script) as engine:
        bad, beside = engine.submit(request(2, 50)), engine.submit(request(1, 50))
        lanes = engine.race([request(3, 50), request(4, 50)])
        start.set()
        assert all(run.wait(120) for run in (bad, beside, *lanes))
        end = last(bad)
        assert end.reason == "error"
        assert end.message == (
            "This row cannot be decoded." if is_named else sentence(RuntimeError())
        )
        assert len(steps(bad)) == 10
        assert last(beside) == (End("limit") if is_named else end)
        assert len(steps(beside)) == (50 if is_named else 9)
        assert [last(run) for run in lanes] == [End("limit")] * 2
        assert list(engine.submit(request(1)))[-1] == End("limit")
        assert script.num_open == 0


def test_a_fault_while_reading_a_prompt_ends_that_run_alone() -> None:
    class Failing(Script):
        def prefill(self, number: int, at_most: int) -> int:
            if self.rows[number].token == 2:
                raise MemoryError
            return super().prefill(number, at_most)

    start = threading.Event()
    script = Failing(start=start)
    with Engine(script) as engine:
        good, bad = engine.submit(request(1, 9)), engine.submit(request(2, 9))
        start.set()
        assert good.wait(120)
        assert bad.wait(120)
        assert last(good) == End("limit")
        assert bad.events_since(0)[-1].reason == "error"  # type: ignore[union-attr]
        assert len(bad.events_since(0)) == 1
        assert script.num_open == 0


def test_errors_of_this_package_are_shown_as_they_are() -> None:
    script = Script(fails_at={1: 0}, error=RequestError("Shorten the prompt."))
    with Engine(script) as engine:
        assert list(engine.submit(request()))[-1] == End("error", "Shorten the prompt.")
        script.error = MemoryError()
        end = list(engine.submit(request()))[-1]
        assert "memory" in end.message


def test_who_closes_an_engine_waits_for_no_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.1)
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.1)
    go_on = threading.Event()
    script = Script()
    script.prepare = lambda: go_on.wait(60)  # type: ignore[method-assign,assignment,return-value]
    engine = Engine(script)
    closing = threading.Thread(target=engine.close)
    closing.start()
    closing.join(30)
    is_waiting = closing.is_alive()
    go_on.set()
    closing.join()
    assert not is_waiting


def test_no_reader_waits_forever_when_the_worker_dies() -> None:
    engine = Engine(Script(fails_at={1: 2}, error=SystemExit()))
    runs = [engine.submit(request()), engine.submit(request(2, FOREVER))]
    for run in runs:
        assert run.wait(120)
        end = last(run)
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
        assert folds.end(run.events_since(0)) == End("cancelled", "The server was stopped.")
        run.cancel()
    assert threading.active_count() == before
    assert script.num_open == 0
    with pytest.raises(EngineError, match="closed"):
        engine.submit(request())


def test_a_forward_that_hangs_ends_its_runs_and_those_that_wait() -> None:
    gate = threading.Event()
    engine = Engine(Script(gate=gate), max_runs=1, max_turn_seconds=0.1)
    runs = [engine.submit(request(token, FOREVER)) for token in (1, 2)]
    for run in runs:
        assert run.wait(60)
        assert last(run) == End("error", DEAD)
    assert not engine.is_alive
    with pytest.raises(EngineError, match="again"):
        engine.submit(request())
    num_events = len(runs[0].events_since(0))
    gate.set()  # the worker wakes up after all: nothing follows the end
    engine.close()
    assert len(runs[0].events_since(0)) == num_events


def test_a_pause_of_the_process_is_no_hang(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that was paused for longer than a forward may take continues to serve."""
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.01)
    gate = threading.Event()
    with Engine(Script(gate=gate), max_turn_seconds=60.0) as engine:
        run = engine.submit(request(1, 3))
        assert eventually(lambda: prefilled(run))
        clock.ahead = 300.0
        num_reads = clock.num_reads  # from now on by the watcher only
        assert eventually(lambda: clock.num_reads > num_reads + 3)
        assert engine.is_alive
        gate.set()
        assert list(run)[-1] == End("limit")


def test_the_log_of_a_fault_holds_no_word_of_the_prompt(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), Engine(Script(fails_at={1: 2})) as engine:
        assert len(list(engine.submit(request()))) == 4
    assert "RuntimeError" in caplog.text
    assert "scripted.py" in caplog.text
    assert "secret" not in caplog.text


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


@pytest.mark.parametrize(
    "num_cycles", [100, pytest.param(1000, marks=pytest.mark.slow)], ids="{} cycles".format
)
def test_submit_and_cancel_leave_nothing_behind(num_cycles: int) -> None:
    script = Script(seconds={1: 0.0005})
    with Engine(script, max_runs=2, max_waiting=4) as engine:

        def cycle() -> None:
            runs = [engine.submit(request(1, FOREVER), pace=float(n)) for n in range(3)]
            runs += engine.race([request(2, FOREVER), request(3, FOREVER)], pace=1.0)
            for run in runs:
                run.cancel()
            assert all(run.wait(120) for run in runs)

        for _ in range(20):
            cycle()
        threads = set(threading.enumerate())
        gc.collect()
        tracemalloc.start()
        cycle()
        base = tracemalloc.get_traced_memory()[0]
        for _ in range(num_cycles):
            cycle()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - base
        tracemalloc.stop()
        assert set(threading.enumerate()) <= threads  # threads of other tests may end at any time
        assert script.num_open == len(script.rows) == 0
        assert grown < 100_000
        assert engine.submit(request(2)).wait(120)


def test_a_handle_holds_nothing_of_the_decoder_after_the_end() -> None:
    class Cache:
        """Replaces tensors."""

    caches: list[weakref.ref[Cache]] = []

    class Holding(Script):
        def decode(self, request: Request, settings: Settings) -> Iterator[Event]:
            events = super().decode(request, settings)

            def holding() -> Iterator[Event]:
                cache: Any = Cache()
                caches.append(weakref.ref(cache))
                yield from events

            return holding()

    with Engine(Holding(fails_at={2: 3}, error=RuntimeError)) as engine:
        runs = engine.race([request(token, 5) for token in (1, 2)])
        runs += engine.race([request(1, FOREVER), request(3, FOREVER)], pace=1000.0)
        assert eventually(lambda: len(caches) == 4)
        for run in runs[2:]:
            run.cancel()
        assert all(run.wait(120) for run in runs)
        assert eventually(lambda: all(cache() is None for cache in caches))
        assert len(caches) == 4


# Processes that end, or fork, while threads of an engine work.

ROOT = Path(__file__).parents[2]
FORKING = """
import os, signal, sys, time
import mars_runtime.api, mars_runtime.engine.costs
from mars_runtime.errors import MarsError

def fork(work):
    if os.fork() == 0:
        signal.alarm(120)  # ends a process that hangs
        work()
        sys.exit(7)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)

def load(delay):
    kept.append(mars_runtime.api.load("mars-tiny"))
    time.sleep(delay)

def run():
    for call in (lambda: kept[0].generate("Hello"), lambda: kept[0].compare("Hello")):
        try:
            call()
        except MarsError as error:
            print(error)
    kept[0].close()

kept = []
fork(lambda: load(0.0))
fork(lambda: load(0.2))
load(0.0)
fork(run)
print(kept[0].generate("Hello", max_new_tokens=1).finish_reason, flush=True)
fork(run)
print(kept[0].generate("Hello", max_new_tokens=1).finish_reason, flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_processes_end_or_fork_during_the_warm_up_and_after_it() -> None:
    """A daemon thread that Python ends inside PyTorch would abort a process that loads and ends. In
    a process that was forked later the engine's worker is missing."""
    command = [sys.executable, "-W", "ignore", "-c", FORKING]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    forked = [FORKED, FORKED, "7"]
    assert done.stdout.splitlines() == ["7", "7", *forked, "limit", *forked, "limit"], done.stderr
    assert done.stderr == ""
