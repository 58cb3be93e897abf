"""Our forward against transformers' classes, fp32 on a CPU, and against itself in pieces."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers import hf_config, hf_model, qwen3_config

from mars_runtime.model.config import ModelConfig
from mars_runtime.model.forward import Branches, Layout
from mars_runtime.model.transformer import Transformer

SIZES = SimpleNamespace(size=93)
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def llama_config(**changes: Any) -> Any:
    from transformers import LlamaConfig

    shape = hf_config(SIZES).to_dict()
    keys = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    keys += ("num_key_value_heads", "intermediate_size", "max_position_embeddings")
    remaining = {key: shape[key] for key in keys} | {"initializer_range": 0.25, "head_dim": 16}
    return LlamaConfig(**(remaining | changes))


CONFIGS = {
    "tied": lambda: hf_config(SIZES),
    "untied": lambda: hf_config(SIZES, tie_word_embeddings=False),
    "no groups": lambda: hf_config(SIZES, num_key_value_heads=4),
    "one kv head": lambda: hf_config(SIZES, num_key_value_heads=1),
    "other theta": lambda: hf_config(
        SIZES, rope_parameters={"rope_type": "default", "rope_theta": 1e6}
    ),
    "llama": llama_config,
    "llama3 rope": lambda: llama_config(rope_parameters=LLAMA3),
    "qwen3": lambda: qwen3_config(SIZES),
    "qwen3 untied": lambda: qwen3_config(SIZES, tie_word_embeddings=False),
}


def pair(config: Any) -> tuple[Any, Transformer]:
    theirs = hf_model(config)
    return theirs, Transformer(ModelConfig.from_dict(config.to_dict()), theirs.state_dict())


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_equal_transformers(name: str) -> None:
    theirs, ours = pair(CONFIGS[name]())
    ids = torch.randint(0, 100, (1, 70), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        wanted = theirs(ids).logits
    actual = ours.forward(ids, ours.new_cache(1, 80), slice(0, 70))
    torch.testing.assert_close(actual, wanted, atol=2e-4, rtol=1e-4)
    with torch.no_grad():  # weights are copied
        for weight in theirs.parameters():
            weight.zero_()
    cache, pieces = ours.new_cache(1, 80), []
    for piece in ids.split([1, 7, 1, 1, 16, 2, 31, 1, 10], dim=1):
        pieces.append(ours.forward(piece, cache, slice(None)))
        cache.cursors[0] += piece.shape[1]
    torch.testing.assert_close(torch.cat(pieces, 1), wanted, atol=2e-4, rtol=1e-4)


def test_a_stale_nan_behind_the_end_of_a_row_stays_there_once_cleared() -> None:
    _, ours = pair(CONFIGS["tied"]())
    cache = ours.new_cache(2, 60)
    cache.store[:, 0] = float("nan")
    cache.clear(0)
    ids = torch.randint(0, 100, (2, 40), generator=torch.Generator().manual_seed(5))
    for row, length in enumerate((3, 30)):
        ours.forward(ids[row : row + 1, :length], cache.row(row), None)
        cache.cursors[row] = length
    actual = ours.forward(ids[:, :2], cache, slice(0, 2))
    assert actual.isfinite().all()


def test_a_forward_behind_the_end_of_the_cache_is_refused() -> None:
    _, ours = pair(CONFIGS["tied"]())
    cache = ours.new_cache(1, 8)
    cache.cursors[0] = 6
    with pytest.raises(ValueError, match="the cache has 8"):
        ours.forward(torch.zeros(1, 3, dtype=torch.long), cache, None)


@pytest.mark.parametrize("name", ["tied", "qwen3"])
def test_bf16_stays_close_to_fp32(name: str) -> None:
    theirs, ours = pair(CONFIGS[name]())
    half = Transformer(ours.config, theirs.state_dict(), dtype=torch.bfloat16)
    ids = torch.randint(0, 100, (1, 30), generator=torch.Generator().manual_seed(6))
    outs = []
    for model in (ours, half):
        cache = model.new_cache(1, 40)
        model.forward(ids[:, :25], cache, None)
        cache.cursors[0] = 25
        actual = model.forward(ids[:, 25:], cache, slice(0, 5))
        outs.append(actual.float())
    similarity = torch.nn.functional.cosine_similarity(outs[0], outs[1], dim=-1)
    assert (similarity > 0.995).all()
    assert half.new_cache(1, 4).store.dtype == torch.bfloat16


MASK = 3
CPU = torch.device("cpu")


def branch_logits(model: Transformer, prefix: list[int], num_masks: int) -> torch.Tensor:
    """Return the logits of the last token of ``prefix`` and of the masks after it, all
    recomputed.
    """
    fed = torch.tensor([prefix + [MASK] * num_masks])
    actual = model.forward(
        fed, model.new_cache(1, fed.shape[1]), slice(len(prefix) - 1, fed.shape[1])
    )
    return actual[0]


def check(model: Transformer, texts: list[list[int]], layouts: list[Layout]) -> None:
    """Rows of different lengths; the pending tokens are the last of each text."""
    cache = model.new_cache(len(texts), 80)
    num_fed = max(layout.num_fed for layout in layouts) + 1
    fed = []
    for row, (text, layout) in enumerate(zip(texts, layouts, strict=True)):
        done, pending = text[: -layout.num_pending], text[-layout.num_pending :]
        model.forward(torch.tensor([done]), cache.row(row), None)
        cache.cursors[row] = len(done)
        fed.append(pending + [MASK] * (num_fed - len(pending)))
    actual = model.forward(
        torch.tensor(fed), cache, slice(0, num_fed), Branches.of(layouts, num_fed)
    )
    for row, (text, layout) in enumerate(zip(texts, layouts, strict=True)):
        at = layout.num_pending
        for place, size in enumerate(layout.groups, layout.num_pending - len(layout.groups)):
            prefix = text[: len(text) - layout.num_pending + place + 1]
            slots = [place, *range(at, at + size)]
            wanted = branch_logits(model, prefix, size)
            torch.testing.assert_close(actual[row, slots], wanted, atol=2e-4, rtol=1e-4)
            at += size


@pytest.mark.parametrize("name", ["tied", "one kv head", "llama", "qwen3"])
def test_every_branch_equals_a_plain_sequence(name: str) -> None:
    _, model = pair(CONFIGS[name]())
    text = torch.randint(4, 90, (30,), generator=torch.Generator().manual_seed(1)).tolist()
    check(model, [text], [Layout(4, (2, 1, 3))])
    layouts = [Layout(4, (2, 2, 2, 2)), Layout(1, (5,)), Layout(3, (0, 1, 2)), Layout(2, ())]
    check(model, [text, text[:9], text[:17], text[3:20]], layouts)


@pytest.mark.parametrize("name", ["tied", "one kv head"])
def test_a_block_sees_both_ways_and_the_text_before_it_does_not_see_it(name: str) -> None:
    """Against transformers with the mask of the training written out."""
    theirs, ours = pair(CONFIGS[name]())
    num_clean, num_pending, size = 7, 3, 5
    ids = torch.randint(4, 90, (1, num_clean + num_pending + size))
    total, first = ids.shape[1], num_clean + num_pending
    place = torch.arange(total)
    is_seen = place[None, :] <= place[:, None]
    is_seen |= (place[None, :] >= first) & (place[:, None] >= first)
    bias = torch.zeros(total, total).masked_fill(~is_seen, torch.finfo(torch.float32).min)
    with torch.inference_mode():
        wanted = theirs(input_ids=ids, attention_mask=bias[None, None]).logits[0]
    cache = ours.new_cache(1, total)
    ours.forward(ids[:, :num_clean], cache, None)
    cache.cursors[0] = num_clean
    branches = Branches.of_block(num_pending, size)
    actual = ours.forward(ids[:, num_clean:], cache, slice(0, num_pending + size), branches)
    torch.testing.assert_close(actual[0], wanted[num_clean:], atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("layout", "positions", "roots", "starts"),
    [
        # [a b c | x x | y y | z z], fed one token longer
        (
            Layout(3, (2, 2, 2)),
            [0, 1, 2, 1, 2, 2, 3, 3, 4, 5],
            [0, 1, 2, 1, 1, 2, 2, 3, 3, 3],
            [0, 1, 2, 3, 3, 5, 5, 7, 7, 7],
        ),
        # [a b c | x | y y]: groups belong to the last pending tokens
        (Layout(3, (1, 2)), [0, 1, 2, 2, 3, 4], [0, 1, 2, 2, 3, 3], [0, 1, 2, 3, 4, 4]),
        (Layout(3, (0, 0, 2)), [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 3, 3], [0, 1, 2, 3, 3, 3]),
        (Layout(2, ()), [0, 1, 2], [0, 1, 2], [0, 1, 2]),
    ],
)
def test_layouts_by_hand(layout, positions, roots, starts) -> None:
    assert layout.numbers(len(positions)) == (positions, roots, starts)
    branches = Branches.of([layout, Layout(1, ())], len(positions))
    assert branches.positions.tolist() == [positions, list(range(len(positions)))]
