"""The controller: monotone in the queue, calm on a constant load, within everybody's bounds. The
driver on the real engine: over a scripted backend, and a tiny model where text counts."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.engine import Engine, EngineError
from mars_runtime.engine.request import RequestError
from mars_runtime.events import Step
from mars_runtime.settings import DecodeSettings, SettingsError
from mars_runtime.traffic import drive as driving
from mars_runtime.traffic.controller import (
    AR,
    FIXED,
    FOLLOW,
    FOLLOW_LOSSLESS,
    LEVELS,
    Bounds,
    Decision,
    Observation,
    State,
    decide,
    is_late,
    steered,
    ways_of,
)
from mars_runtime.traffic.drive import Drive
from mars_runtime.traffic.figures import Record, figures_of, texts_of
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


def seen(queue: int, places: int = 4, *records: Record, at: float = 0.0) -> Observation:
    return Observation(at, queue, places, records)


@given(LEVEL, QUEUES, QUEUES, PLACES)
def test_a_longer_queue_never_calms(level: int, queue: int, more: int, places: int) -> None:
    state = State(level)
    short, _ = decide(state, seen(queue, places))
    long, _ = decide(state, seen(queue + more, places))
    assert long.level >= short.level


@given(LEVEL, QUEUES, PLACES, st.integers(2, 20))
def test_a_constant_load_moves_it_once(level: int, queue: int, places: int, times: int) -> None:
    first, _ = decide(State(level), seen(queue, places))
    state = first
    for _ in range(times):
        state, _ = decide(state, seen(queue, places))
        assert state == first


@given(LEVEL, QUEUES, PLACES)
def test_a_queue_that_sways_by_one_flaps_nothing(level: int, queue: int, places: int) -> None:
    state, levels = State(level), []
    for turn in range(10):
        state, _ = decide(state, seen(queue + turn % 2, places))
        levels.append(state.level)
    assert len(set(levels[1:])) == 1


def test_levels_of_four_places_by_hand() -> None:
    state, levels = State(), []
    for queue in (0, 1, 2, 3, 4, 3, 2, 8, 20, 7, 6, 5, 4, 1, 0):
        state, decision = decide(state, seen(queue))
        levels.append(decision.level)
    #         0  1  2  3  4  3  2  8  20 7  6  5  4  1  0
    assert levels == [0, 0, 1, 1, 2, 2, 1, 4, 4, 4, 3, 3, 2, 1, 0]


@given(ANY_BOUNDS, LEVEL, st.booleans(), st.booleans(), st.floats(0, 1))
def test_no_request_ever_leaves_its_own_bounds(
    bounds: Bounds, level: int, is_lossless: bool, late: bool, tau: float
) -> None:
    settings = DecodeSettings(tau=tau, lossless=is_lossless)
    decision = Decision(0.0, 0, level, frozenset({7} if late else ()))
    found = steered(settings, bounds, decision, 7)
    if is_lossless:
        assert bounds.least <= found.num_proposals <= bounds.most
        assert (found.lossless, found.tau) == (True, tau)
    else:
        assert bounds.low <= found.tau <= bounds.high
        assert found.block_size == settings.block_size


@given(ANY_BOUNDS, LEVEL, LEVEL)
def test_a_higher_level_lowers_tau_and_drafts_less(bounds: Bounds, one: int, other: int) -> None:
    calm, bold = (Decision(0.0, 0, level, frozenset()) for level in sorted((one, other)))
    free, exact = DecodeSettings(), DecodeSettings(lossless=True)
    assert steered(free, bounds, calm, 0).tau >= steered(free, bounds, bold, 0).tau
    first, second = (steered(exact, bounds, each, 0).num_proposals for each in (calm, bold))
    assert first >= second


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


def test_who_is_late() -> None:
    assert not is_late(Record(0, 0.0), 1e9)  # nobody waits for it
    waiting = Record(0, 10.0, 11, budget=4.0)
    assert not is_late(waiting, 12.0)
    assert is_late(waiting, 12.1)
    writing = Record(0, 0.0, 11, budget=4.0, first=1.0, tokens=(1, 2, 3, 4, 5, 6))
    assert not is_late(writing, 2.0)  # 5 tokens in 1 s, 5 more to come: 3 s
    assert is_late(writing, 2.6)  # 5 tokens in 1.6 s: 4.2 s


def test_who_is_late_stays_so_until_it_is_over() -> None:
    record = Record(1, 0.0, 11, budget=4.0)
    state, decision = decide(State(), seen(0, 4, record, at=3.0))
    assert decision.late == {1}
    caught_up = Record(1, 0.0, 11, budget=4.0, first=3.0, tokens=tuple(range(10)))
    state, decision = decide(state, seen(0, 4, caught_up, at=3.1))
    assert decision.late == {1}
    state, decision = decide(state, seen(0, 4))
    assert decision.late == frozenset()


@pytest.mark.parametrize(
    "bad", [(0.9, 0.5), (-0.1, 0.5), (0.5, 1.1), (float("nan"), 0.5), (0, 1, 0), (0, 1, 5, 4)]
)
def test_bounds_that_are_none(bad) -> None:
    with pytest.raises(SettingsError, match="bounds of"):
        Bounds(*bad)


BOUNDS = Bounds(0.4, 0.9, 1, 8)
WAYS = ways_of(BOUNDS)


def asks(count: int, num_tokens: int = 4, budget: float | None = None) -> list[Ask]:
    return [Ask("", (number + 1,), num_tokens, budget) for number in range(count)]


def load(count: int, arrivals=None, way: str = FIXED, **more) -> Workload:
    num_tokens, budget = more.pop("num_tokens", 4), more.pop("budget", None)
    times = (0.0,) * count if arrivals is None else arrivals
    return Workload(times, asks(count, num_tokens, budget), WAYS[way], **more)


def test_every_request_is_served_at_its_time_and_in_order() -> None:
    with Engine(Script(), max_runs=2) as engine:
        found = Drive(engine, load(5, (0.0, 0.0, 0.01, 0.05, 0.06), places=2)).run()
    assert found.is_over
    assert [record.number for record in found.records] == list(range(5))
    assert [record.arrived for record in found.records] == [0.0, 0.0, 0.01, 0.05, 0.06]
    for record in found.records:
        assert record.state == "done"
        assert record.tokens == (record.number + 1,) * 4
        assert record.num_forwards == 4
        assert record.arrived <= record.admitted <= record.first <= record.ended
    assert [record.admitted for record in found.records] == sorted(
        record.admitted for record in found.records
    )


def test_no_more_are_with_the_engine_than_there_are_places_so_others_find_one() -> None:
    script = Script(seconds=dict.fromkeys(range(1, 9), 0.002))
    with Engine(script, max_runs=4, max_waiting=0) as engine:
        drive = Drive(engine, load(8, places=3, num_tokens=6))
        thread = threading.Thread(target=drive.run)
        thread.start()
        while not drive.progress.records:
            pass
        visitor = engine.submit(driving.Request((50,), WAYS[AR].settings))  # no line to wait in
        visitor.cancel()
        thread.join(20)
    assert max(sum(token < 50 for token in forward) for forward in script.forwards) == 3
    assert figures_of(drive.progress.records, 0.0).num_done == 8


def test_a_full_line_refuses_and_what_cannot_be_served_is_refused(monkeypatch) -> None:
    script = Script()

    def check(asked) -> None:
        if asked.prompt_ids == (2,):
            raise RequestError("Too long.")

    monkeypatch.setattr(script, "check", check)
    with Engine(script, max_runs=1) as engine:
        found = Drive(engine, load(6, places=1, max_queue=3)).run()
    states = [record.state for record in found.records]
    assert states == ["done", "refused", "done", "refused", "refused", "refused"]


def test_places_that_others_have_taken_are_waited_for() -> None:
    gate = threading.Event()
    with Engine(Script(gate=gate), max_runs=1, max_waiting=0) as engine:
        taker = engine.submit(driving.Request((50,), WAYS[AR].settings))
        drive = Drive(engine, load(1))
        thread = threading.Thread(target=drive.run)
        thread.start()
        while not drive.progress.records:
            pass
        assert drive.progress.records[0].state == "waiting"
        taker.cancel()
        gate.set()
        thread.join(20)
    assert drive.progress.records[0].state == "done"


def test_stop_ends_every_request_and_none_is_lost() -> None:
    gate = threading.Event()
    with Engine(Script(gate=gate), max_runs=2) as engine:
        drive = Drive(engine, load(5, places=2))
        thread = threading.Thread(target=drive.run)
        thread.start()
        while len(drive.progress.records) < 5:
            pass
        drive.stop()
        thread.join(20)
        gate.set()
    assert drive.progress.is_over
    assert [record.state for record in drive.progress.records] == ["cut"] * 5


def test_what_goes_on_at_the_time_limit_is_cut() -> None:
    with Engine(Script(seconds={1: 0.01}), max_runs=1) as engine:
        found = Drive(engine, load(1, num_tokens=4096, max_seconds=0.1)).run()
    assert [record.state for record in found.records] == ["cut"]
    assert found.now < 5


def test_a_closed_engine_is_an_error() -> None:
    engine = Engine(Script())
    engine.close()
    with pytest.raises(EngineError):
        Drive(engine, load(1)).run()


def kept_runs(engine: Engine, monkeypatch) -> list:
    runs, submit = [], engine.submit

    def keeping(request):
        runs.append(submit(request))
        return runs[-1]

    monkeypatch.setattr(engine, "submit", keeping)
    return runs


def test_the_controller_follows_the_queue_within_bounds(monkeypatch) -> None:
    script = Script(seconds=dict.fromkeys(range(1, 30), 0.002))
    with Engine(script, max_runs=2) as engine:
        runs = kept_runs(engine, monkeypatch)
        found = Drive(engine, load(16, way=FOLLOW, places=2, num_tokens=12)).run()
    levels = [decision.level for decision in found.decisions]
    assert levels[0] == LEVELS
    assert levels[-1] == 0
    assert levels == sorted(levels, reverse=True)  # the queue only falls
    taus = [event.rows[0].settings.tau for run in runs for event in run if isinstance(event, Step)]
    assert {0.4, 0.9} <= set(taus)
    assert all(0.4 <= tau <= 0.9 for tau in taus)


def test_a_late_request_gets_the_boldest_of_its_bounds(monkeypatch) -> None:
    script = Script(seconds={1: 0.01})
    with Engine(script, max_runs=1) as engine:
        runs = kept_runs(engine, monkeypatch)
        found = Drive(engine, load(1, way=FOLLOW, num_tokens=40, budget=0.2)).run()
    assert found.decisions[-1].late == {0}
    (run,) = runs
    taus = [event.rows[0].settings.tau for event in run if isinstance(event, Step)]
    assert taus[0] == 0.9
    assert taus[-1] == 0.4


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory):
    from mars_runtime.model.load import load_checkpoint

    folder = write_checkpoint(Path(tmp_path_factory.mktemp("tiny")))
    return load_checkpoint(str(folder), device="cpu")


def test_lossless_text_is_ars_whatever_the_controller_decides(tiny, monkeypatch) -> None:
    rng = random.Random(3)

    def decide(state, seen):
        late = frozenset(record.number for record in seen.records if rng.random() < 0.3)
        decision = Decision(seen.at, seen.queue, rng.randint(0, LEVELS), late)
        return driving.State(rng.randint(0, LEVELS)), decision

    monkeypatch.setattr(driving, "decide", decide)
    prompts = [tiny.tokenizer.encode_prompt(text) for text in ("a b", "one two three", "x", "b a")]
    wanted = [Ask("", tuple(ids), 24) for ids in prompts]
    with Engine(tiny, max_runs=3) as engine:
        engine.costs()
        texts = {
            name: texts_of(Drive(engine, Workload((0.0,) * 4, wanted, WAYS[name], 3)).run().records)
            for name in (AR, FOLLOW_LOSSLESS)
        }
    assert len(texts[AR]) == 4
    assert texts[FOLLOW_LOSSLESS] == texts[AR]


def test_the_mix_is_the_same_for_a_seed_and_names_budgets_for_every_second(tiny) -> None:
    first, again = (asks_of("mars-tiny", tiny.tokenizer, "all", 9, 20, 1, 3.0) for _ in range(2))
    assert first == again
    assert [ask.budget for ask in first] == [3.0, None] * 4 + [3.0]
    assert len({ask.prompt for ask in first}) == 9
    assert all(10 <= ask.max_new_tokens <= 20 for ask in first)
    assert first != asks_of("mars-tiny", tiny.tokenizer, "all", 9, 20, 2, 3.0)
    assert set(families_of("mars-smollm2", "short")) == {"chat", "maths", "code"}
    assert "reading" not in families_of("mars-tiny", "short")
