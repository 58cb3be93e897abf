"""Our forward against transformers' classes, fp32 on a CPU, and against itself in pieces."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers import hf_config, hf_model

from mars_runtime.model.config import CheckpointError, ModelConfig
from mars_runtime.model.qwen2 import Qwen2

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
    kept = {key: shape[key] for key in keys} | {"initializer_range": 0.25, "head_dim": 16}
    return LlamaConfig(**(kept | changes))


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
}


def pair(config: Any) -> tuple[Any, Qwen2]:
    theirs = hf_model(config)
    return theirs, Qwen2(ModelConfig.from_dict(config.to_dict()), theirs.state_dict())


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_equal_transformers(name: str) -> None:
    theirs, ours = pair(CONFIGS[name]())
    ids = torch.randint(0, 100, (1, 70), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        wanted = theirs(ids).logits
    cache = ours.new_cache(1, 80)
    found = ours.forward(ids, cache, slice(0, 70))
    assert found is not None
    torch.testing.assert_close(found, wanted, atol=2e-4, rtol=1e-4)


def test_pieces_of_any_length_give_the_same_logits() -> None:
    theirs, ours = pair(CONFIGS["tied"]())
    ids = torch.randint(0, 100, (1, 60), generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        wanted = theirs(ids).logits
    cache, start = ours.new_cache(1, 64), 0
    for size in (1, 7, 1, 1, 16, 2, 31, 1):
        cache.cursors[0] = start
        found = ours.forward(ids[:, start : start + size], cache, slice(size - 1, size))
        start += size
        assert found is not None
        torch.testing.assert_close(found[:, 0], wanted[:, start - 1], atol=2e-4, rtol=1e-4)


def test_what_was_written_ahead_is_overwritten_and_never_seen() -> None:
    _, ours = pair(CONFIGS["tied"]())
    ids = torch.randint(0, 100, (1, 30), generator=torch.Generator().manual_seed(3))
    clean, used = ours.new_cache(1, 64), ours.new_cache(1, 64)
    for cache in (clean, used):
        ours.forward(ids[:, :20], cache, None)
        cache.cursors[0] = 20
    ours.forward(torch.full((1, 40), 3), used, None)  # masks up to slot 60
    outs = [ours.forward(ids[:, 20:], cache, slice(0, 10)) for cache in (clean, used)]
    torch.testing.assert_close(outs[0], outs[1], atol=0, rtol=0)


@pytest.mark.parametrize("lengths", [(5, 20, 11), (7, 7, 7), (1, 2, 40)])
def test_ragged_rows_equal_the_rows_alone(lengths: tuple[int, ...]) -> None:
    _, ours = pair(CONFIGS["tied"]())
    ids = torch.randint(0, 100, (3, 50), generator=torch.Generator().manual_seed(4))
    ids = ids.clone()
    cache, alone = ours.new_cache(3, 60), []
    for row, length in enumerate(lengths):
        single = ours.new_cache(1, 60)
        for target in (cache.row(row), single):
            if length:
                ours.forward(ids[row : row + 1, :length], target, None)
        cache.cursors[row] = single.cursors[0] = length
        fed = ids[row : row + 1, length : length + 6]
        alone.append(ours.forward(fed, single, slice(0, 6)))
    fed = torch.stack([ids[row, n : n + 6] for row, n in enumerate(lengths)])
    slots = torch.tensor([[0, 2, 5], [1, 1, 4], [5, 0, 3]])
    found = ours.forward(fed, cache, slots)
    assert found is not None
    for row in range(3):
        wanted = alone[row]
        assert wanted is not None
        torch.testing.assert_close(found[row], wanted[0, slots[row]], atol=1e-4, rtol=1e-4)


def test_a_stale_nan_behind_the_end_of_a_row_stays_there_once_cleared() -> None:
    _, ours = pair(CONFIGS["tied"]())
    cache = ours.new_cache(2, 60)
    cache.store[:, 0] = float("nan")
    cache.clear(0)
    ids = torch.randint(0, 100, (2, 40), generator=torch.Generator().manual_seed(5))
    for row, length in enumerate((3, 30)):
        ours.forward(ids[row : row + 1, :length], cache.row(row), None)
        cache.cursors[row] = length
    found = ours.forward(ids[:, :2], cache, slice(0, 2))
    assert found is not None
    assert found.isfinite().all()


def test_a_forward_behind_the_end_of_the_cache_is_refused() -> None:
    _, ours = pair(CONFIGS["tied"]())
    cache = ours.new_cache(1, 8)
    cache.cursors[0] = 6
    with pytest.raises(ValueError, match="the cache has 8"):
        ours.forward(torch.zeros(1, 3, dtype=torch.long), cache, None)


def test_no_head_gives_no_logits() -> None:
    _, ours = pair(CONFIGS["tied"]())
    tokens = torch.zeros(1, 3, dtype=torch.long)
    assert ours.forward(tokens, ours.new_cache(1, 8), None) is None


def test_bf16_stays_close_to_fp32() -> None:
    theirs, ours = pair(CONFIGS["tied"]())
    half = Qwen2(ours.config, theirs.state_dict(), dtype=torch.bfloat16)
    ids = torch.randint(0, 100, (1, 30), generator=torch.Generator().manual_seed(6))
    outs = []
    for model in (ours, half):
        cache = model.new_cache(1, 40)
        model.forward(ids[:, :25], cache, None)
        cache.cursors[0] = 25
        found = model.forward(ids[:, 25:], cache, slice(0, 5))
        assert found is not None
        outs.append(found.float())
    similarity = torch.nn.functional.cosine_similarity(outs[0], outs[1], dim=-1)
    assert (similarity > 0.995).all()
    assert half.new_cache(1, 4).store.dtype == torch.bfloat16


def test_weights_are_copied_and_the_original_order_does_not_matter() -> None:
    theirs, ours = pair(CONFIGS["tied"]())
    ids = torch.arange(10).unsqueeze(0)
    before = ours.forward(ids, ours.new_cache(1, 10), slice(0, 10))
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.zero_()
    after = ours.forward(ids, ours.new_cache(1, 10), slice(0, 10))
    assert before is not None
    assert after is not None
    assert torch.equal(before, after)


def test_a_missing_or_misshapen_weight_is_named() -> None:
    config = CONFIGS["tied"]()
    shape, weights = ModelConfig.from_dict(config.to_dict()), hf_model(config).state_dict()
    name = "model.layers.1.mlp.up_proj.weight"
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        Qwen2(shape, {key: value for key, value in weights.items() if key != name})
    with pytest.raises(CheckpointError, match=f"{name} has shape .* says \\(96, 48\\)"):
        Qwen2(shape, weights | {name: weights[name].t()})


@pytest.mark.gpu
def test_cuda_equals_cpu_in_fp32() -> None:
    theirs, ours = pair(CONFIGS["tied"]())
    there = Qwen2(ours.config, theirs.state_dict(), device="cuda")
    ids = torch.randint(0, 100, (2, 12))
    outs = []
    for model in (ours, there):
        cache = model.new_cache(2, 40)
        cache.cursors = [0, 0]
        found = model.forward(ids.to(model.device), cache, slice(0, 12))
        assert found is not None
        outs.append(found.cpu())
    torch.testing.assert_close(outs[0], outs[1], atol=1e-3, rtol=1e-3)
