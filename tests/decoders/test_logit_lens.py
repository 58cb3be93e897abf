"""Predictions after each layer of a forward, compared with transformers' hidden states, with the
forward itself, and with shallower models.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from helpers import Ids, steps_of
from hypothesis import given
from hypothesis import strategies as st
from law_checkpoints import load, run, task_prompts
from native_models import MASK_ID, native_model

from mars_runtime.acceptance import DecodeError
from mars_runtime.decoders.logit_lens import NUM_STATES, read_layers
from mars_runtime.events import RowStep
from mars_runtime.layers import Column, Fed, Layers, counted_masks
from mars_runtime.model.files import weight_files
from mars_runtime.model.forward import Branches, Layout, Part
from mars_runtime.model.native.model import NativeModel
from mars_runtime.model.registry import REGISTRY
from mars_runtime.settings import DecodeSettings

pytestmark = pytest.mark.usefixtures("each_forward")

needs_checkpoint = pytest.mark.skipif(
    not (REGISTRY.parent / "mars-tiny" / "config.json").exists(), reason="mars-tiny is not bundled"
)
WAYS = {
    "one group": DecodeSettings(tau=0.0, block_size=4, lossless=True, max_new_tokens=24),
    "groups": DecodeSettings(
        tau=0.0, block_size=3, lossless=True, mask_layout="every", max_new_tokens=24
    ),
    "unverified": DecodeSettings(tau=0.6, block_size=6, max_new_tokens=24),
    "plain": DecodeSettings(method="ar", max_new_tokens=8),
}


def drained(pieces: Generator[None, None, Layers]) -> tuple[Layers, int]:
    """What was found, and in how many pieces."""
    count = 0
    while True:
        try:
            next(pieces)
        except StopIteration as done:
            return done.value, count + 1
        count += 1


@cache
def rows_of(way: str) -> tuple[tuple[int, ...], tuple[RowStep, ...]]:
    """A prompt and the steps of its run on the bundled checkpoint in fp32."""
    (prompt,) = task_prompts("mars-tiny", 1)
    events = run(load("mars-tiny"), [prompt], WAYS[way])
    return prompt, tuple(steps_of(events))


@cache
def theirs() -> Any:
    from transformers import AutoModelForCausalLM

    folder = REGISTRY.parent / "mars-tiny"
    weight_files(folder)  # transformers does not decompress them
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def direct(ids: Sequence[int], forbidden: Sequence[int]) -> list[list[tuple[int, float]]]:
    """For each token what transformers' hidden states say through its norm and head, by layer."""
    model = theirs()
    with torch.inference_mode():
        states = list(model(torch.tensor([list(ids)]), output_hidden_states=True).hidden_states)
        normed = [model.model.norm(state) for state in states[:-1]] + [states[-1]]  # it is normed
        logits = torch.stack([model.lm_head(item)[0] for item in normed])
        logits[..., list(forbidden)] = -torch.inf
        chances, tokens = logits.softmax(-1).max(-1)
    return [
        list(zip(tokens[:, at].tolist(), chances[:, at].tolist(), strict=True))
        for at in range(len(ids))
    ]


def assert_says(column: Column, wanted: Sequence[tuple[int, float]]) -> None:
    assert [token for token, _ in column.says] == [token for token, _ in wanted]
    actual = [chance for _, chance in column.says]
    assert actual == pytest.approx([chance for _, chance in wanted], abs=2e-5)


@needs_checkpoint
@pytest.mark.parametrize("way", WAYS)
def test_numbers_equal_transformers_hidden_states(way: str) -> None:
    checkpoint, (prompt, rows) = load("mars-tiny"), rows_of(way)
    forbidden = sorted(checkpoint.tokenizer.forbidden_ids)
    mask = checkpoint.tokenizer.mask_id
    num_masks = 0
    for index in range(0, len(rows), 3):
        fed = Fed.by(prompt, rows, index)
        layers, _ = drained(read_layers(checkpoint.model, checkpoint.tokenizer, fed))
        real = direct(fed.ids, forbidden)
        assert [entry.position for entry in layers.columns[: fed.num_pending]] == list(
            range(fed.cursor, len(fed.ids))
        )
        for column in layers.columns:
            if column.root is None:
                assert_says(column, real[column.position])
                continue
            masks = [mask] * (column.position - column.root + 1)
            wanted = direct([*fed.ids[: column.root], *masks], forbidden)
            assert_says(column, wanted[column.position])
            num_masks += 1
        written = direct(fed.text, forbidden)
        for column in layers.real:
            assert_says(column, written[column.position])
        positions = {item.position for item in layers.columns if item.root is not None}
        assert [value.position for value in layers.real] == [
            at for at in sorted(positions) if at < len(fed.text)
        ]
    assert (num_masks > 0) == (way != "plain")


@needs_checkpoint
@pytest.mark.parametrize("way", WAYS)
def test_the_last_layer_says_what_the_run_proposed(way: str) -> None:
    """So a forward is put together again from its trace as it was."""
    checkpoint, (prompt, rows) = load("mars-tiny"), rows_of(way)
    for index, row in enumerate(rows):
        fed = Fed.by(prompt, rows, index)
        layers, _ = drained(read_layers(checkpoint.model, checkpoint.tokenizer, fed))
        last = {mask.position: mask.says[-1] for mask in counted_masks(fed, layers.columns)}
        for place, proposal in enumerate(row.proposals, len(prompt) + row.start - 1):
            if place in last:
                assert last[place][0] == proposal.token
                assert last[place][1] == pytest.approx(proposal.confidence, abs=2e-5)
        if way == "one group":
            assert len(last) == row.num_fed - row.num_pending


def test_a_column_settles_where_its_last_answer_begins() -> None:
    def settled(*tokens: int) -> int:
        return Column(0, None, tuple((token, 0.5) for token in tokens)).settled

    assert settled(7, 7, 7) == 0
    assert settled(1, 7, 2, 7, 7) == 3
    assert settled(7, 7, 2) == 2


def test_the_group_that_counted_follows_what_the_run_kept() -> None:
    says = ((5, 1.0),)
    columns = [Column(position, root, says) for position, root in ((9, 9), (10, 10), (11, 11))]
    fed = Fed((1,) * 9 + (2, 3), 8, (1, 1, 1), (1,) * 9 + (2, 4, 4))
    assert [mask.root for mask in counted_masks(fed, columns)] == [10]
    assert counted_masks(fed, [Column(8, None, says)]) == []


@given(
    name=st.sampled_from(["llama", "qwen2"]),
    has_adapter=st.booleans(),
    groups=st.sampled_from([(3,), (2, 2), (0, 1, 2)]),
    cursor=st.integers(0, 40),
)
def test_native_layers_one_by_one_are_the_forward_to_the_last_bit(
    name: str, has_adapter: bool, groups: tuple[int, ...], cursor: int
) -> None:
    model = native_model(name, has_adapter=has_adapter)
    layout = Layout(3, groups)
    before = torch.arange(cursor + 3).remainder(90).add(5)
    tokens = torch.tensor([[*before[cursor:], *[MASK_ID] * sum(groups)]])
    branches = Branches.of([layout], layout.num_fed)
    whole, parts = model.new_cache(1, 64), model.new_cache(1, 64)
    for cache_ in (whole, parts):
        if cursor:
            model.hidden(before[:cursor].unsqueeze(0), cache_)
        cache_.cursors[0] = cursor
    wanted = model.hidden(tokens, whole, branches)
    states = model.hidden(tokens, parts, branches, Part(range(0)))
    for layer in range(model.config.num_layers):
        before_ = states.clone()
        after = model.hidden(tokens, parts, branches, Part(range(layer, layer + 1), states))
        assert torch.equal(states, before_)
        states = after
    assert torch.equal(states, wanted)
    assert torch.equal(parts.store, whole.store)


def test_states_of_another_shape_are_refused() -> None:
    model = native_model("llama")
    tokens, cache_ = torch.tensor([[5, 6]]), model.new_cache(1, 8)
    for wrong in (None, torch.zeros(1, 3, model.config.hidden_size)):
        with pytest.raises(ValueError, match="needs states of shape"):
            model.hidden(tokens, cache_, None, Part(range(1, 2), wrong))


def test_what_was_kept_need_not_be_read_again() -> None:
    from mars_runtime.prefix_cache import BlockPrefixCache

    model, vocabulary = native_model("llama"), Ids(size=150, mask_id=MASK_ID)
    ids = tuple(range(5, 105))
    store = BlockPrefixCache(32, 1, 100)
    cache_ = model.new_cache(1, 128)
    model.hidden(torch.tensor([ids]), cache_)
    store.keep(ids, lambda index: cache_.block(0, index))
    fed = Fed(ids, 98, (2,), ids)
    (actual, few), (wanted, many) = (
        drained(read_layers(model, vocabulary, fed, item)) for item in (store, None)
    )
    assert actual == wanted
    assert few < many


class Counted:
    """A model that notes the work of each call: layers times tokens, or states of the head."""

    def __init__(self, model: NativeModel) -> None:
        self._model, self.work = model, []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def hidden(self, tokens: Any, cache_: Any, branches: Any = None, part: Any = None) -> Any:
        self.work.append(tokens.numel() * len(part.layers))
        return self._model.hidden(tokens, cache_, branches, part)

    def read(self, states: Any, head: slice, *rest: Any) -> Any:
        assert head.stop - head.start <= NUM_STATES
        self.work.append(0)
        return self._model.read(states, head, *rest)


def test_no_piece_is_longer_than_a_forward() -> None:
    model, vocabulary = Counted(native_model("large")), Ids(size=150, mask_id=MASK_ID)
    ids = tuple(range(5, 105))
    for _ in read_layers(model, vocabulary, Fed(ids, 98, (6,), ids)):
        assert len(model.work) == 1
        assert model.work.pop() <= 2 * model.config.num_layers


@pytest.mark.parametrize(
    "fed",
    [
        Fed((), 0, (1,), ()),
        Fed((5, 6), 2, (1,), ()),
        Fed((5, 6), -1, (1,), ()),
        Fed((5, 6), 1, (1, 1), ()),
        Fed((5, 6), 1, (-1,), ()),
        Fed((5, 6), 1, (64,), ()),
        Fed((5, 600), 1, (1,), ()),
        Fed((5, 6), 1, (1,), (5, -6)),
    ],
)
def test_what_is_no_forward_is_refused(fed: Fed) -> None:
    with pytest.raises(DecodeError):
        next(read_layers(native_model("llama"), Ids(size=150, mask_id=MASK_ID), fed))
