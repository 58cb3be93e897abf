"""Leased runs: events, steering, ends, limits, and the settings that both processes share."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from mars_runtime.decoders.baselines import decode_batch
from mars_runtime.engine import Engine, EngineBusy, EngineError, Request, RequestError, Solo
from mars_runtime.engine.backend import check_fits
from mars_runtime.engine.leased.engine import LeasedEngine
from mars_runtime.engine.leased.worker import (
    SLOT_BYTES,
    Call,
    LeaseError,
    News,
    Reader,
    SharedMemory,
    SharedSettings,
    Worker,
    open_checkpoint,
)
from mars_runtime.engine.request import Asked
from mars_runtime.events import End, Event, Prefill, Step
from mars_runtime.model.load import load_checkpoint
from mars_runtime.settings import DecodeSettings
from tests.engine.forked_worker import ABORTED, ForkedWorkers
from tests.engine.leased_setting import FOREVER_LONG, Setting, begun, setting
from tests.engine.scripted import FOREVER, eventually, last, request, steps

if TYPE_CHECKING:
    from mars_runtime.decoders.base import SettingsSource, Vocabulary
    from mars_runtime.engine.base import BaseEngine
    from mars_runtime.engine.run import Run
    from mars_runtime.model.forward import CausalModel
    from mars_runtime.model.load import Checkpoint


@pytest.fixture
def lent() -> Iterator[Setting]:
    with setting() as made:
        yield made


def test_a_run_is_decoded_in_another_process_to_its_end(lent: Setting) -> None:
    run = lent.engine.submit(request(5, 20))
    events = list(run)
    assert [step.rows[0].accepted for step in steps(run)] == [(5,)] * 20
    assert events[-1] == End("limit")
    assert run.clock == pytest.approx(sum(getattr(event, "seconds", 0.0) for event in events))
    assert lent.num_forwards.value == 20


@pytest.mark.timed
def test_a_moved_slider_is_seen_in_mid_run_within_three_tenths_of_a_second(lent: Setting) -> None:
    run = lent.engine.submit(FOREVER_LONG)
    assert eventually(lambda: begun(run))
    for tau in (0.5, 0.25, 0.75):
        run.settings = replace(run.settings, tau=tau)
        moved = time.monotonic()
        assert eventually(lambda now=tau: steps(run)[-1].rows[0].settings.tau == now, 5)
        assert time.monotonic() - moved < 0.3
    assert not run.is_finished
    run.cancel()


def test_a_moved_slider_acts_on_the_next_forward(lent: Setting) -> None:
    """Told before the forward after the one in flight, and never taken back."""
    run = lent.engine.submit(FOREVER_LONG)
    assert eventually(lambda: begun(run))
    for tau in (0.5, 0.25):
        before = lent.num_forwards.value
        run.settings = replace(run.settings, tau=tau)
        after = lent.num_forwards.value
        assert eventually(lambda now=tau: steps(run)[-1].rows[0].settings.tau == now)
        told = [step.rows[0].settings.tau for step in steps(run)]
        assert before <= told.index(tau) <= after + 1
        assert set(told[told.index(tau) :]) == {tau}
    run.cancel()


def test_stop_acts_within_one_forward_and_the_reader_need_not_wait_for_it() -> None:
    with setting(seconds=0.3) as lent:
        run = lent.engine.submit(FOREVER_LONG)
        assert eventually(lambda: lent.num_forwards.value > 1)
        at, began = lent.num_forwards.value, time.monotonic()
        run.cancel()
        assert run.wait(5)
        assert last(run) == End("cancelled")
        assert time.monotonic() - began < 0.25
        assert eventually(lambda: not lent.workers.busy)
        assert lent.num_forwards.value <= at + 1


def test_stop_of_one_lane_leaves_the_other_going(lent: Setting) -> None:
    one, other = lent.engine.race([request(1, FOREVER), request(2, 60)])
    assert eventually(lambda: begun(one))
    one.cancel()
    assert other.wait(60)
    assert last(one) == End("cancelled")
    assert last(other) == End("limit")


def test_slow_motion_begins_and_ends_in_mid_run(lent: Setting) -> None:
    run = lent.engine.submit(FOREVER_LONG, pace=2000.0)
    assert eventually(lambda: lent.num_forwards.value == 1)
    time.sleep(0.2)
    assert lent.num_forwards.value == 1
    run.pace = 0.0
    assert eventually(lambda: begun(run))
    run.cancel()
    assert run.wait(5)


def test_a_run_in_slow_motion_stops_at_once(lent: Setting) -> None:
    run = lent.engine.submit(FOREVER_LONG, pace=10_000.0)
    assert eventually(lambda: lent.num_forwards.value == 1)
    run.cancel()
    assert eventually(lambda: not lent.workers.busy, 10)
    assert lent.num_forwards.value == 1


@pytest.mark.parametrize("is_fresh", [False, True])
def test_a_process_that_is_killed_costs_its_run_alone(is_fresh: bool) -> None:
    with setting(is_fresh=is_fresh) as lent:
        runs = [lent.engine.submit(request(token, FOREVER)) for token in (1, 2)]
        assert eventually(lambda: all(map(begun, runs)))
        lent.workers.busy[0].kill()
        assert eventually(lambda: any(run.is_finished for run in runs))
        assert [last(run) for run in runs if run.is_finished] == [End("error", ABORTED)]
        for run in runs:
            run.cancel()
            assert run.wait(5)
        for _ in range(3):
            assert list(lent.engine.submit(request(4, 5)))[-1] == End("limit")
        assert lent.engine.is_alive


def test_a_process_that_is_killed_ends_each_of_its_lanes_once(lent: Setting) -> None:
    lanes = lent.engine.race([request(token, FOREVER) for token in (1, 2, 3)])
    assert eventually(lambda: all(map(begun, lanes)))
    (process,) = lent.workers.busy
    process.kill()
    for lane in lanes:
        assert lane.wait(10)
        ends = [event for event in lane.events_since(0) if isinstance(event, End)]
        assert ends == [End("error", ABORTED)]
    again = lent.engine.race([request(token, 5) for token in (1, 2, 3)])
    assert [list(lane)[-1] for lane in again] == [End("limit")] * 3


def test_a_refusal_is_a_sentence_and_the_next_run_works(lent: Setting) -> None:
    refusals = iter(["You have used up your quota: try again in 2:00:00."])

    def lease(call: Call) -> Generator[News, None, None]:
        for sentence in refusals:
            raise LeaseError(sentence)
        yield from lent.workers.lease(call)

    engine = lent.open(lease)
    refused = list(engine.submit(request(1)))
    assert refused == [End("error", "You have used up your quota: try again in 2:00:00.")]
    assert list(engine.submit(request(1)))[-1] == End("limit")
    engine.close()


def test_a_fault_of_a_forward_is_a_sentence_without_the_prompt(lent: Setting) -> None:
    end = list(lent.engine.submit(request(66, 9)))[-1]
    assert isinstance(end, End)
    assert end.reason == "error"
    assert "secret" not in end.message
    assert list(lent.engine.submit(request(1)))[-1] == End("limit")


def test_a_fault_nobody_foresaw_is_a_sentence_too(lent: Setting, caplog: Any) -> None:
    words = "secret words of the prompt"

    def lease(call: Call) -> Generator[News, None, None]:
        yield News()
        raise ZeroDivisionError(words)

    engine = lent.open(lease)
    end = list(engine.submit(request(1)))[-1]
    assert isinstance(end, End)
    assert "run it again" in end.message
    assert words not in caplog.text
    assert "ZeroDivisionError" in caplog.text
    engine.close()


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
    monkeypatch.setattr("mars_runtime.engine.leased.worker.MOST_SECONDS", 2.2)
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
    def decode(*parts: object) -> Iterator[Event]:
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


FIRST = SharedSettings(7, 0.0, (DecodeSettings(),), (False,))


def orders(number: int) -> SharedSettings:
    """All parts say the same number, so that a mixture of two would show."""
    settings = DecodeSettings(seed=number, max_new_tokens=1 + number % 4096)
    return SharedSettings(7, float(number), (settings,) * (1 + number % 4), (bool(number % 2),))


def test_a_reader_begins_with_what_it_was_given_and_sees_each_change() -> None:
    slots = SharedMemory(2)
    reader = Reader(slots, 1, FIRST)
    assert reader.latest() is FIRST
    for number in range(1, 5):
        slots.write(1, replace(FIRST, pace=float(number)))
        slots.write(0, replace(FIRST, call=8, pace=100.0))
        assert reader.latest().pace == number
        assert reader.latest() is reader.latest()


def test_a_slot_that_went_to_another_call_ends_whoever_reads_it_still() -> None:
    slots = SharedMemory(1)
    reader = Reader(slots, 0, FIRST)
    slots.write(0, replace(FIRST, call=8, pace=3.0))
    assert reader.latest() == replace(FIRST, is_stopped=(True,))


def test_half_a_writing_is_not_taken_and_looked_at_again() -> None:
    slots = SharedMemory(1)
    slots.write(0, orders(1))
    reader = Reader(slots, 0, FIRST)
    assert reader.latest() == orders(1)
    whole = slots._memory[:SLOT_BYTES]
    slots.write(0, orders(2))
    after = slots._memory[:SLOT_BYTES]
    found = []
    for place in [at for at in range(SLOT_BYTES) if whole[at] != after[at]]:
        for half in (whole[:place] + after[place:], after[:place] + whole[place:]):
            slots._memory[:SLOT_BYTES] = half
            found.append(Reader(slots, 0, FIRST).latest())
            assert reader.latest() in (orders(1), orders(2))
    assert all(each in (FIRST, orders(1), orders(2)) for each in found)
    assert sum(each is FIRST for each in found) > len(found) // 2
    slots._memory[:SLOT_BYTES] = after
    assert reader.latest() == orders(2)


def test_another_process_reads_nothing_but_whole_orders_while_they_are_written() -> None:
    slots = SharedMemory(1)
    slots.write(0, orders(0))
    pid = os.fork()
    if not pid:
        status = 1
        try:
            reader, seen = Reader(slots, 0, orders(0)), set()
            until = time.monotonic() + 20
            while reader.latest().pace != 3000 and time.monotonic() < until:
                found = reader.latest()
                seen.add(found.pace)
                assert found == orders(int(found.pace))
            status = 0 if len(seen) > 5 and reader.latest() == orders(3000) else 2
        finally:
            os._exit(status)
    for number in range(3001):
        slots.write(0, orders(number))
        if number % 50 == 0:
            time.sleep(0.001)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_slots_are_taken_and_given_back() -> None:
    slots = SharedMemory(2)
    taken = {slots.take(), slots.take()}
    assert taken == {0, 1}
    assert slots.take() is None
    slots.give_back(1)
    assert slots.take() == 1


def test_orders_of_as_many_lanes_as_a_race_has_fit() -> None:
    slots = SharedMemory(1)
    lanes = tuple(DecodeSettings(seed=2**31 - 1 - lane, tau=1 / (3 + lane)) for lane in range(8))
    slots.write(0, SharedSettings(2**40, 9999.5, lanes, (True,) * 8))
    assert slots.read(0) is not None


@pytest.mark.parametrize("field", ["version", "length", "checksum"])
def test_a_head_that_makes_no_sense_is_not_taken(field: str) -> None:
    slots = SharedMemory(1)
    slots.write(0, FIRST)
    at = {"version": 0, "length": 8, "checksum": 12}[field]
    slots._memory[at : at + 2] = b"\xff\xff"
    assert slots.read(0) is None


CAPACITY = 400
MARS = DecodeSettings(tau=0.6, block_size=8, max_new_tokens=40)
AR = DecodeSettings(method="ar", max_new_tokens=40)
LOSSLESS = replace(MARS, lossless=True, tau=0.0)
GROUPS = replace(LOSSLESS, block_size=4, groups="every", lookup=True)
SAMPLED = replace(MARS, temperature=0.8, seed=3)
Ask = Callable[["BaseEngine"], "list[Run]"]


@pytest.fixture(scope="module")
def tiny() -> Checkpoint:
    return load_checkpoint("mars-tiny", device="cpu")


@pytest.fixture(scope="module")
def prompt(tiny: Checkpoint) -> list[int]:
    return tiny.tokenizer.encode_prompt("Tom has 3 apples and buys 4 more. How many has he now?")


@pytest.fixture(scope="module")
def engines(tiny: Checkpoint) -> Iterator[list[BaseEngine]]:
    """The ordinary one, and one whose device is lent."""
    slots = SharedMemory(4)
    worker = Worker(slots, lambda name, costs: open_checkpoint(tiny, costs))
    workers = ForkedWorkers(worker.decode, num=1)
    check = partial(check_fits, tiny.model, capacity=CAPACITY)
    leased = LeasedEngine("mars-tiny", workers.lease, slots, check, CAPACITY)
    with Engine(tiny) as ordinary:
        ordinary.costs()
        yield [ordinary, leased]
    leased.close()
    workers.end()


def untimed(events: Iterator[Event] | list[Event]) -> list[Event]:
    """Without what differs between any two runs."""
    return [
        replace(event, seconds=0.0) if isinstance(event, (Prefill, Step)) else event
        for event in events
    ]


def both(engines: list[BaseEngine], ask: Ask) -> list[list[list[Event]]]:
    return [[untimed(run) for run in ask(engine)] for engine in engines]


@pytest.mark.parametrize("settings", [AR, MARS, LOSSLESS, GROUPS, SAMPLED])
def test_a_run_alone_is_the_ordinary_one_to_the_event(
    engines: list[BaseEngine], prompt: list[int], settings: DecodeSettings
) -> None:
    request = Request(prompt, settings, is_checked=True)
    one, other = both(engines, lambda engine: [engine.submit(request, is_alone=True)])
    assert one == other
    assert isinstance(one[0][-1], End)
    assert one[0][-1].reason in ("eos", "limit")


def test_a_race_is_the_ordinary_one_lane_by_lane(
    engines: list[BaseEngine], prompt: list[int]
) -> None:
    requests = [Request(prompt, LOSSLESS), Request(prompt, AR)]
    one, other = both(engines, lambda engine: engine.race(requests))
    assert [lane[1:] for lane in one] == [lane[1:] for lane in other]
    texts = [[token for step in lane if isinstance(step, Step) for token in step.rows[0].accepted]
             for lane in other]  # fmt: skip
    assert texts[0] == texts[1]


def decode_two(
    prompt: list[int],
    model: CausalModel,
    vocabulary: Vocabulary,
    settings: SettingsSource,
    costs: object,
) -> Iterator[Event]:
    return decode_batch(model, vocabulary, [prompt, prompt[:-4]], "cursor", settings, 2, 32)


def test_a_batch_is_the_ordinary_one(engines: list[BaseEngine], prompt: list[int]) -> None:
    decode = partial(decode_two, prompt)
    one, other = both(engines, lambda engine: [engine.solo(decode, MARS)])
    assert one == other
    assert len(one[0]) > 3


def test_the_costs_come_from_the_worker_and_let_b_be_chosen(
    engines: list[BaseEngine], prompt: list[int]
) -> None:
    leased = engines[1]
    request = Request(prompt, replace(MARS, block_size="auto"))
    run = leased.submit(request)
    end = list(run)[-1]
    assert isinstance(end, End)
    assert end.reason in ("eos", "limit")
    costs = leased.costs()
    assert costs is not None
    assert costs.seconds > 0


def test_what_does_not_fit_is_refused_here(engines: list[BaseEngine], prompt: list[int]) -> None:
    with pytest.raises(RequestError, match="ask for at most"):
        engines[1].submit(Request(prompt, replace(MARS, max_new_tokens=CAPACITY)))
    with pytest.raises(RequestError, match="token ids"):
        engines[1].submit(Request([10**6], MARS))
