"""The law of Jacobi decoding: AR's text for every B, in any company, at any temperature, on any
checkpoint; and what it guesses, by hand.

The slow twin is held against it in test_laws_cache.py.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers import Ids, ScriptedModel, foresight_script, peaked, steps_of, tokens_of
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st
from law_checkpoints import BUNDLED, load, plain, run, task_prompts, word_prompts
from native_models import native_model

from mars_runtime.decoders import decode
from mars_runtime.decoders.plan import first_guesses
from mars_runtime.events import Event, Step
from mars_runtime.folds import drafting
from mars_runtime.model.load import Checkpoint
from mars_runtime.settings import DecodeSettings, SettingsError
from tests.methods import decode_as

pytestmark = pytest.mark.usefixtures("each_forward")

JACOBI = DecodeSettings("jacobi", block_size=4, max_new_tokens=20)
IDS = Ids()
NO_MASK = Ids(mask_id=None)


def after_two(prefix: tuple[int, ...]) -> list[float]:
    """3 3 3 ... once two 3s stand there, and 5 before."""
    return peaked(3 if prefix[-2:] in ((3, 3), (5, 3)) else 5 if prefix[-1] == 3 else 3)


def test_guesses_behind_the_answers_say_the_last_token_again() -> None:
    assert first_guesses(7, [], 3, frozenset({0})) == [7, 7, 7]
    assert first_guesses(7, [8, 9], 3, frozenset({0})) == [9]
    assert first_guesses(7, [8, 9], 2, frozenset({0})) == []
    assert first_guesses(7, [8, 0], 5, frozenset({0})) == []


def test_by_hand() -> None:
    """The text is 4, then 3 5 3 3 3 ...; B = 3."""
    settings = replace(JACOBI, block_size=3, max_new_tokens=6)
    events = list(decode(ScriptedModel(after_two), NO_MASK, [[4]], lambda: settings))
    steps = steps_of(events)
    assert tokens_of(events) == [[3, 5, 3, 3, 3, 3]]
    # 4 | 4 -> 3 is no guess yet; [3 | 3 3] -> 5 3 3; [5 | 3 3] -> all stand
    assert [step.accepted for step in steps] == [(3,), (5,), (3, 3, 3), (3,)]
    assert [step.drafts for step in steps] == [(3, 3), (3, 3), (), ()]
    assert [step.guessed for step in steps] == [(3, 3), (), (), ()]
    assert [step.num_drafted for step in steps] == [0, 2, 0, 0]
    assert [step.num_pending for step in steps] == [1, 3, 3, 1]
    assert [step.num_fed for step in steps] == [1, 3, 3, 1]
    assert [step.stop for step in steps] == ["block", "mismatch", "block", "limit"]
    assert list(drafting(events)) == [(2, 0), (2, 2)]


def check(checkpoint: Checkpoint, count: int, limit: int, prompts: object = None) -> float:
    """Each prompt meets one B; returns tokens per forward."""
    num_tokens = num_forwards = 0
    for index, prompt in enumerate(prompts or word_prompts(checkpoint, count)):  # type: ignore[arg-type,var-annotated]
        settings = replace(JACOBI, block_size=(1, 2, 5, 16)[index % 4], max_new_tokens=limit)
        events = run(checkpoint, [prompt], settings)
        assert tokens_of(events) == plain(checkpoint, [prompt], limit)
        num_tokens += len(tokens_of(events)[0])
        num_forwards += len(steps_of(events))
    return num_tokens / num_forwards


def test_it_writes_ar_text(small: Checkpoint) -> None:
    check(small, 40, 20)


@pytest.mark.parametrize("name", BUNDLED)
def test_on_a_bundled_checkpoint_with_masks_or_without(name: str) -> None:
    assert check(load(name), 0, 40, task_prompts(name, 8)) > 1.02


@pytest.mark.slow
@pytest.mark.parametrize("name", BUNDLED)
def test_on_whole_answers(name: str) -> None:
    check(load(name), 0, 200, task_prompts(name, 102))


def test_at_a_temperature(small: Checkpoint) -> None:
    for index, prompt in enumerate(word_prompts(small, 12)):
        hot = replace(JACOBI, temperature=0.8, seed=index, block_size=2 + index)
        wanted = plain(small, [prompt], 20, temperature=0.8, seed=index)
        assert tokens_of(run(small, [prompt], hot)) == wanted


def test_in_a_ragged_batch_of_any_order(small: Checkpoint) -> None:
    prompts = word_prompts(small, 7, seed=11)
    found = tokens_of(run(small, prompts[::-1], JACOBI), 7)
    assert found[::-1] == plain(small, prompts, 20)


@profile(max_examples=40)
@given(
    st.integers(0, 10_000),
    st.lists(st.integers(1, 16), min_size=1, max_size=4),
    st.integers(1, 24),
    st.integers(1, 3),
)
def test_b_may_be_moved_while_it_runs(seed: int, sizes: list[int], limit: int, every: int) -> None:
    script = foresight_script(seed)
    ways = [replace(JACOBI, block_size=size, max_new_tokens=limit) for size in sizes]
    model, prompt = ScriptedModel(script), [3, 4, 5]
    events: list[Event] = []

    def steered() -> DecodeSettings:
        return ways[sum(isinstance(event, Step) for event in events) // every % len(ways)]

    for event in decode(model, IDS, [prompt], steered):
        events.append(event)
    wanted = list(decode_as("ar", ScriptedModel(script), IDS, [prompt], lambda: ways[0]))
    assert tokens_of(events) == tokens_of(wanted)
    for step in steps_of(events):
        assert step.num_pending <= step.settings.num_guesses + 1
        assert step.start + len(step.accepted) + len(step.drafts) <= limit


def test_to_the_last_bit_where_the_runtime_is() -> None:
    model, ids = native_model("llama"), Ids(size=150, mask_id=4)
    for seed in range(6):
        prompt = torch.randint(5, 140, (9,), generator=torch.Generator().manual_seed(seed)).tolist()
        settings = replace(JACOBI, block_size=6, temperature=0.3 * (seed % 2), seed=seed)
        found = steps_of(decode(model, ids, [prompt], lambda now=settings: now))
        wanted = steps_of(decode_as("ar", model, ids, [prompt], lambda now=settings: now))
        slots = [slot for step in found for slot in step.proposals[: len(step.accepted)]]
        assert slots == [step.proposals[0] for step in wanted]


def test_b_is_a_number() -> None:
    with pytest.raises(SettingsError, match="Jacobi needs a number as B"):
        DecodeSettings("jacobi", block_size="auto")
