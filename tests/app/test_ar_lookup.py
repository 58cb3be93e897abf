"""AR + lookup: plain AR that verifies drafts of prompt lookup, without masks, as a lane next to
MARS with lookup and AR.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import batch_page
import pytest
from live_page import lane_trace, last
from scripted_page import controls

from app.engines.engines import Engines
from app.engines.limits import Limits
from app.handlers import Handlers, make_handlers
from app.settings import AppSettings
from app.throughput.batch_order import TITLES as BATCH_TITLES
from app.throughput.batch_order import read_batch_order
from app.ui.controls import DEFAULTS, TITLES, settings_for, title_of
from app.ui.results import RESULTS, read_sets
from mars_runtime import folds
from mars_runtime.events import Step
from mars_runtime.methods import LOOKUP
from mars_runtime.review.methods import read_method
from mars_runtime.settings import AR_LOOKUP, DecodeSettings, describe
from mars_runtime.trace import read_trace
from tests import trace_folds

TASK = "Say this in all capitals: the young king has many servants and many servants"
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


def test_it_has_a_name_of_its_own_everywhere() -> None:
    name = TITLES[LOOKUP]
    assert describe(AR_LOOKUP) == name
    assert title_of(AR_LOOKUP) == BATCH_TITLES[LOOKUP] == name
    assert describe(replace(AR_LOOKUP, lossless=False)) != name  # unverified, nothing is looked up
    assert read_method("ar,lookup", "some").settings == AR_LOOKUP
    assert read_method("ar", "some").settings == DecodeSettings("ar")
    assert title_of(DEFAULTS) == TITLES["mars"]
    names = {point.name: point for point in read_sets(RESULTS)[0].points}
    assert names[name].settings.is_ar_lookup


def test_batch_decodes_it(handlers: Handlers) -> None:
    values = batch_page.controls(
        prompts=f"{COPIED}\n{TASK}", method=LOOKUP, second="ar", max_new_tokens=48,
        checkpoint="mars-tiny",
    )  # fmt: skip
    order = read_batch_order(values, Limits(8000, 64, 8))
    assert order.title(LOOKUP) == TITLES[LOOKUP]
    assert order.of(LOOKUP).is_ar_lookup
    value = last(handlers.batch.run("c", values))
    pairs = [line.split("\t", 1) for line in value.splitlines()[1:]]
    lookup, ar = (
        read_trace(data for tag, data in pairs if tag == side and '"type"' in data[:8])
        for side in ("a", "b")
    )
    for row in range(2):
        assert folds.accepted_tokens(lookup.events, row) == folds.accepted_tokens(ar.events, row)
    assert folds.totals(lookup.events).num_forwards < folds.totals(ar.events).num_forwards
