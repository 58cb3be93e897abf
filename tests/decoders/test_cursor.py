"""The cursor batch on scripted models: limits, ends, joining and leaving, faults."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
from helpers import Ids, ScriptedModel, foresight_script, peaked, steps_of, tokens_of
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from mars_runtime.acceptance import DecodeError
from mars_runtime.decoders import CursorBatch, decode
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.events import Prefill, Step
from mars_runtime.settings import GROUPS, MAX_FED, METRICS, DecodeSettings, Groups
from tests.methods import decode_as

pytestmark = pytest.mark.usefixtures("each_forward")

IDS = Ids()
COUNT = DecodeSettings(tau=0.5, max_new_tokens=8)


def counting(prefix: tuple[int, ...]) -> list[float]:
    """Counts 3, 4 ... 15, 3 ...; masks count on, all of it surely."""
    last = max(i for i, token in enumerate(prefix) if token != IDS.mask_id)
    return peaked(3 + (prefix[last] - 3 + len(prefix) - last) % 13, 30.0)


def run(script, prompts, settings, ids=IDS):
    return list(decode(ScriptedModel(script), ids, prompts, lambda: settings))


def test_every_emitted_token_comes_from_a_step() -> None:
    events = run(counting, [[3, 4, 5]], COUNT)
    assert events[0] == Prefill(2, cache_bytes=3 + 8 + MAX_FED)  # a byte a slot
    steps = steps_of(events)
    assert [step.accepted for step in steps] == [(6, 7, 8, 9), (10, 11, 12, 13)]
    assert [(step.cursor, step.num_pending, step.num_fed) for step in steps] == [
        (2, 1, 4),
        (3, 4, 7),
    ]
    assert [step.stop for step in steps] == ["block", "limit"]


def test_a_prompt_of_one_token_needs_no_prefill() -> None:
    events = run(counting, [[3]], COUNT)
    assert events[0] == Prefill(0, cache_bytes=1 + 8 + MAX_FED)
    assert tokens_of(events)[0][:3] == [4, 5, 6]


def test_long_prompts_are_read_in_chunks() -> None:
    model = ScriptedModel(counting, max_positions=4000)
    prompt = [3 + i % 13 for i in range(1300)]
    assert tokens_of(decode(model, IDS, [prompt], lambda: COUNT))[0][0] == 3 + 1300 % 13


@pytest.mark.parametrize("lossless", [False, True])
@pytest.mark.parametrize("block_size", [1, 2, 5, 16])
@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_the_limit_is_met_exactly(limit: int, block_size: int, lossless: bool) -> None:
    settings = replace(COUNT, max_new_tokens=limit, block_size=block_size, lossless=lossless)
    events = run(counting, [[3, 4]], settings)
    assert tokens_of(events) == [[3 + (2 + i) % 13 for i in range(limit)]]
    steps = steps_of(events)
    assert steps[-1].stop == "limit"
    assert all(step.start + len(step.proposals) <= limit for step in steps)


@pytest.mark.parametrize("lossless", [False, True])
@pytest.mark.parametrize("place", range(1, 7))
def test_nothing_comes_after_eos_wherever_it_stands(place: int, lossless: bool) -> None:
    ids = Ids(eos_ids=frozenset({3 + 1 + place}))
    settings = replace(COUNT, block_size=4, lossless=lossless, max_new_tokens=50)
    events = run(counting, [[3, 4]], settings, ids)
    assert tokens_of(events) == [list(range(5, 5 + place))]
    assert steps_of(events)[-1].stop == "eos"


def test_the_mask_token_never_comes_out_even_when_it_wins() -> None:
    def script(prefix: tuple[int, ...]) -> list[float]:
        logits = counting(prefix)
        logits[1] = logits[0] = logits[17] = 99.0  # mask, pad, a row without a token
        return logits

    assert tokens_of(run(script, [[3]], COUNT)) == tokens_of(run(counting, [[3]], COUNT))


def test_ar_is_a_method_and_not_a_threshold_of_one() -> None:
    certain = replace(COUNT, tau=1.0)
    assert len(steps_of(run(counting, [[3]], certain))) == 2  # fp32 rounds to exactly 1.0
    steps = steps_of(decode_as("ar", ScriptedModel(counting), IDS, [[3]], lambda: certain))
    assert len(steps) == 8
    assert {step.num_fed for step in steps} == {1}
    assert {step.settings.method for step in steps} == {"ar"}


def test_mars_holds_its_method() -> None:
    settings = DecodeSettings(method="ar", max_new_tokens=8)
    events = list(decode_as("mars", ScriptedModel(counting), IDS, [[3]], lambda: settings))
    assert len(steps_of(events)) == 2


def test_b_proposals_need_b_minus_1_masks() -> None:
    model = ScriptedModel(counting)
    list(decode(model, IDS, [[3]], lambda: replace(COUNT, block_size=4)))
    assert model.forwards[0] == [[3, 1, 1, 1]]
    assert model.forwards[1] == [[4, 5, 6, 7, 1, 1, 1]]


def test_a_row_that_ends_does_not_shift_the_others() -> None:
    ids = Ids(eos_ids=frozenset({15}))
    prompts = [[14], [3], [8, 9]]
    settings = replace(COUNT, max_new_tokens=30, block_size=3)
    together = tokens_of(run(counting, prompts, settings, ids), 3)
    assert together == [[15], list(range(4, 16)), list(range(10, 16))]


def test_pad_in_the_prompt_is_a_token_like_any_other() -> None:
    seen: list[tuple[int, ...]] = []

    def script(prefix: tuple[int, ...]) -> list[float]:
        seen.append(prefix)
        return peaked(5)

    run(script, [[0, 4, 0, 6]], replace(COUNT, max_new_tokens=1))
    assert seen == [(0, 4, 0, 6)]


def test_nan_is_a_sentence_and_names_the_rows_and_the_rest_goes_on() -> None:
    def script(prefix: tuple[int, ...]) -> list[float]:
        return [math.nan] * 18 if prefix[0] == 9 and len(prefix) > 3 else counting(prefix)

    batch = CursorBatch(ScriptedModel(script), IDS, 2, 40)
    plain = replace(COUNT, method="ar")
    batch.add(7, [9], lambda: plain)
    batch.add(8, [3], lambda: plain)
    emitted = []
    for _ in range(3):
        emitted += [row for row in batch.step().rows if row.row == 8]
    with pytest.raises(DecodeError, match="not a number") as caught:
        batch.step()
    assert caught.value.rows == (7,)
    batch.drop(7)
    while batch.rows:
        emitted += batch.step().rows
    assert [token for row in emitted for token in row.accepted] == list(range(4, 12))


@pytest.mark.parametrize(
    ("prompt", "limit", "sentence"),
    [
        ([], 4, "no tokens"),
        ([3, 18], 4, "outside 0 to 17"),
        ([-1], 4, "outside 0 to 17"),
        ([3] * 509, 4, "this model holds 512 together"),
    ],
)
def test_prompts_that_cannot_be_served_are_refused_at_once(
    prompt: list[int], limit: int, sentence: str
) -> None:
    settings = DecodeSettings(max_new_tokens=limit)
    with pytest.raises(DecodeError, match=sentence):
        decode(ScriptedModel(counting), IDS, [prompt], lambda: settings)


def test_a_full_batch_and_a_short_cache_say_so() -> None:
    batch = CursorBatch(ScriptedModel(counting), IDS, 1, 10)
    with pytest.raises(DecodeError, match="holds 10 a row"):
        batch.add(0, [3, 4, 5], lambda: COUNT)
    batch.add(0, [3, 4], lambda: COUNT)
    with pytest.raises(DecodeError, match="rows are taken"):
        batch.add(1, [3, 4], lambda: COUNT)
    with pytest.raises(KeyError):
        batch.drop(5)


def test_without_a_mask_token_only_ar_is_possible() -> None:
    ids = Ids(mask_id=None, forbidden_ids=frozenset({0}))
    with pytest.raises(DecodeError, match="no mask token"):
        run(counting, [[3]], COUNT, ids)
    assert tokens_of(run(counting, [[3]], replace(COUNT, method="ar"), ids))


def test_a_changed_setting_acts_on_the_very_next_forward() -> None:
    now = SimpleNamespace(settings=replace(COUNT, method="ar", max_new_tokens=40))
    events = decode(ScriptedModel(counting), IDS, [[3]], lambda: now.settings)
    sizes = []
    for event in events:
        if not isinstance(event, Step):
            continue
        sizes.append(len(event.rows[0].accepted))
        assert event.rows[0].settings is now.settings
        if len(sizes) == 3:
            now.settings = replace(COUNT, block_size=5, max_new_tokens=40)
        if len(sizes) == 5:
            now.settings = replace(COUNT, block_size=2, max_new_tokens=40)
        if len(sizes) == 7:
            now.settings = replace(COUNT, block_size=4, max_new_tokens=20)
        if len(sizes) == 8:
            now.settings = replace(COUNT, block_size=4, max_new_tokens=1)
    assert sizes == [1, 1, 1, 5, 5, 2, 2, 3]


def test_a_limit_can_be_lowered_and_not_raised() -> None:
    now = SimpleNamespace(settings=replace(COUNT, max_new_tokens=20))
    events = decode(ScriptedModel(counting), IDS, [[3]], lambda: now.settings)
    emitted = 0
    for event in events:
        if isinstance(event, Step):
            emitted += len(event.rows[0].accepted)
            now.settings = replace(COUNT, max_new_tokens=2 if emitted > 8 else 400)
    assert emitted == 13


def test_drafts_are_forgotten_when_lossless_is_switched_off() -> None:
    now = SimpleNamespace(settings=replace(COUNT, lossless=True, max_new_tokens=30))
    events = decode(ScriptedModel(counting), IDS, [[3]], lambda: now.settings)
    steps = []
    for event in events:
        if isinstance(event, Step):
            steps.append(event.rows[0])
            if len(steps) == 2:
                now.settings = replace(COUNT, method="ar", max_new_tokens=30)
            if len(steps) == 4:
                now.settings = replace(COUNT, lossless=True, max_new_tokens=30)
    tokens = [token for step in steps for token in step.accepted]
    assert tokens == [3 + (1 + i) % 13 for i in range(30)]
    assert [step.num_drafted for step in steps[:6]] == [3, 3, 0, 0, 3, 3]
    assert [len(step.accepted) for step in steps[:6]] == [1, 4, 1, 1, 1, 4]


def test_a_lossless_step_shows_verified_choices_then_drafts() -> None:
    steps = steps_of(run(counting, [[3]], replace(COUNT, lossless=True, max_new_tokens=12)))
    second = steps[1]
    assert second.accepted == (5, 6, 7, 8)
    assert [slot.token for slot in second.proposals] == [5, 6, 7, 8, 9, 10, 11]
    assert second.num_drafted == 3
    assert (second.cursor, second.num_pending, second.num_fed) == (1, 4, 7)


def test_prompts_are_read_in_parts_while_others_decode_and_rows_sit_out() -> None:
    """Whoever takes part in whichever forward: each row says what it says alone."""
    model = ScriptedModel(foresight_script(3), max_positions=200)
    prompts = {row: [3 + (row * 7 + i) % 13 for i in range(9 + 5 * row)] for row in range(4)}
    settings = replace(COUNT, lossless=True, max_new_tokens=30)
    alone = {n: tokens_of(decode(model, IDS, [p], lambda: settings))[0] for n, p in prompts.items()}
    batch = CursorBatch(model, IDS, 4, 100)
    found: dict[int, list[int]] = {row: [] for row in prompts}
    for row, prompt in prompts.items():
        batch.join(row, prompt, lambda: settings)
    left = {row: batch.read(row, 4) for row in prompts}
    assert left == {0: 4, 1: 9, 2: 14, 3: 19}
    rng = random.Random(0)
    while batch.rows:
        reading = [row for row in batch.rows if left[row]]
        if reading:
            row = rng.choice(reading)
            left[row] = batch.read(row, rng.randint(1, 4))
        ready = [row for row in batch.rows if not left[row]]
        chosen = rng.sample(ready, rng.randint(0, len(ready)))
        for step in batch.step(chosen).rows if chosen else ():
            assert step.row in chosen
            found[step.row] += step.accepted
    assert found == alone
    with pytest.raises(KeyError):
        batch.read(0)


def test_forward_costs_learn_from_steps_of_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[int, int, float]] = []
    monkeypatch.setattr(ForwardCosts, "took", lambda _, *told: heard.append(told))
    costs = ForwardCosts(8, {1: (1.0, 1.1, 1.2, 1.3), 4: (1.0, 1.05, 1.1, 1.2)})
    batch = CursorBatch(ScriptedModel(foresight_script(0, eos_share=0.0)), IDS, 4, 64, costs)
    settings = DecodeSettings(method="mars", tau=0.5, block_size=3, max_new_tokens=20)
    batch.add(0, [3], lambda: settings)
    rows = [batch.step().rows[0] for _ in range(3)]
    fed = [(row.num_fed, row.num_fed - row.num_pending) for row in rows]
    assert [told[:2] for told in heard] == fed
    assert all(seconds > 0 for *_, seconds in heard)
    batch.add(1, [3], lambda: settings)
    assert len(batch.step().rows) == 2
    assert len(heard) == 3  # the time of a shared forward belongs to no single row


ROW = st.tuples(
    st.lists(st.integers(3, 15), min_size=1, max_size=9),
    st.builds(
        DecodeSettings,
        method=st.sampled_from(("ar", "mars", "jacobi")),
        tau=st.sampled_from((0.0, 0.3, 0.7, 0.95, 1.0)),
        block_size=st.integers(1, 16),
        metric=st.sampled_from(METRICS),
        lossless=st.booleans(),
        max_new_tokens=st.integers(1, 24),
        temperature=st.sampled_from((0.0, 0.0, 0.8)),
        seed=st.integers(0, 3),
        groups=st.sampled_from(GROUPS),
        lookup=st.booleans(),
        repetition_penalty=st.sampled_from((1.0, 1.3)),
    ),
)


@profile(max_examples=30)
@given(st.integers(0, 10_000), st.lists(ROW, min_size=3, max_size=6), st.data())
def test_rows_that_join_and_leave_change_no_other_row(
    seed: int, rows: list[tuple[list[int], DecodeSettings]], data: st.DataObject
) -> None:
    """Each row writes what it writes by itself, up to the step at which it is dropped."""
    model = ScriptedModel(foresight_script(seed))
    batch = CursorBatch(model, IDS, 3, 64)
    waiting, events, left = list(enumerate(rows)), [], set()
    while waiting or batch.rows:
        while waiting and len(batch.rows) < 3 and (not batch.rows or data.draw(st.booleans())):
            number, (prompt, settings) = waiting.pop()
            batch.add(number, prompt, lambda settings=settings: settings)
        events.append(batch.step())
        if batch.rows and data.draw(st.integers(0, 5)) == 0:
            number = data.draw(st.sampled_from(batch.rows))
            left.add(number)
            batch.drop(number)
    for number, (prompt, settings) in enumerate(rows):
        alone = steps_of(decode(model, IDS, [prompt], lambda settings=settings: settings))
        found = steps_of(events, number)
        expected = [replace(step, num_fed=0, row=0) for step in alone]
        assert [replace(step, num_fed=0, row=0) for step in found] == expected[: len(found)]
        assert number in left or len(found) == len(expected)


@given(
    seed=st.integers(0, 10_000),
    prompts=st.lists(st.lists(st.integers(3, 15), min_size=1, max_size=9), min_size=1, max_size=4),
    tau=st.sampled_from([0.0, 0.3, 0.7, 0.95, 1.0]),
    block_size=st.integers(1, 9),
    metric=st.sampled_from(["probability", "margin", "entropy"]),
    limit=st.integers(1, 25),
    temperature=st.sampled_from([0.0, 0.0, 0.8]),
    groups=st.sampled_from(GROUPS),
    lookup=st.booleans(),
)
def test_laws_hold_for_any_script(
    seed: int,
    prompts: list[list[int]],
    tau: float,
    block_size: int,
    metric: str,
    limit: int,
    temperature: float,
    groups: Groups,
    lookup: bool,
) -> None:
    script = foresight_script(seed)
    settings = DecodeSettings(
        tau=tau,
        block_size=block_size,
        metric=metric,  # type: ignore[arg-type]
        max_new_tokens=limit,
        temperature=temperature,
        seed=seed,
        groups=groups,
        lookup=lookup,
    )
    alone = [run(script, [p], replace(settings, method="ar")) for p in prompts]
    plain = [tokens_of(events)[0] for events in alone]
    lossless = run(script, prompts, replace(settings, lossless=True))
    assert tokens_of(lossless, len(prompts)) == plain
    drafted = run(script, prompts, settings)
    bare = replace(settings, groups="one", lookup=False)
    for row, _ in enumerate(prompts):
        plain_steps = steps_of(run(script, prompts, bare), row)
        assert [replace(step, settings=bare) for step in steps_of(drafted, row)] == plain_steps
    for row, prompt in enumerate(prompts):
        steps = steps_of(drafted, row)
        tokens = list(prompt)
        for step in steps:
            assert 1 <= len(step.accepted) <= block_size
            assert [slot.token for slot in step.proposals[: len(step.accepted)]] == list(
                step.accepted
            )
            if temperature == 0:
                first = run(script, [tokens], DecodeSettings(method="ar", max_new_tokens=1))
                assert step.accepted[0] == tokens_of(first)[0][0]
            tokens += step.accepted
        new = tokens[len(prompt) :]
        assert all(3 <= token < 16 or token == 2 for token in new)
        assert 2 not in new[:-1]
        assert len(new) <= limit
        assert steps[-1].stop == ("eos" if new[-1] == 2 else "limit")
