"""The driver on the real engine: over a scripted backend, and a tiny model where text counts."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from mars_runtime.engine import Engine, EngineError
from mars_runtime.engine.request import RequestError
from mars_runtime.events import Step
from mars_runtime.traffic import drive as driving
from mars_runtime.traffic.controller import LEVELS, Bounds, Decision
from mars_runtime.traffic.drive import Drive, Load
from mars_runtime.traffic.figures import figures_of, texts_of
from mars_runtime.traffic.mix import Ask, asks_of, families_of
from mars_runtime.traffic.ways import AR, FIXED, FOLLOW, FOLLOW_LOSSLESS, ways_of
from tests.engine.scripted import Script
from tests.tiny_checkpoint import write_checkpoint

BOUNDS = Bounds(0.4, 0.9, 1, 8)
WAYS = ways_of(BOUNDS)


def asks(count: int, num_tokens: int = 4, budget: float | None = None) -> list[Ask]:
    return [Ask("", (number + 1,), num_tokens, budget) for number in range(count)]


def load(count: int, arrivals=None, way: str = FIXED, **more) -> Load:
    num_tokens, budget = more.pop("num_tokens", 4), more.pop("budget", None)
    times = (0.0,) * count if arrivals is None else arrivals
    return Load(times, asks(count, num_tokens, budget), WAYS[way], **more)


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
        found = Drive(engine, load(6, places=1, max_line=3)).run()
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
            name: texts_of(Drive(engine, Load((0.0,) * 4, wanted, WAYS[name], 3)).run().records)
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
