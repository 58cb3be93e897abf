"""AR + lookup: plain AR that verifies drafts of prompt lookup, without masks, as a lane next to
MARS with lookup and AR.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from live_page import lane_trace, last
from scripted_page import controls

from app.engines.engines import Engines
from app.handlers import Handlers, make_handlers
from app.settings import AppSettings
from app.ui.controls import TITLES, settings_for
from mars_runtime.decoders.methods import LOOKUP
from mars_runtime.runs import folds
from mars_runtime.runs.events import Step
from mars_runtime.settings import AR_LOOKUP, DecodeSettings
from tests import trace_folds

COPIED = "Repeat the word fox ten times: fox fox fox fox fox fox fox fox fox fox"


@pytest.fixture(scope="module")
def handlers() -> Iterator[Handlers]:
    made = make_handlers(Engines(AppSettings(checkpoint="mars-tiny", port=0, max_new_tokens=64)))
    made.engines.get("mars-tiny")
    yield made
    made.engines.close()


def asked(**changes: object) -> dict[str, object]:
    return controls(checkpoint="mars-tiny", max_new_tokens=48, prompt=COPIED, **changes)


def test_its_lane_writes_ars_text_in_fewer_forwards_and_feeds_no_masks(handlers: Handlers) -> None:
    value = last(handlers.live.run("a", asked(view=["mars", "ar", LOOKUP], lossless=True, tau=0.0)))
    ar, lookup = lane_trace(value, "ar"), lane_trace(value, LOOKUP)
    tokens = [folds.accepted_tokens(trace.events) for trace in (ar, lookup)]
    assert tokens[0] == tokens[1]
    assert folds.num_forwards(lookup.events) < folds.num_forwards(ar.events)
    assert lookup.header.name == TITLES[LOOKUP]
    assert lookup.header.settings.is_ar_lookup
    rows = [row for event in lookup.events if isinstance(event, Step) for row in event.rows]
    assert {row.num_fed - row.num_pending for row in rows} == {0}
    assert set(trace_folds.passes_saved(lookup.events)) == {"look-up"}


def test_the_controls_move_it_no_more_than_plain_ar(handlers: Handlers) -> None:
    wanted = DecodeSettings(tau=0.3, block_size=7, lossless=False, temperature=0.5, seed=3)
    assert settings_for(LOOKUP, wanted) == replace(AR_LOOKUP, temperature=0.5, seed=3)
    stream = handlers.live.run("b", asked(view=[LOOKUP], pace=4))
    next(stream)
    handlers.live.steer("b", asked(tau=0.5, block_size=4, lossless=False))
    trace = lane_trace(last(stream), LOOKUP)
    steps = [step for step, _ in folds.row_steps(trace.events)]
    assert {step.settings for step in steps} == {trace.header.settings}
