"""Static steps against the cursor batch: the same events on scripted models, number by number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from itertools import product

import pytest
from helpers import Ids, foresight_script, peaked, steps_of, tokens_of
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st
from static_scripted import StaticScriptedModel, outlines

from mars_runtime.acceptance import DecodeError
from mars_runtime.decoders import CursorBatch
from mars_runtime.decoders.base import decode_on
from mars_runtime.decoders.forced import ForcedAcceptance
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.decoders.static.batch import StaticBatch
from mars_runtime.events import Event, Step
from mars_runtime.methods import METHODS
from mars_runtime.settings import (
    CAPTURED,
    METRICS,
    SETTINGS,
    THRESHOLDS,
    DecodeSettings,
    Setting,
    captured,
)

IDS = Ids()
COSTS = ForwardCosts(8, {1: (1.0, 1.1, 1.2, 1.3), 4: (1.0, 1.05, 1.1, 1.2)})
ROOM = 64
FIXED = st.builds(
    DecodeSettings,
    method=st.sampled_from([name for name in METHODS if name != "speculative"]),  # it asks a draft
    tau=st.sampled_from((0.0, 0.3, 0.7, 0.95, 1.0)),
    block_size=st.integers(1, 16),
    metric=st.sampled_from(METRICS),
    lossless=st.booleans(),
    max_new_tokens=st.integers(1, 24),
    temperature=st.sampled_from((0.0, 0.0, 0.8)),
    seed=st.integers(0, 3),
)
PROMPT = st.lists(st.integers(3, 15), min_size=1, max_size=9)
# A lossless row that leaves B to be chosen is steered draft by draft in the cursor batch and by
# one B here, where shapes are captured: it takes other steps to the same tokens.
MOVES = FIXED | FIXED.map(
    lambda fixed: replace(fixed, method="mars", block_size="auto", lossless=False)
)
LEFT_TO_CHOOSE = FIXED.map(
    lambda fixed: replace(fixed, method="mars", block_size="auto", lossless=True)
)
STEERED = st.tuples(PROMPT, st.lists(MOVES, min_size=1, max_size=3))
ROW = st.tuples(PROMPT, FIXED)
Script = Callable[[tuple[int, ...]], Sequence[float]]


def static(script: Script, num_rows: int = 4, **options: object) -> StaticBatch:
    return StaticBatch(StaticScriptedModel(script), IDS, num_rows, ROOM, COSTS, **options)


def exact(script: Script, num_rows: int = 4) -> CursorBatch:
    return CursorBatch(StaticScriptedModel(script), IDS, num_rows, ROOM, COSTS)


class Steered:
    """Settings of one row that change every few steps; the limit of the first is the largest."""

    def __init__(self, moves: Sequence[DecodeSettings], every: int) -> None:
        limit = max(move.max_new_tokens for move in moves)
        self.moves = [replace(moves[0], max_new_tokens=limit), *moves]
        self.every, self.step = every, 0

    def __call__(self) -> DecodeSettings:
        return self.moves[self.step // self.every % len(self.moves)]


def run(batch: CursorBatch | StaticBatch, sources: Sequence[Steered]) -> list[Event]:
    events: list[Event] = []
    while batch.rows:
        events.append(batch.step())
        for source in sources:
            source.step += 1
    return events


@profile(max_examples=40)
@given(st.integers(0, 10_000), st.lists(STEERED, min_size=1, max_size=5), st.integers(1, 4))
def test_events_equal_those_of_the_cursor_batch(seed: int, rows: list, every: int) -> None:
    """Ragged rows, each with its own settings, which change every few steps."""
    found = []
    for batch in (exact(foresight_script(seed), 5), static(foresight_script(seed), 5)):
        sources = [Steered(moves, every) for _, moves in rows]
        for number, (prompt, _) in enumerate(rows):
            batch.add(number, prompt, sources[number])
        found.append(outlines(run(batch, sources)))
    assert found[0] == found[1]


BASES = (
    DecodeSettings(tau=0.3, block_size=6, max_new_tokens=20),
    DecodeSettings(tau=0.0, block_size=5, lossless=True, max_new_tokens=20),
    DecodeSettings(tau=0.3, block_size=4, max_new_tokens=20, temperature=1.5, seed=3),
    DecodeSettings(tau=0.5, block_size=6, max_new_tokens=20, threshold="agreement"),
    DecodeSettings(tau=0.3, block_size=4, max_new_tokens=20, lossless=True, lookup=True),
)
OTHER_VALUES: dict[str, tuple[object, ...]] = {
    "method": ("ar", "jacobi"),
    "tau": (0.0, 0.95),
    "block_size": (1, 3, 16),
    "metric": METRICS,
    "lossless": (True, False),
    "max_new_tokens": (3, 11),
    "temperature": (0.0, 2.0),
    "top_p": (0.05, 0.5),
    "seed": (1, 2),
    "groups": ("every",),
    "lookup": (True,),
    "threshold": THRESHOLDS,
    "target": (0.5, 0.99),
}
REFUSED = {"draft", "masked", "presence_penalty", "frequency_penalty", "logit_bias"}
"""What a GPU refuses with a sentence; the first two are of ``speculative`` alone."""
HELD = {*CAPTURED, "target"}  # a target without a threshold that adapts
ELSEWHERE = {"stop_loops", "aim"}
"""What asks for a text that repeats itself (tests/decoders/test_repeats.py), and what only says how
B is chosen where it is left to be (tests/decoders/test_drafting.py)."""


def others(line: Setting) -> tuple[object, ...]:
    """Values of a setting for which nobody chose any."""
    return line.choices or ((True, False) if line.type is bool else (line.low, line.high))


@pytest.mark.parametrize("name", [field.name for field in fields(DecodeSettings)])
def test_a_captured_step_obeys_every_setting_but_those_that_it_is_said_to_hold(name: str) -> None:
    """Changed alone: it changes the decoding, and the same way as in the cursor batch; what is held
    changes nothing, and the events say so."""
    if name in REFUSED | ELSEWHERE:
        return
    script, prompt = foresight_script(1), [3, 4, 5, 3, 4, 5, 3, 4]

    def decoded(batch: CursorBatch | StaticBatch, settings: DecodeSettings) -> list[list[object]]:
        batch.add(0, prompt, lambda: settings)
        return outlines(run(batch, []))

    def without_settings(steps: list[list[object]]) -> list[object]:
        return [replace(row, settings=BASES[0]) for (row,) in steps]

    has_effect = False
    for base, value in product(BASES, OTHER_VALUES.get(name) or others(SETTINGS[name])):
        changed = replace(base, **{name: value})
        here = decoded(static(script), changed)
        there = decoded(exact(script), changed)
        has_effect |= without_settings(there) != without_settings(decoded(exact(script), base))
        assert here == decoded(exact(script), captured(changed))
        assert (here == there) or name in HELD or captured(base) != base
    assert has_effect, f"{name} changes nothing anywhere, so this proves nothing"


@profile(max_examples=20)
@given(st.integers(0, 10_000), PROMPT, st.lists(LEFT_TO_CHOOSE, min_size=1, max_size=3))
def test_lossless_tokens_are_the_same_whatever_b_is_chosen(
    seed: int, prompt: list[int], moves: list[DecodeSettings]
) -> None:
    moves = [replace(move, temperature=moves[0].temperature, seed=moves[0].seed) for move in moves]
    batches = (exact(foresight_script(seed), 1), static(foresight_script(seed), 1))
    limit = min(move.max_new_tokens for move in moves)
    found = []
    for batch in batches:
        source = Steered(moves, 2)
        batch.add(0, prompt, source)
        found.append(tokens_of(run(batch, [source]), 1)[0][:limit])
    assert found[0] == found[1]


@profile(max_examples=15)
@given(st.integers(0, 10_000), st.lists(ROW, min_size=1, max_size=4), st.integers(2, 9))
def test_steps_read_late_are_the_same_steps(seed: int, rows: list, steps_per_read: int) -> None:
    prompts = [prompt for prompt, _ in rows]
    settings = rows[0][1]
    late = static(foresight_script(seed), 4, steps_per_read=steps_per_read)
    now = static(foresight_script(seed), 4)
    events = [list(decode_on(batch, prompts, lambda: settings)) for batch in (now, late)]
    for row in range(len(rows)):
        assert steps_of(events[0], row) == steps_of(events[1], row)
    # A batch that ran empty serves the next rows, whatever was still under way.
    assert tokens_of(decode_on(late, prompts, lambda: settings), len(rows)) == tokens_of(
        events[0], len(rows)
    )


@profile(max_examples=15)
@given(st.integers(0, 10_000), st.lists(ROW, min_size=3, max_size=6), st.integers(1, 3), st.data())
def test_rows_join_and_leave_while_steps_are_under_way(
    seed: int, rows: list, steps_per_read: int, data: st.DataObject
) -> None:
    """Whoever comes and goes, each row gets what it would get alone, as far as it gets."""
    batch = static(foresight_script(seed), 3, steps_per_read=steps_per_read)
    waiting, events, left = list(enumerate(rows)), [], set()
    while waiting or batch.rows:
        while waiting and len(batch.rows) < 3 and (not batch.rows or data.draw(st.booleans())):
            number, (prompt, settings) = waiting.pop()
            batch.add(number, prompt, lambda settings=settings: settings)
        events.append(batch.step())
        if batch.rows and data.draw(st.integers(0, 5)) == 0:
            left.add(data.draw(st.sampled_from(batch.rows)))
            batch.drop(max(left & set(batch.rows)))
    for number, (prompt, settings) in enumerate(rows):
        alone = exact(foresight_script(seed), 1)
        expected = steps_of(decode_on(alone, [prompt], lambda settings=settings: settings))
        found = steps_of(events, number)
        same = [replace(step, num_fed=0, row=0) for step in expected]
        assert [replace(step, num_fed=0, row=0) for step in found] == same[: len(found)]
        assert number in left or len(found) == len(expected)


def test_q_is_constant_whatever_the_rows_accepted() -> None:
    settings = DecodeSettings(tau=0.5, block_size=4, max_new_tokens=20)
    events = decode_on(static(foresight_script(3)), [[3], [4, 5]], lambda: settings)
    steps = [row for event in events if isinstance(event, Step) for row in event.rows]
    assert {step.num_fed for step in steps} == {7}
    assert len({step.num_pending for step in steps}) > 1


def test_a_row_that_breaks_harms_no_other_and_stays_where_it_was() -> None:
    def script(prefix: tuple[int, ...]) -> list[float]:
        is_ill = prefix[0] == 4 and len(prefix) > 5
        return [math.nan] * 18 if is_ill else foresight_script(1, eos_share=0.0)(prefix)

    settings = DecodeSettings(method="ar", max_new_tokens=9)
    batch = static(script)
    batch.add(7, [4, 3], lambda: settings)
    batch.add(8, [5, 3], lambda: settings)
    events: list[Event] = []

    def to_the_end() -> None:
        while batch.rows:
            events.append(batch.step())

    for _ in range(2):  # and again, until somebody drops it
        with pytest.raises(DecodeError, match="not a number") as caught:
            to_the_end()
        assert caught.value.rows == (7,)
    batch.drop(7)
    to_the_end()
    assert len(steps_of(events, 7)) == 4
    alone = decode_on(exact(script), [[5, 3]], lambda: settings)
    assert [step.accepted for step in steps_of(events, 8)] == [s.accepted for s in steps_of(alone)]


def test_a_row_that_left_has_no_event_in_store() -> None:
    """The event of a sound row waits while the fault of another is told."""
    settings = DecodeSettings(method="ar", max_new_tokens=9)
    sound = foresight_script(1, eos_share=0.0)
    batch = static(lambda prefix: [math.nan] * 18 if prefix[0] == 4 else sound(prefix))
    for number, first in ((7, 4), (8, 5), (9, 6)):
        batch.add(number, [first, 3], lambda: settings)
    with pytest.raises(DecodeError):
        batch.step()
    batch.drop(7)
    batch.drop(8)
    assert [(row.row, row.start) for row in batch.step().rows] == [(9, 0)]
    assert [(row.row, row.start) for row in batch.step().rows] == [(9, 1)]


def test_rows_may_sit_out_a_step() -> None:
    settings = DecodeSettings(tau=0.0, block_size=3, max_new_tokens=9)
    batch = static(foresight_script(5, eos_share=0.0))
    for number in range(3):
        batch.add(number, [3, 4 + number], lambda: settings)
    events = [batch.step([2]), batch.step([0, 2]), batch.step(), batch.step([1])]
    assert [[step.row for step in event.rows] for event in events] == [[2], [0, 2], [0, 1, 2], [1]]
    for number, count in ((0, 2), (1, 2), (2, 3)):
        batch = exact(foresight_script(5, eos_share=0.0))
        alone = decode_on(batch, [[3, 4 + number]], lambda: settings)
        expected = [step.accepted for step in steps_of(alone)]
        assert [step.accepted for step in steps_of(events, number)] == expected[:count]


def test_prompts_are_read_in_parts_while_others_are_decoded() -> None:
    settings = DecodeSettings(tau=0.3, block_size=4, max_new_tokens=16)
    script, prompt = foresight_script(6, eos_share=0.0), [3 + i % 12 for i in range(30)]
    batch = static(script)
    batch.add(0, [5], lambda: settings)
    batch.join(1, prompt, lambda: settings)
    events = [batch.step()]
    assert batch.read(1, 20) == 9
    events.append(batch.step())
    assert batch.read(1, 20) == 0
    while batch.rows:
        events.append(batch.step())
    expected = tokens_of(decode_on(exact(script), [prompt], lambda: settings))[0]
    assert tokens_of(events, 2)[1] == expected


def test_a_checkpoint_without_mask_token_serves_ar_alone() -> None:
    ids = Ids(mask_id=None, forbidden_ids=frozenset({0}))
    batch = StaticBatch(StaticScriptedModel(foresight_script(0)), ids, 2, ROOM)
    batch.add(0, [3], lambda: DecodeSettings(method="ar", max_new_tokens=4))
    batch.add(1, [3], lambda: DecodeSettings(max_new_tokens=4))
    with pytest.raises(DecodeError, match="no mask token") as caught:
        batch.step()
    assert caught.value.rows == (1,)
    batch.drop(1)
    assert len(batch.step().rows) == 1


@pytest.mark.parametrize("lossless", [False, True])
def test_forced_acceptance_follows_its_histogram(lossless: bool) -> None:
    forced = ForcedAcceptance((0.5, 0.0, 0.25, 0.25), seed=3)
    settings = DecodeSettings(tau=1.0, block_size=3, lossless=lossless, max_new_tokens=240)
    model = StaticScriptedModel(lambda prefix: peaked(2, 30.0))  # EOS, were it asked
    batch = StaticBatch(model, IDS, 8, 248, forced=forced)
    prompts = [[3] * (1 + row) for row in range(8)]
    events = list(decode_on(batch, prompts, lambda: settings))
    assert [len(tokens) for tokens in tokens_of(events, 8)] == [240] * 8
    counts = [len(step.accepted) for row in range(8) for step in steps_of(events, row)[:-1]]
    assert set(counts) == {1, 3}  # B caps the fours
    assert abs(counts.count(1) / len(counts) - 0.5) < 0.07
    assert events == list(decode_on(batch, prompts, lambda: settings))


def test_a_full_batch_and_an_unknown_row() -> None:
    settings = DecodeSettings(max_new_tokens=4)
    batch = static(foresight_script(0), 1)
    with pytest.raises(DecodeError, match="this batch holds"):
        batch.add(0, [3] * 61, lambda: settings)
    batch.add(0, [3], lambda: settings)
    with pytest.raises(DecodeError, match="rows are taken"):
        batch.add(1, [3], lambda: settings)
    with pytest.raises(KeyError):
        batch.drop(1)
    assert batch.rows == (0,)


@pytest.mark.parametrize("make", [static, exact])
def test_what_a_step_of_one_row_took_is_told(
    make: Callable[[Script], StaticBatch | CursorBatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[int, int, float]] = []
    monkeypatch.setattr(ForwardCosts, "took", lambda _, *told: heard.append(told))
    batch = make(foresight_script(0, eos_share=0.0))
    settings = DecodeSettings(method="mars", tau=0.5, block_size=3, max_new_tokens=20)
    batch.add(0, [3], lambda: settings)
    rows = [batch.step().rows[0] for _ in range(3)]
    fed = [(row.num_fed, row.num_fed - row.num_pending) for row in rows]
    assert [told[:2] for told in heard] == fed
    assert all(seconds > 0 for *_, seconds in heard)
    batch.add(1, [3], lambda: settings)
    assert len(batch.step().rows) == 2
    assert len(heard) == 3  # what rows share tells of none of them


def test_an_event_that_waited_took_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is of a forward that another row shared, whose fault was told first."""
    heard: list[int] = []
    monkeypatch.setattr(ForwardCosts, "took", lambda _, width, *__: heard.append(width))
    sound = foresight_script(1, eos_share=0.0)
    batch = static(lambda prefix: [math.nan] * 18 if prefix[0] == 4 else sound(prefix))
    for number, first in ((7, 4), (8, 5)):
        batch.add(number, [first, 3], lambda: DecodeSettings(method="ar", max_new_tokens=9))
    with pytest.raises(DecodeError):
        batch.step()
    batch.drop(7)
    assert [row.start for row in batch.step().rows] == [0]
    assert not heard
    assert [row.start for row in batch.step().rows] == [1]
    assert heard == [1]


def test_b_is_not_chosen_without_costs() -> None:
    batch = StaticBatch(StaticScriptedModel(foresight_script(0)), IDS, 2, ROOM)
    batch.add(4, [3], lambda: DecodeSettings(block_size="auto", max_new_tokens=4))
    with pytest.raises(DecodeError, match="choose a number as B") as caught:
        batch.step()
    assert caught.value.rows == (4,)


def test_an_aborted_run_leaves_the_batch_empty() -> None:
    settings = DecodeSettings(tau=0.0, max_new_tokens=20)
    batch = static(foresight_script(0, eos_share=0.0), steps_per_read=4)
    events = decode_on(batch, [[3], [4]], lambda: settings)
    next(events), next(events)
    events.close()
    assert batch.rows == ()


def test_a_captured_step_says_which_settings_it_could_obey() -> None:
    asked = DecodeSettings(tau=0.0, lossless=True, groups="every", lookup=True, max_new_tokens=12)
    for event in decode_on(static(foresight_script(2)), [[3, 4, 3, 4]], lambda: asked):
        for step in event.rows if isinstance(event, Step) else ():
            assert step.settings == replace(asked, groups="one", lookup=False)
            assert (step.groups, step.looked_up) == ((), ())
