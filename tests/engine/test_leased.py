"""Leased runs: events, steering, ends, limits, and the settings that both processes share."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mars_runtime.engine import Engine, EngineBusy, EngineError, Request
from mars_runtime.engine.backend import check_fits
from mars_runtime.engine.leased.engine import LeasedEngine
from mars_runtime.engine.leased.worker import (
    OUT_OF_TIME,
    Call,
    Lease,
    LeaseError,
    News,
    SharedSettings,
    Worker,
    open_checkpoint,
)
from mars_runtime.model.load import load_checkpoint
from mars_runtime.runs.events import End, Event, Prefill, Step
from mars_runtime.runs.folds import accepted_tokens
from mars_runtime.settings import DecodeSettings
from tests.engine.forked_worker import ABORTED, ForkedWorkers
from tests.engine.scripted import FOREVER, Script, eventually, last, request, steps

if TYPE_CHECKING:
    from mars_runtime.engine.engine import BaseEngine
    from mars_runtime.engine.run import Run
    from mars_runtime.model.load import Checkpoint


FORWARD = 0.005
FOREVER_LONG = request(1, FOREVER)


class Counted(Script):
    """A scripted backend with forwards that tests count, and hold up, from outside its process."""

    def __init__(self, counter: Any, is_held: Any, **changes: Any) -> None:
        super().__init__(**changes)
        self.counter, self.is_held = counter, is_held

    def _forward(self, rows: list[Any]) -> Step:
        self.counter.value += 1
        while self.is_held.value:
            time.sleep(0.001)
        return super()._forward(rows)


class Setting:
    """An engine, its processes and the number of forwards that they have done."""

    def __init__(self) -> None:
        self.num_forwards, self.is_held = RawValue("q", 0), RawValue("b", False)

        def open_backend(name: str) -> Script:
            every = dict.fromkeys(range(9), FORWARD)
            return Counted(self.num_forwards, self.is_held, seconds=every)

        self.workers = ForkedWorkers(Worker(open_backend).decode)
        self.opened: list[LeasedEngine] = []
        self.engine = self.open(self.workers.lease)

    def open(self, lease: Lease, **caps: int) -> LeasedEngine:
        engine = LeasedEngine("scripted", lease, lambda request: None, 5000, **caps)
        self.opened.append(engine)
        return engine

    def close(self) -> None:
        for engine in self.opened:
            engine.close()
        self.workers.end()


def begun(run: Run) -> bool:
    return len(steps(run)) > 2


@pytest.fixture
def lent() -> Iterator[Setting]:
    with closing(Setting()) as made:
        yield made


def test_a_run_is_decoded_in_another_process_to_its_end(lent: Setting) -> None:
    run = lent.engine.submit(request(5, 20))
    events = list(run)
    assert [step.rows[0].accepted for step in steps(run)] == [(5,)] * 20
    assert events[-1] == End("limit")
    assert run.clock == pytest.approx(sum(getattr(event, "seconds", 0.0) for event in events))
    assert lent.num_forwards.value == 20
    for _ in range(3):
        assert list(lent.engine.submit(request(1, 2)))[-1] == End("limit")


def test_a_moved_slider_acts_on_the_next_forward(lent: Setting) -> None:
    """Set before the forward after the one in flight, and never taken back."""
    run = lent.engine.submit(FOREVER_LONG)
    assert eventually(lambda: begun(run))
    for tau in (0.5, 0.25):
        before = lent.num_forwards.value
        run.settings = replace(run.settings, tau=tau)
        after = lent.num_forwards.value
        assert eventually(lambda wanted=tau: steps(run)[-1].rows[0].settings.tau == wanted)
        taus = [step.rows[0].settings.tau for step in steps(run)]
        assert before <= taus.index(tau) <= after + 1
        assert set(taus[taus.index(tau) :]) == {tau}
    run.cancel()


def test_stop_acts_within_one_forward_and_the_reader_need_not_wait_for_it(lent: Setting) -> None:
    run = lent.engine.submit(FOREVER_LONG)
    assert eventually(lambda: begun(run))
    lent.is_held.value = True
    run.cancel()
    assert run.wait(60)
    assert last(run) == End("cancelled")
    assert lent.workers.busy
    at = lent.num_forwards.value
    lent.is_held.value = False
    assert eventually(lambda: not lent.workers.busy)
    assert lent.num_forwards.value <= at + 1


def test_a_process_that_is_killed_costs_its_run_alone(lent: Setting) -> None:
    runs = [lent.engine.submit(request(token, FOREVER)) for token in (1, 2)]
    assert eventually(lambda: all(map(begun, runs)))
    lent.workers.busy[0].kill()
    assert eventually(lambda: any(run.is_finished for run in runs))
    assert [last(run) for run in runs if run.is_finished] == [End("error", ABORTED)]
    for run in runs:
        run.cancel()
        assert run.wait(60)
    for _ in range(3):
        assert list(lent.engine.submit(request(4, 5)))[-1] == End("limit")
    assert lent.engine.is_alive


REFUSAL = "You have used up your quota: try again in 2:00:00."
SECRET = "secret words of the prompt"


@pytest.mark.parametrize(
    ("error", "said"), [(LeaseError(REFUSAL), REFUSAL), (ZeroDivisionError(SECRET), "run it again")]
)
def test_what_a_lease_raises_is_a_sentence_and_the_next_run_works(
    lent: Setting, caplog: Any, error: Exception, said: str
) -> None:
    errors = [error]

    def lease(call: Call) -> Generator[News, None, None]:
        if errors:
            raise errors.pop()
        yield from lent.workers.lease(call)

    engine = lent.open(lease)
    (end,) = engine.submit(request(1))
    assert end.reason == "error"
    assert said in end.message
    assert SECRET not in end.message + caplog.text
    assert ("ZeroDivisionError" in caplog.text) == isinstance(error, ZeroDivisionError)
    assert list(engine.submit(request(1)))[-1] == End("limit")


def test_a_run_that_waits_for_a_device_shows_it_and_can_be_cancelled(lent: Setting) -> None:
    gate = threading.Event()

    def lease(call: Call) -> Generator[News, None, None]:
        assert gate.wait(60)
        yield from lent.workers.lease(call)

    engine = lent.open(lease, max_runs=1, max_waiting=2)
    first, second, third = (engine.submit(request(1, 5)) for _ in range(3))
    with pytest.raises(EngineBusy, match="Try again"):
        engine.submit(request(1))
    assert [run.num_ahead for run in (first, second, third)] == [0, 1, 2]
    assert [run.is_awaiting_device for run in (first, second, third)] == [True, False, False]
    for run in (second, first):
        run.cancel()
        assert run.wait(60)
        assert list(run) == [End("cancelled")]
    assert third.num_ahead == 0
    late = engine.submit(request(1, 5, deadline=0.05))
    assert late.wait(60)
    assert last(late) == End("deadline", "The time limit of 0.05 s was reached.")
    gate.set()
    assert third.wait(60)
    assert last(third) == End("limit")
    assert not third.is_awaiting_device


def test_a_run_ends_before_the_time_that_was_asked_for_does(monkeypatch: Any) -> None:
    monkeypatch.setattr("mars_runtime.engine.leased.worker.MOST_SECONDS", 2.2)
    with closing(Setting()) as lent:
        assert list(lent.engine.submit(FOREVER_LONG))[-1] == End("deadline", OUT_OF_TIME)


def test_a_worker_whose_caller_has_gone_stops(lent: Setting) -> None:
    ended: list[Event] = []

    def lease(call: Call) -> Generator[News, None, None]:
        for news in lent.workers.lease(call):
            call.path.unlink(missing_ok=True)
            ended.extend(event for _, event in news.events if isinstance(event, End))
            yield news

    assert lent.open(lease).submit(FOREVER_LONG).wait(60)
    assert eventually(lambda: ended == [End("cancelled")])


def test_the_time_that_is_asked_for_follows_prompt_and_answer(tmp_path: Path) -> None:
    def seconds(*lanes: Request) -> float:
        shared = SharedSettings(0.0, tuple(lane.settings for lane in lanes), ())
        return Call(tmp_path, "", lanes, (), shared).seconds

    read = Request((1,) * 2000, DecodeSettings(max_new_tokens=5))
    few, many = request(1, 5), request(1, 500)
    assert seconds(few) < seconds(many) < seconds(many, many)
    assert seconds(few) < seconds(read)


def test_closing_ends_what_runs_and_refuses_more(lent: Setting) -> None:
    run = lent.engine.submit(FOREVER_LONG)
    assert eventually(lambda: begun(run))
    lent.engine.close()
    assert last(run) == End("cancelled", "The server was stopped.")
    assert not lent.engine.is_alive
    with pytest.raises(EngineError):
        lent.engine.submit(request(1))
    assert eventually(lambda: not lent.workers.busy)


def test_the_device_is_requested_in_the_context_of_the_caller(lent: Setting) -> None:
    """ZeroGPU finds the visitor, for the quota, in context variables."""
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


def test_no_process_reads_a_part_of_settings_that_are_written(tmp_path: Path) -> None:
    path = tmp_path / "settings"
    old, new = (SharedSettings(pace, (AR, MARS), (False, True)) for pace in (1.0, 2.0))
    old.write(path)
    with path.open("rb") as reader:
        new.write(path)
        assert pickle.loads(reader.read()) == old
    assert pickle.loads(path.read_bytes()) == new


CAPACITY = 400
MARS = DecodeSettings(tau=0.6, block_size=8, max_new_tokens=40)
AR = DecodeSettings(method="ar", max_new_tokens=40)
LOSSLESS = replace(MARS, lossless=True, tau=0.0)
GROUPS = replace(LOSSLESS, block_size=4, mask_layout="every", lookup=True)
SAMPLED = replace(MARS, temperature=0.8, seed=3)


@pytest.fixture(scope="module")
def tiny() -> Checkpoint:
    return load_checkpoint("mars-tiny", device="cpu")


@pytest.fixture(scope="module")
def prompt(tiny: Checkpoint) -> list[int]:
    return tiny.tokenizer.encode_prompt("Tom has 3 apples and buys 4 more. How many has he now?")


@pytest.fixture(scope="module")
def engines(tiny: Checkpoint) -> Iterator[list[BaseEngine]]:
    """The ordinary engine, and one with a leased device."""
    worker = Worker(lambda name: open_checkpoint(tiny))
    workers = ForkedWorkers(worker.decode, num=1)
    check = partial(check_fits, tiny.model, capacity=CAPACITY)
    leased = LeasedEngine("mars-tiny", workers.lease, check, CAPACITY)
    with Engine(tiny) as ordinary:
        ordinary.costs()
        yield [ordinary, leased]
    leased.close()
    workers.end()


def untimed(events: Iterator[Event]) -> list[Event]:
    return [
        replace(event, seconds=0.0) if isinstance(event, (Prefill, Step)) else event
        for event in events
    ]


@pytest.mark.parametrize("settings", [GROUPS, SAMPLED])
def test_a_run_alone_is_the_ordinary_one_to_the_event(engines, prompt, settings) -> None:
    request = Request(prompt, settings, is_checked=True)
    first, other = (untimed(engine.submit(request, is_alone=True)) for engine in engines)
    assert first == other
    assert first[-1].reason in ("eos", "limit")


def test_a_race_is_the_ordinary_one_lane_by_lane(engines, prompt) -> None:
    requests = [Request(prompt, LOSSLESS), Request(prompt, AR)]
    first, other = ([untimed(run) for run in engine.race(requests)] for engine in engines)
    assert [lane[1:] for lane in first] == [lane[1:] for lane in other]
    assert accepted_tokens(other[0]) == accepted_tokens(other[1])
