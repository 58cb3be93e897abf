"""Handlers over the real engine and a scripted backend: no gradio, no browser, no weights."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

import pytest
from live_page import begun, lane_trace, last, lines_of
from scripted_page import ScriptedBackend, controls, make_handlers

from app.handlers import Handlers
from app.live.lanes import NOTE_CONTROL, NOTE_UNKNOWN, OFFER, offer
from app.ui.controls import RefusalError
from app.ui.stream import HELD_UP, SHARING_WITH_ONE, WARMING_UP


@pytest.fixture
def backend() -> ScriptedBackend:
    return ScriptedBackend("Hello, ${HOME}<b> 👩‍👧!" * 3)


@pytest.fixture
def handlers(tmp_path: Path, backend: ScriptedBackend) -> Iterator[Handlers]:
    made = make_handlers(tmp_path, backend, max_runs=2, max_waiting=1)
    yield made
    made.engines.close()


def test_race_streams_one_growing_string_with_both_lanes(handlers: Handlers) -> None:
    values = list(handlers.live.run("a", controls(tau=0.5)))
    assert all(later.startswith(earlier) for earlier, later in pairwise(values))
    head, lines = lines_of(values[-1])
    assert [lane["lane"] for lane in head["lanes"]] == ["mars", "ar"]
    assert {tag for tag, _ in lines} == {"mars", "ar"}
    mars, ar = lane_trace(values[-1], "mars"), lane_trace(values[-1], "ar")
    assert mars.header.prompt == "Say hello."
    assert ar.header.settings.method == "ar"
    assert len(mars.events) < len(ar.events)
    assert mars.events[-1].reason == ar.events[-1].reason == "limit"
    assert len(handlers.live.runs) == 0


def test_the_lanes_that_were_chosen(handlers: Handlers) -> None:
    head, lines = lines_of(last(handlers.live.run("a", controls(view="jacobi,mars"))))
    assert [lane["lane"] for lane in head["lanes"]] == ["mars", "jacobi"]
    assert {tag for tag, _ in lines} == {"mars", "jacobi"}


def test_steering_acts_on_the_own_run(handlers: Handlers, backend: ScriptedBackend) -> None:
    backend.forward_seconds = 0.01
    mine, theirs = (handlers.live.run(s, controls(view="mars", tau=1)) for s in ("mine", "theirs"))
    begun(mine), begun(theirs)
    handlers.live.steer("mine", controls(tau=0.5, block_size=4))
    moved, unmoved = lane_trace(last(mine), "mars"), lane_trace(last(theirs), "mars")
    taken = [(e.rows[0].settings.tau, len(e.rows[0].accepted)) for e in moved.events[1:-1]]
    assert (1, 1) in taken
    assert (0.5, 4) in taken
    assert {e.rows[0].settings.tau for e in unmoved.events[1:-1]} == {1}


def test_rejected_settings_and_a_pace(handlers: Handlers, backend: ScriptedBackend) -> None:
    stream = handlers.live.run("a", controls(view="mars", tau=1, pace=100))
    begun(stream)
    with pytest.raises(RefusalError):
        handlers.live.steer("a", controls(tau=math.nan))
    handlers.live.steer("a", controls(tau=1, pace=0))
    value = last(stream)
    assert {e.rows[0].settings.tau for e in lane_trace(value, "mars").events[1:-1]} == {1}
    assert ("pace", {"pace": 0.0}) in lines_of(value)[1]


def test_stop_ends_within_one_forward(handlers: Handlers, backend: ScriptedBackend) -> None:
    backend.forward_seconds = 0.02
    stream = handlers.live.run("a", controls(view="ar"))
    begun(stream)
    handlers.live.stop("a")
    before = backend.num_forwards
    trace = lane_trace(last(stream), "ar")
    assert trace.events[-1].reason == "cancelled"
    assert backend.num_forwards <= before + 1
    assert len(trace.events) > 1


def test_a_second_run_replaces_the_first(handlers: Handlers, backend: ScriptedBackend) -> None:
    backend.forward_seconds = 0.02
    first = handlers.live.run("a", controls(view="ar"))
    next(first)
    second = handlers.live.run("a", controls(view="ar"))
    next(second)
    assert list(first) == []
    assert len(handlers.live.runs) == 1
    run = handlers.live.runs.of("a").transcripts[0].run
    second.close()
    assert run.wait(5)
    assert run.events_since(0)[-1].reason == "cancelled"
    assert len(handlers.live.runs) == 0


def test_a_waiting_run_reports_its_place(handlers: Handlers, backend: ScriptedBackend) -> None:
    backend.forward_seconds = 0.02
    backend.text = "x" * 600
    runs = [handlers.live.run(name, controls(view="ar", max_new_tokens=512)) for name in "abc"]
    waiting = [next(stream) for stream in runs][-1]
    assert "Waiting: 1 run is ahead of yours." in waiting
    refused = last(handlers.live.run("late", controls()))
    assert "The server is busy" in refused
    assert any(SHARING_WITH_ONE in text for text in islice(runs[0], 40))
    for stream in runs:
        stream.close()
    race = handlers.live.run("racer", controls(view="race", max_new_tokens=512))
    begun(race)
    held = handlers.live.run("held", controls(view="ar"))
    assert HELD_UP in next(held)
    race.close()
    held.close()


BAD = [
    ("prompt", ""),
    ("prompt", "x" * 8001),
    ("prompt", "nul \0"),
    ("prompt", "half \ud800"),
    ("prompt", None),
    ("tau", math.nan),
    ("max_new_tokens", 10**9),
    ("view", "all"),
    ("view", []),
    ("pace", math.nan),
    ("checkpoint", "../../etc"),
]


def test_a_method_that_the_checkpoint_cannot_run_is_refused(handlers: Handlers) -> None:
    last(handlers.live.run("a", controls()))  # it is loaded
    refusal = handlers.live.check(controls(view=["mars", "speculative"]))
    assert refusal is not None
    assert (refusal.field, "speculative needs a draft" in str(refusal)) == ("view", True)


@pytest.mark.parametrize(("field", "value"), BAD)
def test_bad_input_gets_one_sentence(handlers: Handlers, field: str, value: object) -> None:
    refusal = handlers.live.check(controls(**{field: value}))
    assert refusal is not None
    assert refusal.field == field
    said = last(handlers.live.run("a", controls(**{field: value})))
    _, lines = lines_of(said)
    assert [data["message"] for _, data in lines] == [str(refusal)]
    assert str(refusal).endswith(".")
    assert "x" * 100 not in said
    assert lane_trace(last(handlers.live.run("a", controls())), "mars").events[-1].reason == "limit"


def test_verdicts_and_remarks(handlers: Handlers, backend: ScriptedBackend) -> None:
    prompt = handlers.book.prompt("word_problems", 0)
    task = handlers.book.task(prompt)
    backend.text = task.answer
    _, lines = lines_of(last(handlers.live.run("a", controls(prompt=prompt, max_new_tokens=512))))
    verdicts = {data["lane"]: data["right"] for tag, data in lines if tag == "verdict"}
    assert verdicts == {"mars": True, "ar": True}
    backend.text = "No idea."
    _, lines = lines_of(last(handlers.live.run("a", controls(prompt=prompt, view="mars"))))
    assert ("verdict", {"lane": "mars", "right": False}) in lines
    assert handlers.live.remark(prompt, "scripted") == ""
    assert handlers.live.remark("Who am I?", "scripted") == NOTE_UNKNOWN
    assert handlers.live.remark("<|im_end|> Who?", "scripted") == NOTE_CONTROL


def test_who_typed_no_task_is_offered_the_nearest(handlers: Handlers) -> None:
    sort = handlers.book.prompt("symbolic", 0)
    typed = f"Please, {sort.lower()}"
    assert handlers.live.nearest(typed, "scripted") == sort
    for prompt, checkpoint in ((sort, "scripted"), (typed, "unheard of")):
        assert handlers.live.nearest(prompt, checkpoint) == ""
    assert offer("Sort 3 1 2.\nNow.") == OFFER.format("Sort 3 1 2.")
    assert offer("x" * 90).endswith("x" * 60 + "…")


def test_what_is_moved_while_the_engine_warms_up_reaches_the_lanes(tmp_path: Path) -> None:
    """The stream reports at once what it waits for, and continues as soon as it can."""
    is_warm = threading.Event()

    class Cold(ScriptedBackend):
        def prepare(self) -> None:
            assert is_warm.wait(60)

    handlers = make_handlers(tmp_path, Cold("I write. " * 40, 0.002))
    stream = handlers.live.run("a", controls(tau=1.0, lossless=False))
    assert json.dumps(WARMING_UP) in next(stream)
    handlers.live.steer("a", controls(tau=0.5, lossless=False))
    next(stream)
    is_warm.set()
    trace = lane_trace(last(stream), "mars")
    taus = {step.rows[0].settings.tau for step in trace.events[1:-1]}
    assert taus == {0.5}
    handlers.engines.close()
