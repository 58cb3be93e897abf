"""The one way in to batches, and the bookkeeping of their rows."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable

import pytest
from helpers import Ids, ScriptedModel, foresight_script, steps_of, tokens_of
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mars_runtime import folds
from mars_runtime.acceptance import DecodeError
from mars_runtime.decoders import decode
from mars_runtime.decoders.baselines import BATCH_METHODS, BatchMethod, decode_batch
from mars_runtime.decoders.drafting import PLAIN, Stake, agreed_width
from mars_runtime.decoders.forced import ForcedAcceptance
from mars_runtime.decoders.forward_costs import Curve, ForwardCosts
from mars_runtime.decoders.rows import Rows
from mars_runtime.events import Event, Prefill, Step
from mars_runtime.settings import DecodeSettings, Groups
from tests import slow_twin

IDS = Ids()
SETTINGS = DecodeSettings(tau=0.6, max_new_tokens=14)
PROMPTS = [[3, 4, 5], [6], [7, 8, 9, 10, 11], [12, 3], [4, 4, 4]]


def run(method, prompts=PROMPTS, settings=SETTINGS, batch_size=2, cache_block=4, seed=5):
    model = ScriptedModel(foresight_script(seed))
    return list(
        decode_batch(model, IDS, prompts, method, lambda: settings, batch_size, cache_block)
    )


@pytest.mark.parametrize("method", BATCH_METHODS)
def test_groups_follow_each_other_and_rows_are_prompts(method) -> None:
    events = run(method)
    groups = [i for i, event in enumerate(events) if isinstance(event, Prefill)]
    assert len(groups) == 3
    for place, begin in enumerate(groups):
        part = events[begin + 1 : groups[place + 1] if place < 2 else None]
        rows = {row.row for step in part for row in (*step.rows, *step.idle)}
        assert rows == {*range(2 * place, min(2 * place + 2, 5))}
    alone = [tokens_of(run(method, [prompt]))[0] for prompt in PROMPTS]
    assert tokens_of(events, 5) == alone


@pytest.mark.parametrize("method", BATCH_METHODS)
def test_ar_takes_one_token_and_the_others_more(method) -> None:
    counts = Counter(len(step.accepted) for row in range(5) for step in steps_of(run(method), row))
    assert (max(counts) > 1) == (method != "ar")


@pytest.mark.parametrize("method", BATCH_METHODS)
def test_law_8_at_one_token_a_forward_all_methods_write_the_same(method) -> None:
    settings = DecodeSettings(tau=1.0, max_new_tokens=14)
    assert tokens_of(run(method, settings=settings), 5) == tokens_of(run("ar"), 5)


def test_the_cache_that_is_reserved_is_told() -> None:
    """The scripted cache has a byte a slot; cursor rows have slack for 64 tokens."""
    found = {
        method: folds.peak_cache_bytes(run(method, [[3, 4, 5], [6]])) for method in BATCH_METHODS
    }
    assert found == {"ar": 2 * 81, "cursor": 2 * 81, "block": 2 * 17, "uncached": 2 * 17}


@given(
    seed=st.integers(0, 999),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    block_size=st.integers(1, 7),
    tau=st.sampled_from([0.0, 0.6, 1.0]),
    limit=st.integers(1, 20),
    temperature=st.sampled_from([0.0, 0.9]),
)
def test_no_cache_equals_the_slow_twin(seed, lengths, block_size, tau, limit, temperature) -> None:
    settings = DecodeSettings(
        tau=tau, block_size=block_size, max_new_tokens=limit, temperature=temperature, seed=seed
    )
    prompts = [[3 + (seed + i) % 13 for i in range(length)] for length in lengths]
    script = foresight_script(seed)
    model = ScriptedModel(script)
    slow = list(slow_twin.decode(ScriptedModel(script), IDS, prompts, lambda: settings))
    fast = list(decode_batch(model, IDS, prompts, "uncached", lambda: settings, len(prompts)))
    for row in range(len(prompts)):
        ours, theirs = steps_of(fast, row), steps_of(slow, row)
        assert [(s.start, s.proposals, s.accepted, s.stop, s.num_pending) for s in ours] == [
            (s.start, s.proposals, s.accepted, s.stop, s.num_pending) for s in theirs
        ]
    assert all(step.cursor == 0 for e in fast if isinstance(e, Step) for step in e.rows)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"method": "magic"}, "Choose a method among ar, cursor, block, uncached."),
        ({"batch_size": 0}, "The batch size must be a whole number from 1 to 64."),
        ({"batch_size": 2.0}, "The batch size must be a whole number from 1 to 64."),
        ({"method": "block", "cache_block": 2}, "The cache block must be a whole number"),
        ({"prompts": []}, "Give at least one prompt."),
        ({"prompts": [[3], []]}, "The prompt has no tokens"),
        ({"prompts": [[3], [99]]}, "token ids outside"),
        ({"settings": DecodeSettings(block_size="auto")}, "choose a number as B"),
        ({"method": "block", "settings": DecodeSettings(block_size="auto")}, "give a number as B"),
        ({"method": "block", "settings": DecodeSettings(lossless=True)}, "switch lossless off"),
        ({"method": "uncached", "settings": DecodeSettings(lossless=True)}, "switch lossless off"),
    ],
)
def test_refused_at_once_with_a_sentence(changes, sentence) -> None:
    arguments = {"prompts": PROMPTS, "method": "cursor", "settings": SETTINGS, "batch_size": 2}
    arguments |= {"cache_block": 4, **changes}
    settings = arguments.pop("settings")
    with pytest.raises(DecodeError, match=sentence):
        decode_batch(
            ScriptedModel(foresight_script(1)), IDS, settings=lambda: settings, **arguments
        )


@pytest.mark.parametrize("method", ["block", "uncached"])
def test_lossless_in_mid_run_is_refused_too(method) -> None:
    now = [SETTINGS]
    model = ScriptedModel(foresight_script(2, eos_share=0))
    events = decode_batch(model, IDS, [[3]], method, lambda: now[0], 1, 8)
    next(events), next(events)
    now[0] = DecodeSettings(lossless=True, max_new_tokens=14)
    with pytest.raises(DecodeError, match="switch lossless off"):
        list(events)


def test_without_a_mask_token_only_ar_works() -> None:
    ids = Ids(mask_id=None)
    model = ScriptedModel(foresight_script(1))
    for method in ("cursor", "block", "uncached"):
        with pytest.raises(DecodeError, match="no mask token"):
            decode_batch(model, ids, [[3]], method, lambda: SETTINGS, 1)
    assert tokens_of(decode_batch(model, ids, [[3]], "ar", lambda: SETTINGS, 1))[0]


ONE_EACH = ForcedAcceptance((1.0,))
SHORT = DecodeSettings(max_new_tokens=8)


@pytest.mark.parametrize("lossless", [False, True])
@pytest.mark.parametrize("num_rows", [1, 3])
def test_acceptance_can_be_imposed(lossless: bool, num_rows: int) -> None:
    """A forward takes so many tokens whatever τ says."""
    model = ScriptedModel(foresight_script(0), max_positions=2048)
    forced = ForcedAcceptance((0.5, 0.0, 0.25, 0.25), seed=3)
    tau = 0.0 if lossless else 1.0
    settings = DecodeSettings(tau=tau, block_size=4, lossless=lossless, max_new_tokens=400)
    free = Ids(eos_ids=frozenset())
    prompts = [[3, 4 + row, *range(5, 5 + row)] for row in range(num_rows)]
    events = list(decode(model, free, prompts, lambda: settings, forced=forced))
    counts = Counter(
        len(row.accepted) for event in events if isinstance(event, Step) for row in event.rows
    )
    total = sum(counts.values())
    assert sum(taken * count for taken, count in counts.items()) == 400 * num_rows
    assert counts[2] <= num_rows  # the last of a row alone
    assert sum(taken * count for taken, count in counts.items()) / total == pytest.approx(2.25, 0.1)
    again = list(decode(model, free, prompts, lambda: settings, forced=forced))
    assert again == events


def test_a_model_is_freed_at_once_after_its_runs() -> None:
    model = ScriptedModel(foresight_script(0))
    list(decode(model, IDS, [[3, 4]], lambda: SHORT, forced=ONE_EACH))
    alive = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert alive() is None
    finally:
        gc.enable()


def test_what_cannot_fit_is_told_at_once() -> None:
    model = ScriptedModel(foresight_script(0))
    with pytest.raises(DecodeError, match="at least one prompt"):
        decode(model, IDS, [], lambda: SHORT, forced=ONE_EACH)
    with pytest.raises(DecodeError, match="this model holds"):
        decode(model, IDS, [[3] * 600], lambda: SHORT, forced=ONE_EACH)


NUM_PLACES, LIMIT = 4, 40
ROW_SETTINGS = DecodeSettings()
DRAFT, MASK = -1, -2


class Paper:
    """A cache on paper: in each place the tokens that were written, wherever they came from."""

    def __init__(self) -> None:
        self.rows = NUM_PLACES
        self.cursors = [0] * NUM_PLACES
        self.written: list[list[int]] = [[] for _ in range(NUM_PLACES)]

    def write(self, place: int, tokens: list[int]) -> None:
        self.written[place][self.cursors[place] :] = tokens

    def clear(self, row: int, num_slots: int) -> None:
        assert len(self.written[row]) <= num_slots, "something of an earlier tenant stays"
        self.cursors[row], self.written[row] = 0, []

    def move(self, source: int, target: int, num_slots: int) -> None:
        self.clear(target, num_slots)
        self.cursors[target] = self.cursors[source]
        self.written[target] = self.written[source][: self.cursors[source]]

    def swap(self, one: int, other: int) -> None:
        for line in (self.cursors, self.written):
            line[one], line[other] = line[other], line[one]  # type: ignore[index]


class Machine(RuleBasedStateMachine):
    """Rows join, are read, decode, sit out, finish, fail and are cancelled in random order.

    Every token of every row is a different number, so that nothing can be mistaken for another's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.paper = Paper()
        self.rows = Rows(self.paper)
        self.texts: dict[int, list[int]] = {}  # prompt and emitted tokens of each live row
        self.num_prompt: dict[int, int] = {}
        self.sources: dict[int, Callable[[], DecodeSettings]] = {}
        self.last_number = 0

    @precondition(lambda self: len(self.texts) < NUM_PLACES)
    @rule(length=st.integers(1, 9))
    def submit(self, length: int) -> None:
        assert not self.rows.is_full
        self.last_number += 1
        number = self.last_number
        self.texts[number] = [1000 * number + place for place in range(length)]
        self.num_prompt[number] = length
        self.sources[number] = lambda: ROW_SETTINGS
        self.rows.join(number, self.texts[number], self.sources[number], LIMIT)

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), size=st.integers(1, 4))
    def read(self, data: st.DataObject, size: int) -> None:
        place, row = self.rows.find(data.draw(st.sampled_from(sorted(self.texts))))
        chunk = row.unread[:size]
        self.paper.write(place, chunk)
        self.paper.cursors[place] += len(chunk)
        del row.unread[:size]

    @precondition(lambda self: self.rows.ready)
    @rule(data=st.data(), fails=st.booleans())
    def step(self, data: st.DataObject, fails: bool) -> None:
        """A forward of some rows that are read; one that fails has written to the cache too."""
        chosen = data.draw(st.lists(st.sampled_from(self.rows.ready), min_size=1, unique=True))
        gathered = self.rows.gather(chosen)
        assert sorted(row.number for row in gathered) == sorted(chosen)
        assert self.rows.numbers[: len(gathered)] == tuple(row.number for row in gathered)
        for place, row in enumerate(gathered):
            self.paper.write(place, [*row.pending, MASK])
        if fails:
            return
        for place, row in enumerate(gathered):
            num_agreed = data.draw(st.integers(0, row.num_drafts))
            text = self.texts[row.number]
            count = num_agreed + data.draw(st.integers(1, 3))
            emitted = [1000 * row.number + len(text) + i for i in range(count)]
            text += emitted
            self.paper.cursors[place] += len(row.pending) - row.num_drafts + num_agreed
            agreed = self.paper.cursors[place] - num_agreed
            self.paper.written[place][agreed : agreed + num_agreed] = emitted[:num_agreed]
            row.emit(emitted, num_agreed, [DRAFT] * data.draw(st.integers(0, 3)))

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), tau=st.floats(0, 1))
    def change_settings(self, data: st.DataObject, tau: float) -> None:
        """The source is asked anew at every step; the bookkeeping must not keep its answer."""
        number = data.draw(st.sampled_from(sorted(self.texts)))
        row = self.rows.find(number)[1]
        changed = DecodeSettings(tau=tau)
        row.settings = self.sources[number] = lambda: changed
        assert self.rows.find(number)[1].settings() is changed

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """Finished, failed and cancelled rows leave in the same way, at any moment."""
        number = data.draw(st.sampled_from(sorted(self.texts)))
        self.rows.drop(number)
        del self.texts[number]
        for unknown in (number, self.last_number + 1):
            for refuse in (self.rows.drop, self.rows.find, lambda n: self.rows.gather([n])):
                with pytest.raises(KeyError):
                    refuse(unknown)

    @invariant()
    def every_row_has_one_place_and_none_is_lost(self) -> None:
        assert sorted(self.rows.numbers) == sorted(self.texts)
        assert self.rows.is_full == (len(self.texts) == NUM_PLACES)
        assert self.paper.cursors[len(self.texts) :] == [0] * (NUM_PLACES - len(self.texts))

    @invariant()
    def cursor_and_pending_are_consistent(self) -> None:
        for number, text in self.texts.items():
            place, row = self.rows.find(number)
            cursor = self.paper.cursors[place]
            final = [*row.unread, *row.pending[: len(row.pending) - row.num_drafts]]
            assert self.paper.written[place][:cursor] + final == text
            assert self.num_prompt[number] + row.num_emitted == len(text)
            assert len(row.pending) > row.num_drafts
            assert row.pending[len(row.pending) - row.num_drafts :] == [DRAFT] * row.num_drafts
            assert (number in self.rows.ready) == (not row.unread)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize(("more", "drafts"), [(0.02, True), (1.0, False)])
def test_a_batch_whose_b_is_left_to_be_chosen_drafts_what_pays(more: float, drafts: bool) -> None:
    """All rows alike by what forwards of so many rows cost; lossless, so the text is AR's."""
    model = ScriptedModel(foresight_script(5))
    costs = ForwardCosts(8, {5: tuple(1 + more * place for place in range(16))})
    auto = DecodeSettings(tau=0.0, block_size="auto", lossless=True, max_new_tokens=40)
    prompts = [list(prompt) for prompt in PROMPTS]

    def decoded(method: BatchMethod) -> list[Event]:
        return list(decode_batch(model, IDS, prompts, method, lambda: auto, 5, costs=costs))

    own, plain = decoded("cursor"), decoded("ar")
    assert tokens_of(own, 5) == tokens_of(plain, 5)
    num_own, num_plain = (len([e for e in each if isinstance(e, Step)]) for each in (own, plain))
    assert (num_own < 0.9 * num_plain) == drafts


@pytest.mark.parametrize("more", [0.02, 0.3, 1.0])
@pytest.mark.parametrize("groups", ["one", "every"])
def test_auto_in_a_batch_costs_at_most_what_ar_does(more: float, groups: Groups) -> None:
    """A row that drafts widens the forward of all. Where that is dear no row does so alone: the
    whole batch takes little more time than AR, by the costs that it was given, probes included."""
    model = ScriptedModel(foresight_script(5, 0.002))
    curve = tuple(1 + more * place for place in range(32))
    costs = ForwardCosts(8, {1: curve, 8: curve})
    auto = DecodeSettings(
        tau=0.0, block_size="auto", lossless=True, groups=groups, max_new_tokens=150
    )
    prompts = [[3 + place] * (1 + place % 4) for place in range(8)]

    def steps(method: BatchMethod) -> list[Step]:
        events = decode_batch(model, IDS, prompts, method, lambda: auto, 8, costs=costs)
        return [event for event in events if isinstance(event, Step)]

    spent = sum(curve[max(row.num_fed for row in step.rows) - 1] for step in steps("cursor"))
    assert spent <= 1.05 * len(steps("ar"))


def test_rows_draft_as_wide_as_pays_for_all_of_them() -> None:
    curve = Curve([1.0, 1.2, 1.4, 1.6])
    eager, modest = Stake(4, True, 1.5, 1.0), Stake(2, False, 0.5, 1.0)
    assert agreed_width([eager], curve) == 4
    assert agreed_width([eager, eager, eager], curve) == 4
    assert agreed_width([eager, PLAIN, PLAIN], curve) == 1  # 1.5 tokens for 3 rows at 0.6 more
    assert agreed_width([eager, modest, modest], curve) == 4  # 2.5 for 1.8; at 2: 1.0 for 0.6
    assert agreed_width([modest, modest, PLAIN], curve) == 2
    assert agreed_width([PLAIN, PLAIN], curve) == 1
