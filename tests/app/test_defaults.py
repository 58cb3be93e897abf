"""The settings with which the page and programs start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import batch_page
import gradio as gr
import pytest
import test_grid
from live_page import lane_trace, last
from scripted_page import ScriptedBackend, make_handlers

from app.api.endpoints import BOTH, ONE
from app.engines.engines import Engines
from app.engines.limits import Limits
from app.handlers import Handlers
from app.handlers import make_handlers as handlers_over
from app.live.order import LiveOrder
from app.live.tab import live_tab
from app.settings import AppSettings
from app.ui.controls import DEFAULTS, read_controls, settings_for
from app.ui.examples import REQUESTS
from app.ui.recordings import load
from mars_runtime.model.registry import registry
from mars_runtime.review.methods import read_method
from mars_runtime.runs import folds
from mars_runtime.settings import RECOMMENDED
from tools.record_runs import SCENARIOS

LIMITS = Limits(8000, 512, 8)


@pytest.fixture
def handlers(tmp_path: Path) -> Iterator[Handlers]:
    made = make_handlers(tmp_path, ScriptedBackend("Hello!" * 3), path=None)
    yield made
    made.engines.close()


@pytest.fixture
def opening(handlers: Handlers) -> dict[str, Any]:
    """What Run posts on the untouched opening page."""
    with gr.Blocks():
        tab = live_tab(handlers.live, None)
    return {name: control.value for name, control in tab.controls.items()}


def test_the_same_text_everywhere(handlers: Handlers, opening: dict[str, Any]) -> None:
    batch = handlers.throughput.validate(batch_page.controls(lossless=True))
    ar = dict(handlers.grid.validate(test_grid.controls()).order.turns(0)[0])["ar"]
    actual = {
        "live": read_controls(LiveOrder, opening, LIMITS).settings,
        "throughput": batch.order.settings,
        "grid": ar,
        "review": read_method("lossless", "scripted").settings,
        "endpoint": RECOMMENDED,
    }
    for name in ("temperature", "top_p", "seed", "repetition_penalty"):
        for place, settings in actual.items():
            assert settings is not None
            assert getattr(settings, name) == getattr(DEFAULTS, name), (place, name)
        for arguments in (ONE, BOTH):
            values = {argument.name: argument.default for argument in arguments}
            assert values[name] == getattr(DEFAULTS, name)
    for place in ("live", "throughput", "review", "endpoint"):
        assert actual[place].lossless, place


def test_the_page_fixes_b_and_programs_choose_it(opening: dict[str, Any]) -> None:
    order = read_controls(LiveOrder, {**opening, "prompt": "x"}, LIMITS)
    assert list(order.lanes) == ["mars", "ar"]
    mars = order.lanes["mars"]
    assert (mars.lossless, mars.block_size, mars.tau, mars.lookup) == (True, 4, 0.3, False)
    for arguments in (ONE, BOTH):
        values = {argument.name: argument.default for argument in arguments}
        assert (values["block_size"], values["lookup"]) == ("auto", True)


def test_a_prompt_takes_the_same_passes_in_each_run_of_the_page(opening: dict[str, Any]) -> None:
    """While another visitor runs another prompt at the same time."""
    made = handlers_over(Engines(AppSettings(checkpoint="mars-tiny", port=0)))
    prompts = [made.book.prompt(name, 0) for name in list(made.book.families["tasks"])[:2]]
    values = [
        {**opening, "checkpoint": "mars-tiny", "max_new_tokens": 48, "prompt": prompt}
        for prompt in prompts
    ]
    actual = set()
    for block_size in ("auto", 4):
        other = {**values[1], "tau": 0.0, "block_size": block_size}
        neighbour = made.live.run("neighbour", other, "another")
        next(neighbour)
        value = last(made.live.run("visitor", values[0], "owner"))
        actual.add(
            tuple(folds.num_forwards(lane_trace(value, lane).events) for lane in ("mars", "ar"))
        )
        last(neighbour)
    made.engines.close()
    ((mars, ar),) = actual
    assert mars < ar


def test_the_second_recording_of_the_opening_is_what_run_gives(opening: dict[str, Any]) -> None:
    order = read_controls(LiveOrder, opening, LIMITS)
    scenario, recording = SCENARIOS[1], load()[1]
    lanes = {name: settings_for(name, scenario.settings) for name in scenario.lanes}
    assert order.lanes == lanes
    traces = recording.traces()
    entry = registry()[next(iter(traces.values())).header.checkpoint]
    assert {name: trace.header.settings for name, trace in traces.items()} == order.lanes
    assert {trace.header.system for trace in traces.values()} == {entry.system}
    assert recording.prompt == REQUESTS["question"].prompts[0]
    ends = [folds.end(trace.events) for trace in traces.values()]
    assert [end and end.reason for end in ends] == ["eos", "eos"]  # before the limit
