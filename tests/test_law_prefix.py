"""Law 11: a kept prefix changes no token; in the native forward with quantised weights, no bit.
On dense weights the last bits of an answer's keys and values differ from those of the same tokens
read as a prompt, so nothing is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice, pairwise
from typing import Any

import pytest
import torch
from helpers import Ids, tokens_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from native_models import CONFIGS, MASK_ID, native_model

from mars_runtime.cache import BLOCK
from mars_runtime.decoders.cursor import CursorBatch, decode
from mars_runtime.decoders.prefix_cache import BlockPrefixCache
from mars_runtime.engine.memory import new_prefix_cache
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.model.native.model import NativeModel
from mars_runtime.runs.events import RowStep
from mars_runtime.settings import DecodeSettings

IDS = Ids(size=140, mask_id=MASK_ID, forbidden_ids=frozenset({0, MASK_ID}))
AR = DecodeSettings("ar", max_new_tokens=40)
BOLD = DecodeSettings(tau=0.0, block_size=4, max_new_tokens=40)
LOSSLESS = replace(BOLD, lossless=True)
TREES = replace(LOSSLESS, mask_layout="every", lookup=True)
WAYS = {"ar": AR, "bold": BOLD, "lossless": LOSSLESS, "trees": TREES}


def ids_of(length: int, seed: int) -> list[int]:
    return torch.randint(5, 140, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def answer(
    model: NativeModel, prompt: Sequence[int], way: DecodeSettings, store: BlockPrefixCache | None,
    vocabulary: Any = IDS, capacity: int = 400,
) -> tuple[list[RowStep], int]:  # fmt: skip
    """Return the steps, and how many tokens of the prompt were reused."""
    batch = CursorBatch(model, vocabulary, 1, capacity, prefix_cache=store)
    batch.add(0, prompt, lambda: way)
    num_reused, steps = batch.num_reused(0), list[RowStep]()
    while batch.rows:
        steps += batch.step().rows
    batch.release_ended()
    return steps, num_reused


@settings(max_examples=15)
@given(
    name=st.sampled_from(sorted(CONFIGS)),
    bits=st.sampled_from([4, 8]),
    way=st.sampled_from(sorted(WAYS)),
    length=st.integers(1, 70),
    more=st.integers(1, 40),
)
@example(name="llama", bits=4, way="bold", length=25, more=1)  # its last forward crosses a block
def test_law_11_what_was_written_equals_what_is_read_to_the_last_bit(
    name: str, bits: int, way: str, length: int, more: int
) -> None:
    """Keys and values left by an answer, and the logits after them, are those of the same text
    prefilled as a prompt."""
    model = native_model(name, bits, has_adapter=True)
    store = new_prefix_cache(model, 2**24)
    prompt = ids_of(length, length)
    steps, _ = answer(model, prompt, WAYS[way], store)
    text = [*prompt, *(token for step in steps for token in step.accepted)]
    assert store is not None
    blocks = store.find(text)
    # What a lossless forward emits it has also fed, but for the last token; others feed it later.
    num_unfed = 1 if WAYS[way].lossless else len(steps[-1].accepted)
    assert len(blocks) == (len(text) - num_unfed) // BLOCK or steps[-1].stop == "eos"
    longer = torch.tensor([[*text, *ids_of(more, 9)]])
    cold, warm = model.new_cache(1, 300), model.new_cache(1, 300)
    whole = model.hidden(longer, cold)
    for index, block in enumerate(blocks):
        assert isinstance(block, torch.Tensor)
        assert torch.equal(block, cold.block(0, index))
        warm.put(0, index, block)
    num_cached = warm.cursors[0] = len(blocks) * BLOCK
    rest = model.hidden(longer[:, num_cached:], warm)
    every = slice(0, rest.shape[1])
    assert torch.equal(rest, whole[:, num_cached:])
    assert torch.equal(model.logits(rest, every), model.logits(whole[:, num_cached:], every))


@pytest.mark.parametrize("way", WAYS)
def test_law_11_every_turn_of_a_conversation_is_that_of_a_cold_start(way: str) -> None:
    model = native_model("llama", has_adapter=True)
    store, text, reused = new_prefix_cache(model, 2**24), ids_of(20, 1), []
    for turn in range(6):
        text += ids_of(7, turn)
        warm, num_reused = answer(model, text, replace(WAYS[way], max_new_tokens=25), store)
        cold, _ = answer(model, text, replace(WAYS[way], max_new_tokens=25), None)
        assert warm == cold
        reused.append(num_reused)
        text += [token for step in warm for token in step.accepted]
    assert reused[0] == 0
    assert all(later > before for before, later in pairwise(reused[1:]))


def test_nothing_is_kept_where_the_last_bits_would_tell(random_folder: object) -> None:
    checkpoint = load_checkpoint(str(random_folder), device="cpu", dtype="fp32")
    assert not checkpoint.model.is_bitwise
    assert new_prefix_cache(checkpoint.model, 2**24) is None


QUESTIONS = ["What is 17 plus 25?", "Tell me a tale of a fox.", "And how does it end?"]


def check_ten_turns(checkpoint: Checkpoint, limit: int) -> None:
    """Answer each turn by lossless MARS from what is kept, and by AR from nothing."""
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    if not isinstance(model, NativeModel):
        pytest.skip("this machine has no C++ compiler")
    store, way = new_prefix_cache(model, 2**28), replace(TREES, max_new_tokens=limit)
    text, num_before, ar = list[int](), 0, replace(AR, max_new_tokens=limit)
    for question in islice(cycle(QUESTIONS), 10):
        text += tokenizer.encode_prompt(question)
        steps, num_reused = answer(model, text, way, store, tokenizer, len(text) + limit)
        assert num_reused >= num_before // BLOCK * BLOCK
        tokens = [token for step in steps for token in step.accepted]
        for item in (ar, way):
            assert tokens_of(decode(model, tokenizer, [text], lambda item=item: item)) == [tokens]
        num_before = len(text)
        ended = tokens[-1] in tokenizer.eos_ids
        text += tokens if ended else [*tokens, min(tokenizer.eos_ids)]


def test_law_11_ten_turns_on_a_bundled_checkpoint() -> None:
    check_ten_turns(load_checkpoint("mars-tiny", device="cpu", dtype="int8"), 16)


@pytest.mark.slow
def test_law_11_ten_turns_on_the_chat_model(smollm2_file: object) -> None:
    check_ten_turns(load_checkpoint("mars-smollm2", device="cpu"), 48)
