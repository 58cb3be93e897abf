"""Law 11: a kept prefix changes no token; where it is allowed to be kept, no bit either.

On quantised weights and the native forward. On dense ones keys and values of an answer differ from
those of the same tokens read as a prompt, in the last bits; there nothing is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from helpers import Ids, steps_of, tokens_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from native_models import CONFIGS, MASK_ID, native_model

from mars_runtime.cache import BLOCK
from mars_runtime.decoders import CursorBatch, decode
from mars_runtime.engine.memory import store_for
from mars_runtime.events import RowStep
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.model.native.model import NativeModel
from mars_runtime.prefix_cache import BlockPrefixCache
from mars_runtime.settings import DecodeSettings

pytestmark = pytest.mark.usefixtures("each_forward")

IDS = Ids(size=140, mask_id=MASK_ID, forbidden_ids=frozenset({0, MASK_ID}))
AR = DecodeSettings("ar", max_new_tokens=40)
BOLD = DecodeSettings(tau=0.0, block_size=4, max_new_tokens=40)
LOSSLESS = replace(BOLD, lossless=True)
TREES = replace(LOSSLESS, groups="every", lookup=True)
WAYS = {"ar": AR, "bold": BOLD, "lossless": LOSSLESS, "trees": TREES}


def ids_of(length: int, seed: int) -> list[int]:
    return torch.randint(5, 140, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def store_of(model: NativeModel) -> BlockPrefixCache:
    store = store_for(model, 2**24)
    assert store is not None
    return store


def answer(
    model: NativeModel, prompt: Sequence[int], way: DecodeSettings, store: BlockPrefixCache | None
) -> tuple[list[RowStep], int]:
    """The steps, and how many tokens of the prompt were reused."""
    batch = CursorBatch(model, IDS, 1, 400, prefix_cache=store)
    batch.add(0, prompt, lambda: way)
    num_reused, steps = batch.num_reused(0), []
    while batch.rows:
        steps += batch.step().rows
    batch.tidy()
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
    """Keys and values left by an answer, of one token per forward or several, of masks and trees
    beside it, are those of the same text read as a prompt; and so are the logits behind them."""
    model = native_model(name, bits, has_adapter=True)
    store = store_of(model)
    prompt = ids_of(length, length)
    steps, _ = answer(model, prompt, WAYS[way], store)
    text = [*prompt, *(token for step in steps for token in step.accepted)]
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
    kept = warm.cursors[0] = len(blocks) * BLOCK
    rest = model.hidden(longer[:, kept:], warm)
    every = slice(0, rest.shape[1])
    assert torch.equal(rest, whole[:, kept:])
    assert torch.equal(model.logits(rest, every), model.logits(whole[:, kept:], every))


@pytest.mark.parametrize("way", WAYS)
def test_law_11_every_turn_of_a_conversation_is_that_of_a_cold_start(way: str) -> None:
    model = native_model("llama", has_adapter=True)
    store, text, reused = store_of(model), ids_of(20, 1), []
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
    assert store_for(checkpoint.model, 2**24) is None


def test_why_nothing_is_kept_of_dense_weights() -> None:
    """The same tokens, read at once or one by one: as good as equal, and not equal."""
    checkpoint = load_checkpoint("mars-tiny", device="cpu", dtype="fp32")
    prompt = torch.tensor([checkpoint.tokenizer.encode_prompt("What is 17 plus 25? " * 4)])
    at_once, one_by_one = (checkpoint.model.new_cache(1, 200) for _ in range(2))
    checkpoint.model.hidden(prompt, at_once)
    for token in prompt[0]:
        checkpoint.model.hidden(token.view(1, 1), one_by_one)
        one_by_one.cursors[0] += 1
    stores = [cache.store[:, :, : prompt.shape[1]] for cache in (at_once, one_by_one)]
    assert torch.allclose(*stores, atol=1e-3)
    assert not torch.equal(*stores)


def ten_turns(checkpoint: Checkpoint, questions: Sequence[str], limit: int) -> Iterator[list[int]]:
    """A conversation, each turn of which is answered by lossless MARS from what is kept and by AR
    from nothing; yields tokens of each prompt and how many of them were reused."""
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    if not isinstance(model, NativeModel):
        pytest.skip("this machine has no C++ compiler")
    store = store_for(model, 2**28)
    text: list[int] = []
    end = sorted(tokenizer.eos_ids)[0]
    for question in questions:
        text += tokenizer.encode_prompt(question)
        capacity = len(text) + limit
        batch = CursorBatch(model, tokenizer, 1, capacity, prefix_cache=store)
        way = replace(TREES, max_new_tokens=limit)
        batch.add(0, text, lambda way=way: way)
        yield [len(text), batch.num_reused(0)]
        steps = []
        while batch.rows:
            steps += batch.step().rows
        batch.tidy()
        tokens = [token for step in steps for token in step.accepted]
        ar = replace(AR, max_new_tokens=limit)
        cold = steps_of(decode(model, tokenizer, [text], lambda ar=ar: ar))
        assert tokens == [token for step in cold for token in step.accepted]
        assert tokens_of(decode(model, tokenizer, [text], lambda way=way: way))[0] == tokens
        text += tokens if tokens[-1] in tokenizer.eos_ids else [*tokens, end]


QUESTIONS = (
    "What is 17 plus 25?",
    "Sort these words: pear, apple, fig.",
    "Tell me a tale of a fox.",
    "And how does it end?",
    "Count from 3 to 9.",
    "What was my first question?",
    "Say it again in other words.",
    "Name three colours.",
    "Which of them is the sky's?",
    "Thank you. Goodbye!",
)


def test_law_11_ten_turns_on_a_bundled_checkpoint() -> None:
    checkpoint = load_checkpoint("mars-tiny", device="cpu", dtype="int8")
    turns = list(ten_turns(checkpoint, QUESTIONS, 16))
    assert len(turns) == len(QUESTIONS)
    for (before, _), (_, reused) in pairwise(turns):
        assert reused >= before // BLOCK * BLOCK


@pytest.mark.slow
def test_law_11_ten_turns_on_the_chat_model(smollm2_file: object) -> None:
    checkpoint = load_checkpoint("mars-smollm2", device="cpu")
    turns = list(ten_turns(checkpoint, QUESTIONS, 48))
    for (before, _), (_, reused) in pairwise(turns):
        assert reused >= before // BLOCK * BLOCK
