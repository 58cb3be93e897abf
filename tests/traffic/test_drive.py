"""The controller: monotone in the queue, stable on a constant load, within a request's bounds. The
driver on the real engine: over a scripted backend, and a tiny model where text counts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.engine import Engine, EngineError, Request
from mars_runtime.engine.request import RequestError
from mars_runtime.events import Step
from mars_runtime.model.load import load_checkpoint
from mars_runtime.settings import DecodeSettings, SettingsError
from mars_runtime.traffic.controller import (
    AR,
    FIXED,
    FOLLOW,
    FOLLOW_LOSSLESS,
    LEVELS,
    Bounds,
    ControllerState,
    Decision,
    Observation,
    decide,
    is_late,
    methods_for,
    steered,
)
from mars_runtime.traffic.drive import Drive
from mars_runtime.traffic.figures import RequestRecord, texts_of
from mars_runtime.traffic.workload import Ask, Workload, asks_of, families_of
from tests.engine.scripted import Script
from tests.tiny_checkpoint import write_checkpoint

QUEUES = st.integers(0, 100)
PLACES = st.integers(1, 32)
LEVEL = st.integers(0, LEVELS)
ANY_BOUNDS = st.builds(
    lambda taus, sizes: Bounds(*sorted(taus), *sorted(sizes)),
    st.tuples(st.floats(0, 1), st.floats(0, 1)),
    st.tuples(st.integers(1, 16), st.integers(1, 16)),
)


def seen(queue: int, places: int = 4, *records: RequestRecord, at: float = 0.0) -> Observation:
    return Observation(at, queue, places, records)


@given(LEVEL, QUEUES, QUEUES, PLACES)
def test_a_longer_queue_never_lowers_the_level(level, queue, more, places) -> None:
    short, _ = decide(ControllerState(level), seen(queue, places))
    long, _ = decide(ControllerState(level), seen(queue + more, places))
    assert long.level >= short.level


@given(LEVEL, QUEUES, PLACES)
def test_a_queue_that_sways_by_at_most_one_moves_the_level_once(level, queue, places) -> None:
    for sway in (0, 1):
        state, levels = ControllerState(level), []
        for turn in range(10):
            state, _ = decide(state, seen(queue + turn % 2 * sway, places))
            levels.append(state.level)
        assert len(set(levels[sway:])) == 1


def test_levels_of_four_places_by_hand() -> None:
    state, levels = ControllerState(), []
    for queue in (0, 1, 2, 3, 4, 3, 2, 8, 20, 7, 6, 5, 4, 1, 0):
        state, decision = decide(state, seen(queue))
        levels.append(decision.level)
    #         0  1  2  3  4  3  2  8  20 7  6  5  4  1  0
    assert levels == [0, 0, 1, 1, 2, 2, 1, 4, 4, 4, 3, 3, 2, 1, 0]


@given(ANY_BOUNDS, LEVEL, LEVEL, st.booleans(), st.floats(0, 1))
def test_a_request_stays_in_its_bounds_and_a_higher_level_drafts_less_and_lowers_tau(
    bounds, one, other, late, tau
) -> None:
    free, exact = DecodeSettings(tau=tau), DecodeSettings(tau=tau, lossless=True)
    taus, sizes = [], []
    for level in sorted((one, other)):
        decision = Decision(0.0, 0, level, frozenset({7} if late else ()))
        actual = steered(exact, bounds, decision, 7)
        assert bounds.least <= actual.num_proposals <= bounds.most
        assert (actual.lossless, actual.tau) == (True, tau)
        sizes.append(actual.num_proposals)
        actual = steered(free, bounds, decision, 7)
        assert bounds.low <= actual.tau <= bounds.high
        assert actual.block_size == free.block_size
        taus.append(actual.tau)
    assert taus == sorted(taus, reverse=True)
    assert sizes == sorted(sizes, reverse=True)


def test_ends_of_the_bounds_are_reached_and_plain_ar_is_left_alone() -> None:
    bounds = Bounds(0.3, 0.9, 2, 8)
    for level, tau, size in ((0, 0.9, 8), (2, 0.6, 5), (LEVELS, 0.3, 2)):
        decision = Decision(0.0, 0, level, frozenset())
        assert steered(DecodeSettings(), bounds, decision, 0).tau == tau
        assert steered(DecodeSettings(lossless=True), bounds, decision, 0).block_size == size
    late = Decision(0.0, 0, LEVELS, frozenset({1}))
    assert steered(DecodeSettings(lossless=True), bounds, late, 1).block_size == 8
    assert steered(DecodeSettings(), bounds, late, 1).tau == 0.3
    plain = DecodeSettings("ar")
    assert steered(plain, bounds, late, 1) is plain


def test_who_is_late_and_stays_so_until_it_is_over() -> None:
    assert not is_late(RequestRecord(0, 0.0), 1e9)  # it has no budget
    waiting = RequestRecord(1, 10.0, 11, budget=4.0)
    assert (is_late(waiting, 12.0), is_late(waiting, 12.1)) == (False, True)
    writing = RequestRecord(0, 0.0, 11, budget=4.0, first=1.0, tokens=(1, 2, 3, 4, 5, 6))
    assert not is_late(writing, 2.0)  # 5 tokens in 1 s, 5 more to come: 3 s
    assert is_late(writing, 2.6)  # 5 tokens in 1.6 s: 4.2 s
    state, decision = decide(ControllerState(), seen(0, 4, waiting, at=13.0))
    assert decision.late == {1}
    caught_up = RequestRecord(1, 10.0, 11, budget=4.0, first=13.0, tokens=tuple(range(10)))
    state, decision = decide(state, seen(0, 4, caught_up, at=13.1))
    assert decision.late == {1}
    assert decide(state, seen(0, 4))[1].late == frozenset()


@pytest.mark.parametrize(
    "bad", [(0.9, 0.5), (-0.1, 0.5), (0.5, 1.1), (float("nan"), 0.5), (0, 1, 0), (0, 1, 5, 4)]
)
def test_bounds_that_are_none(bad) -> None:
    with pytest.raises(SettingsError, match="bounds of"):
        Bounds(*bad)


BOUNDS = Bounds(0.4, 0.9, 1, 8)
WAYS = methods_for(BOUNDS)


def asks(count: int, num_tokens: int = 4, budget: float | None = None) -> list[Ask]:
    return [Ask("", (number + 1,), num_tokens, budget) for number in range(count)]


def load(count: int, arrivals=None, way: str = FIXED, **more) -> Workload:
    num_tokens, budget = more.pop("num_tokens", 4), more.pop("budget", None)
    times = (0.0,) * count if arrivals is None else arrivals
    return Workload(times, asks(count, num_tokens, budget), WAYS[way], **more)


def test_every_request_is_served_at_its_time_and_in_order() -> None:
    with Engine(Script(), max_runs=2) as engine:
        actual = Drive(engine, load(5, (0.0, 0.0, 0.01, 0.05, 0.06), places=2)).run()
    assert actual.is_over
    assert [record.number for record in actual.records] == list(range(5))
    assert [record.arrived for record in actual.records] == [0.0, 0.0, 0.01, 0.05, 0.06]
    for record in actual.records:
        assert record.state == "done"
        assert record.tokens == (record.number + 1,) * 4
        assert record.num_forwards == 4
        assert record.arrived <= record.admitted <= record.first <= record.ended
    assert [record.admitted for record in actual.records] == sorted(
        record.admitted for record in actual.records
    )


@contextmanager
def driving(engine: Engine, workload: Workload) -> Iterator[Drive]:
    """Drive in a thread, from the time when every request has arrived; wait for its end."""
    drive = Drive(engine, workload)
    thread = threading.Thread(target=drive.run)
    thread.start()
    while len(drive.progress.records) < len(workload.arrivals):
        thread.join(0.001)
    yield drive
    thread.join(20)


def states(drive: Drive) -> list[str]:
    return [record.state for record in drive.progress.records]


def test_no_more_are_with_the_engine_than_there_are_places_so_others_find_one() -> None:
    script = Script(seconds=dict.fromkeys(range(1, 9), 0.002))
    workload = load(8, places=3, num_tokens=6)
    with Engine(script, max_runs=4, max_waiting=0) as engine, driving(engine, workload) as drive:
        engine.submit(Request((50,), WAYS[AR].settings)).cancel()  # no line to wait in
    assert max(sum(token < 50 for token in forward) for forward in script.forwards) == 3
    assert states(drive) == ["done"] * 8


def test_a_full_line_refuses_and_what_cannot_be_served_is_refused() -> None:
    class Choosy(Script):
        def check(self, request: Request) -> None:
            if request.prompt_ids == (2,):
                raise RequestError("Too long.")

    with Engine(Choosy(), max_runs=1) as engine:
        drive = Drive(engine, load(6, places=1, max_queue=3))
        drive.run()
    assert states(drive) == ["done", "refused", "done", "refused", "refused", "refused"]


def test_places_that_others_have_taken_are_waited_for() -> None:
    gate = threading.Event()
    with Engine(Script(gate=gate), max_runs=1, max_waiting=0) as engine:
        taker = engine.submit(Request((50,), WAYS[AR].settings))
        with driving(engine, load(1)) as drive:
            assert states(drive) == ["waiting"]
            taker.cancel()
            gate.set()
    assert states(drive) == ["done"]


def test_stop_ends_every_request_and_none_is_lost() -> None:
    gate = threading.Event()
    with Engine(Script(gate=gate), max_runs=2) as engine:
        with driving(engine, load(5, places=2)) as drive:
            drive.stop()
        gate.set()
    assert drive.progress.is_over
    assert states(drive) == ["cut"] * 5


def test_what_goes_on_at_the_time_limit_is_cut() -> None:
    with Engine(Script(seconds={1: 0.01}), max_runs=1) as engine:
        actual = Drive(engine, load(1, num_tokens=4096, max_seconds=0.1)).run()
    assert [record.state for record in actual.records] == ["cut"]
    assert actual.now < 5


def test_a_closed_engine_is_an_error() -> None:
    engine = Engine(Script())
    engine.close()
    with pytest.raises(EngineError):
        Drive(engine, load(1)).run()


def followed(script: Script, max_runs: int, workload: Workload) -> tuple[Any, list[float]]:
    """Return what the driver found, and tau of every step."""
    taus: list[float] = []

    def observe(run: Any, event: Any) -> None:
        if isinstance(event, Step):
            taus.extend(row.settings.tau for row in event.rows)

    with Engine(script, max_runs=max_runs) as engine:
        engine.observe(observe)
        return Drive(engine, workload).run(), taus


def test_the_controller_follows_the_queue_within_bounds() -> None:
    script = Script(seconds=dict.fromkeys(range(1, 30), 0.002))
    actual, taus = followed(script, 2, load(16, way=FOLLOW, places=2, num_tokens=12))
    levels = [decision.level for decision in actual.decisions]
    assert (levels[0], levels[-1]) == (LEVELS, 0)
    assert levels == sorted(levels, reverse=True)  # the queue only falls
    assert (min(taus), max(taus)) == (0.4, 0.9)


def test_a_late_request_gets_the_lowest_tau_of_its_bounds() -> None:
    workload = load(1, way=FOLLOW, num_tokens=40, budget=0.2)
    actual, taus = followed(Script(seconds={1: 0.01}), 1, workload)
    assert actual.decisions[-1].late == {0}
    assert (taus[0], taus[-1]) == (0.9, 0.4)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory):
    folder = write_checkpoint(Path(tmp_path_factory.mktemp("tiny")))
    return load_checkpoint(str(folder), device="cpu")


def test_lossless_text_is_ars_for_any_decision_of_the_controller(tiny) -> None:
    texts = ("a b", "one two three", "x", "b a", "three", "c", "two b", "a one")
    wanted = [Ask("", tuple(tiny.tokenizer.encode_prompt(text)), 24, 0.001) for text in texts]
    arrivals = (0.0,) * 6 + (0.2, 0.3)
    with Engine(tiny, max_runs=3) as engine:
        engine.costs()
        actual = {
            name: Drive(engine, Workload(arrivals, wanted, WAYS[name], 3)).run()
            for name in (AR, FOLLOW_LOSSLESS)
        }
    assert len({decision.level for decision in actual[FOLLOW_LOSSLESS].decisions}) > 1
    texts_found = [texts_of(item.records) for item in actual.values()]
    assert texts_found[0] == texts_found[1]
    assert len(texts_found[0]) == len(texts)


def test_the_mix_is_the_same_for_a_seed_and_names_budgets_for_every_second(tiny) -> None:
    first, again = (asks_of("mars-tiny", tiny.tokenizer, "all", 9, 20, 1, 3.0) for _ in range(2))
    assert first == again
    assert [ask.budget for ask in first] == [3.0, None] * 4 + [3.0]
    assert len({ask.prompt for ask in first}) == 9
    assert all(10 <= ask.max_new_tokens <= 20 for ask in first)
    assert first != asks_of("mars-tiny", tiny.tokenizer, "all", 9, 20, 2, 3.0)
    assert set(families_of("mars-smollm2", "short")) == {"chat", "maths", "code"}
    assert "reading" not in families_of("mars-tiny", "short")
