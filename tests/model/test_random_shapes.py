"""Random models of published shape: sizes as published, weights made on the spot, and they run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tiny_checkpoint import write_checkpoint

from mars_runtime.model.config import CheckpointError, ModelConfig, expected_names, expected_shape
from mars_runtime.model.shapes import (
    SHAPES,
    ShapeVocabulary,
    random_model,
    random_prompts,
    shape_config,
)


def num_parameters(config: ModelConfig) -> int:
    return sum(torch.Size(expected_shape(name, config)).numel() for name in expected_names(config))


@pytest.mark.parametrize(
    ("name", "published"), [("qwen2.5-0.5b", 494_032_768), ("qwen2.5-7b", 7_615_616_512)]
)
def test_shapes_have_the_published_number_of_parameters(name: str, published: int) -> None:
    assert num_parameters(shape_config(name)) == published


def test_an_unknown_shape_lists_the_known_ones() -> None:
    with pytest.raises(CheckpointError, match=", ".join(SHAPES)):
        shape_config("qwen2.5-1t")


def test_a_random_model_runs_and_its_seed_decides(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path)
    config = ModelConfig.from_dict(json.loads((folder / "config.json").read_text()))

    def logits(seed: int) -> torch.Tensor:
        model = random_model(config, torch.device("cpu"), torch.float32, seed)
        found = model.forward(torch.tensor([[5, 6, 7]]), model.new_cache(1, 8), slice(0, 3))
        assert found is not None
        return found

    assert logits(0).isfinite().all()
    assert torch.equal(logits(0), logits(0))
    assert not torch.equal(logits(0), logits(1))


def test_prompts_hold_no_special_id() -> None:
    vocabulary = ShapeVocabulary(size=40, mask_id=39)
    prompts = random_prompts(vocabulary, [3, 200])
    assert [len(prompt) for prompt in prompts] == [3, 200]
    assert max(map(max, prompts)) < 39
