"""The one way in to batches, and the bookkeeping of their rows."""

from __future__ import annotations

import gc
import weakref

import pytest
from helpers import Ids, ScriptedModel, foresight_script, steps_of, tokens_of
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.decoders.baselines import BATCH_METHODS, BatchMethod, decode_batch
from mars_runtime.decoders.cursor import decode, decode_queue
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.errors import DecodeError
from mars_runtime.runs import folds
from mars_runtime.runs.events import FINAL, Event, Prefill, Step
from mars_runtime.settings import DecodeSettings, MaskLayout
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


@pytest.mark.parametrize("num_rows", [1, 2, 9])
@pytest.mark.parametrize("lossless", [False, True])
def test_a_queue_keeps_its_rows_full_and_gives_each_prompt_its_text(
    num_rows: int, lossless: bool
) -> None:
    settings = DecodeSettings(tau=0.6, max_new_tokens=14, lossless=lossless)

    def decoded(prompts: list[list[int]], rows: int) -> list[Event]:
        model = ScriptedModel(foresight_script(5))
        return list(decode_queue(model, IDS, prompts, lambda: settings, rows))

    events = decoded(PROMPTS, num_rows)
    num_joined, ended = 0, 0
    for event in events:
        if isinstance(event, Prefill):
            num_joined += 1
        elif isinstance(event, Step):
            assert len(event.rows) == min(num_rows, num_joined - ended)
            assert num_joined == len(PROMPTS) or len(event.rows) == num_rows
            ended += sum(row.stop in FINAL for row in event.rows)
    assert num_joined == ended == len(PROMPTS)
    alone = [tokens_of(decoded([prompt], 1))[0] for prompt in PROMPTS]
    assert tokens_of(events, len(PROMPTS)) == alone
    with pytest.raises(DecodeError, match="token ids outside"):
        decode_queue(ScriptedModel(foresight_script(1)), IDS, [[99]], lambda: settings, 2)


def test_the_reserved_cache_is_reported() -> None:
    """The scripted cache has a byte a slot; cursor rows have slack for 64 tokens."""
    actual = {
        method: folds.peak_cache_bytes(run(method, [[3, 4, 5], [6]])) for method in BATCH_METHODS
    }
    assert actual == {"ar": 2 * 81, "cursor": 2 * 81, "block": 2 * 17, "uncached": 2 * 17}


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
        (
            {"method": "magic"},
            "The method must be one of ar, cursor, block, uncached",
        ),
        ({"batch_size": 0}, "The batch size must be a whole number from 1 to 64, got 0."),
        ({"method": "block", "cache_block": 257}, "The cache block must be a whole number"),
        ({"prompts": []}, "Give at least one prompt."),
        ({"prompts": [[3], []]}, "The prompt is empty"),
        ({"prompts": [[3], [99]]}, "token ids outside"),
        ({"settings": DecodeSettings(block_size="auto")}, "choose a number as B"),
        ({"method": "block", "settings": DecodeSettings(lossless=True)}, "turn lossless off"),
        ({"method": "uncached", "settings": DecodeSettings(lossless=True)}, "turn lossless off"),
        (
            {"method": "uncached", "settings": DecodeSettings(tau_policy="entropy")},
            "fixed threshold",
        ),
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
    current = [SETTINGS]
    model = ScriptedModel(foresight_script(2, eos_share=0))
    events = decode_batch(model, IDS, [[3]], method, lambda: current[0], 1, 8)
    next(events), next(events)
    current[0] = DecodeSettings(lossless=True, max_new_tokens=14)
    with pytest.raises(DecodeError, match="turn lossless off"):
        list(events)


def test_without_a_mask_token_only_ar_works() -> None:
    ids = Ids(mask_id=None)
    model = ScriptedModel(foresight_script(1))
    for method in ("cursor", "block", "uncached"):
        with pytest.raises(DecodeError, match="no mask token"):
            list(decode_batch(model, ids, [[3]], method, lambda: SETTINGS, 1))
    with pytest.raises(DecodeError, match="no mask token"):
        list(decode(model, ids, [[3]], lambda: SETTINGS))
    assert tokens_of(decode_batch(model, ids, [[3]], "ar", lambda: SETTINGS, 1))[0]


def test_a_model_is_freed_at_once_after_its_runs() -> None:
    model = ScriptedModel(foresight_script(0))
    list(decode(model, IDS, [[3, 4]], lambda: SETTINGS))
    alive = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(("more", "drafts"), [(0.02, True), (1.0, False)])
def test_a_batch_whose_b_is_left_to_be_chosen_drafts_what_pays(more: float, drafts: bool) -> None:
    """All rows alike by what forwards of so many rows cost; lossless, so the text is AR's."""
    model = ScriptedModel(foresight_script(5))
    costs = ForwardCosts(8, {5: tuple(1 + more * place for place in range(16))})
    auto = DecodeSettings(tau=0.0, block_size="auto", lossless=True, max_new_tokens=40)
    prompts = [list(prompt) for prompt in PROMPTS]

    def decoded(method: BatchMethod) -> list[Event]:
        return list(decode_batch(model, IDS, prompts, method, lambda: auto, 5, costs=costs))

    mars, plain = decoded("cursor"), decoded("ar")
    assert tokens_of(mars, 5) == tokens_of(plain, 5)
    assert (len(mars) < 0.9 * len(plain)) == drafts


@pytest.mark.parametrize("more", [0.02, 0.3, 1.0])
@pytest.mark.parametrize("mask_layout", ["last", "every"])
def test_auto_in_a_batch_costs_at_most_what_ar_does(more: float, mask_layout: MaskLayout) -> None:
    """A row that drafts widens the forward of all rows. If that is expensive no row drafts alone:
    the whole batch takes little more time than AR at the given costs, probes included.
    """
    model = ScriptedModel(foresight_script(5, 0.002))
    curve = tuple(1 + more * place for place in range(32))
    costs = ForwardCosts(8, {1: curve, 8: curve})
    auto = DecodeSettings(
        tau=0.0, block_size="auto", lossless=True, mask_layout=mask_layout, max_new_tokens=150
    )
    prompts = [[3 + place] * (1 + place % 4) for place in range(8)]

    def steps(method: BatchMethod) -> list[Step]:
        events = decode_batch(model, IDS, prompts, method, lambda: auto, 8, costs=costs)
        return [event for event in events if isinstance(event, Step)]

    spent = sum(curve[max(row.num_fed for row in step.rows) - 1] for step in steps("cursor"))
    assert spent <= 1.05 * len(steps("ar"))
