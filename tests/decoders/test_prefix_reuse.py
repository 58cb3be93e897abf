"""A batch that caches what its rows computed gives the same output, and feeds less."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from helpers import KEPT_BLOCK, Ids, ScriptedModel, foresight_script
from hypothesis import given, settings
from hypothesis import strategies as st

from mars_runtime.decoders.cursor import CursorBatch
from mars_runtime.decoders.prefix_cache import BlockPrefixCache, PrefixHit
from mars_runtime.errors import DecodeError
from mars_runtime.runs.events import RowStep
from mars_runtime.settings import MASK_LAYOUTS, METRICS, DecodeSettings

pytestmark = pytest.mark.usefixtures("each_forward")

IDS = Ids()
PLAIN = DecodeSettings(method="ar", max_new_tokens=6)


def store_of(num_blocks: int = 1000) -> BlockPrefixCache:
    return BlockPrefixCache(KEPT_BLOCK, 1, num_blocks)


def batch_of(
    model: ScriptedModel, store: BlockPrefixCache | None, num_rows: int = 1
) -> CursorBatch:
    return CursorBatch(model, IDS, num_rows, 400, prefix_cache=store)


def finish(batch: CursorBatch, number: int = 0) -> list[RowStep]:
    collected: list[RowStep] = []
    while number in batch.rows:
        collected += batch.step([number]).rows
    batch.release_ended()
    return collected


def text_of(prompt: Sequence[int], steps: Sequence[RowStep]) -> list[int]:
    return [*prompt, *(token for step in steps for token in step.accepted)]


SETTINGS = st.builds(
    DecodeSettings,
    method=st.sampled_from(["ar", "mars", "mars"]),
    tau=st.sampled_from([0.0, 0.4, 0.95]),
    block_size=st.integers(1, 8),
    metric=st.sampled_from(METRICS),
    lossless=st.booleans(),
    max_new_tokens=st.integers(1, 20),
    temperature=st.sampled_from([0.0, 0.8]),
    mask_layout=st.sampled_from(MASK_LAYOUTS),
    lookup=st.booleans(),
)
# A turn: which conversation it is of, what is asked, how it is answered, after how many forwards it
# is stopped.
TURNS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.lists(st.integers(3, 5), min_size=1, max_size=9),
        SETTINGS,
        st.sampled_from([0, 2, 99, 99]),
    ),
    max_size=9,
)


@settings(max_examples=60)
@given(seed=st.integers(0, 99), num_blocks=st.sampled_from([0, 3, 9, 999]), turns=TURNS)
def test_conversations_are_the_same_with_and_without(seed, num_blocks, turns) -> None:
    model = ScriptedModel(foresight_script(seed), max_positions=450)
    store = store_of(num_blocks)
    ours, plain = batch_of(model, store, 2), batch_of(model, None, 2)
    texts: dict[int, list[int]] = {}
    for number, (which, request, way, at_most) in enumerate(turns):
        prompt = [*texts.get(which, [4, 4, 4, 4, 4]), *request]
        collected = []
        for batch in (plain, ours):
            batch.add(number, prompt, lambda way=way: way)
            steps: list[RowStep] = []
            while batch.rows and len(steps) < at_most:
                steps += batch.step().rows
            for row in batch.rows:
                batch.drop(row)
            batch.release_ended()
            collected.append(steps)
        assert collected[0] == collected[1]
        texts[which] = text_of(prompt, collected[1])
        assert store.num_bytes <= num_blocks


def test_a_block_is_found_behind_its_own_beginning_only_and_the_oldest_one_goes() -> None:
    store = store_of(3)
    one, other = ([token] * KEPT_BLOCK + [5] * KEPT_BLOCK for token in (3, 4))
    store.store(one, lambda index: ("one", index))
    assert store.find(one) == [("one", 0), ("one", 1)]
    assert store.find(other) == []
    store.store(other, lambda index: ("other", index))
    assert store.find(other) == [("other", 0), ("other", 1)]
    assert store.find(one) == [("one", 0)]


def test_what_is_stopped_while_it_is_read_leaves_nothing() -> None:
    model, store = ScriptedModel(foresight_script(1)), store_of()
    batch = batch_of(model, store)
    batch.join(0, [3] * 30, lambda: PLAIN)
    assert batch.prefill(0, 12) == 17
    batch.drop(0)
    batch.join(1, [4] * 30, lambda: PLAIN)
    batch.drop(1)
    batch.add(2, [5] * 30, lambda: PLAIN)
    batch.drop(2)
    batch.release_ended()
    assert store.num_bytes == 0


def test_a_forward_that_fails_leaves_nothing() -> None:
    def script(prefix: tuple[int, ...]) -> list[float]:
        is_broken = prefix[0] == 9 and len(prefix) > 12
        return [math.nan] * 18 if is_broken else foresight_script(1, eos_share=0.0)(prefix)

    model, store = ScriptedModel(script), store_of()
    batch = batch_of(model, store, 2)
    batch.add(0, [9] * 11, lambda: PLAIN)
    batch.add(1, [8] * 11, lambda: PLAIN)
    for _ in range(2):
        batch.step()
    with pytest.raises(DecodeError, match="not finite numbers"):
        batch.step()
    batch.drop(0)
    assert store.num_bytes == 0
    finish(batch, 1)
    assert PrefixHit(store, [9] * 12).num_found == 0
    assert PrefixHit(store, [8] * 12).num_found == 8


def test_a_prompt_is_kept_up_to_the_token_of_the_mask() -> None:
    store = store_of()
    batch = batch_of(ScriptedModel(foresight_script(1, eos_share=0.0)), store)
    prompt = [3, 3, 3, 3, 4, IDS.mask_id or 0, 5, 5, 5, 5, 5, 5, 5]
    batch.add(0, prompt, lambda: PLAIN)
    finish(batch)
    assert store.num_bytes == 1
    assert PrefixHit(store, prompt).num_found == 4


def test_a_store_that_cannot_copy_lets_the_row_go() -> None:
    class Full(BlockPrefixCache):
        def store(self, ids, copy):  # type: ignore[no-untyped-def]
            raise MemoryError

    batch = batch_of(ScriptedModel(foresight_script(1)), Full(KEPT_BLOCK, 1, 9))
    batch.add(0, [3] * 9, lambda: PLAIN)
    assert finish(batch)
    assert batch.add(1, [3] * 9, lambda: PLAIN) == 8
