"""The fast Llama agrees with transformers, and generation with its own slow twin."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from tiny_base import VOCABULARY, write_base

from mars_runtime.lab.training.adapter.streams import read_clean
from mars_runtime.lab.training.backbone import Backbone, read_base
from mars_runtime.lab.training.distill.generate import GenerationConfig, cohorts_of, generate
from mars_runtime.lab.training.distill.run import open_user_turn, with_roles
from mars_runtime.model.config import CheckpointError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def model(folder: Path) -> Backbone:
    return Backbone(read_base(str(folder)), torch.float32)


def _prompts(count: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(3, 20, (count,), generator=generator).tolist()
    return [torch.randint(5, VOCABULARY, (n,), generator=generator).tolist() for n in lengths]


def test_logits_are_those_of_transformers(folder: Path, model: Backbone) -> None:
    from transformers import LlamaForCausalLM

    ids = torch.tensor([prompt[:3] for prompt in _prompts(4)])
    theirs = LlamaForCausalLM.from_pretrained(folder)(ids).logits
    hidden = read_clean(model, ids).hidden
    ours = model.head(model.normed(hidden.flatten(0, 1))).view(theirs.shape)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_answers_are_the_greedy_ones_of_each_prompt_alone(model: Backbone) -> None:
    prompts = _prompts(23)
    config = GenerationConfig(eos_id=2, max_tokens=45, rows=18)
    found = {a.index: a for ended in generate(model, prompts, config) for a in ended}
    assert sorted(found) == list(range(23))
    for index, prompt in enumerate(prompts):
        ids = list(prompt)
        with torch.no_grad():
            for _ in found[index].ids:
                hidden = read_clean(model, torch.tensor([ids])).hidden[:, -1]
                ids.append(int(model.greedy(hidden)))
        assert tuple(ids[len(prompt) :]) == found[index].ids
        is_eos = found[index].ids[-1] == 2
        assert (found[index].end == "eos") == is_eos
        assert found[index].end == "loop" or is_eos or len(found[index].ids) == 45


def test_sampled_prompts_are_repeatable(model: Backbone) -> None:
    config = GenerationConfig(eos_id=2, max_tokens=8, rows=12, temperature=1.0, seed=5)
    runs = [list(generate(model, _prompts(4), config)) for _ in range(2)]
    assert runs[0] == runs[1]


def test_cohorts_hold_each_prompt_once_and_like_lengths_together() -> None:
    groups = cohorts_of([5, 1, 5, 1, 5, 1], 3)
    assert sorted(i for group in groups for i in group) == list(range(6))
    assert sorted(groups[0]) in ([0, 2, 4], [1, 3, 5])


def test_greedy_compares_near_ties_in_float32(model: Backbone) -> None:
    weights = {"model.embed_tokens.weight": torch.randn(9600, 32).bfloat16()}
    weights["model.norm.weight"] = torch.ones(32)
    big = object.__new__(Backbone)
    big.__dict__.update(model.__dict__)
    big.embedding = weights["model.embed_tokens.weight"]
    big.head = type(model.head)(big.embedding)
    x = torch.randn(64, 32)
    exact = (big.normed(x) @ big.embedding.float().T).argmax(-1)
    assert torch.equal(big.greedy(x), exact)


@pytest.mark.parametrize(
    ("key", "value"), [("tie_word_embeddings", False), ("model_type", "qwen2")]
)
def test_other_models_are_refused_in_a_sentence(
    folder: Path, tmp_path: Path, key: str, value: object
) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, key: value}))
    with pytest.raises(CheckpointError, match="choose a"):
        read_base(str(tmp_path))


def test_a_folder_without_a_model_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint"):
        read_base(str(tmp_path))


def test_a_user_turn_is_left_open(folder: Path) -> None:
    tokenizer = read_base(str(folder)).tokenizer
    opened = open_user_turn(tokenizer)
    whole = tokenizer.encode_chat(with_roles(("A small fox",)))
    assert whole[: len(opened)] == opened
    assert with_roles(("a", "b", "c"))[1:] == [("assistant", "b"), ("user", "c")]
