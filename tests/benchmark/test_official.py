"""The adapter to the official samplers, held against a stand-in of the same interface."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from mars_runtime import folds, tasks
from mars_runtime.lab.benchmark.official import length_cache, load_samplers, official_ask
from mars_runtime.lab.benchmark.paired import Question
from mars_runtime.lab.benchmark.transformers_peers import loader
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.settings import DecodeSettings

# Takes two tokens per forward, always 7, then EOS; feeds what it took and a block of masks.
STAND_IN = """
from dataclasses import dataclass
import torch

@dataclass
class MARSCachedSampler:
    model: object
    tokenizer: object

    def sample(self, inputs, max_new_tokens, block_size, right_shift_logits, **more):
        assert right_shift_logits and more["temperature"] == 0.0
        tokens = torch.tensor([inputs[0] + [self.tokenizer.mask_token_id] * block_size])
        found = list(inputs[0])
        while len(found) < len(inputs[0]) + 6:
            self.model(tokens)
            found += [7, 7]
            masks = [self.tokenizer.mask_token_id] * block_size
            tokens = torch.tensor([found[-2:] + masks])
        found[-1] = self.tokenizer.eos_token_id
        return torch.tensor([found + [self.tokenizer.pad_token_id] * 3])

@dataclass
class MARSBlockCachedSampler:
    model: object
    tokenizer: object

    def sample(self, inputs, **more):
        longest = max(map(len, inputs))
        for _ in range(4):
            self.model(torch.tensor([[7] * more["block_size"]] * len(inputs)))
        rows = [[self.tokenizer.pad_token_id] * (longest - len(row)) + row + [7, 7, 7]
                for row in inputs]
        return torch.tensor(rows)
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("official")
    (folder / "mars" / "samplers").mkdir(parents=True)
    (folder / "mars" / "__init__.py").write_text("raise ImportError('never imported')")
    (folder / "mars" / "samplers" / "__init__.py").write_text(STAND_IN)
    return folder


@pytest.fixture(scope="module")
def checkpoint(random_folder: Path) -> Checkpoint:
    return load_checkpoint(str(random_folder), device="cpu")


def test_one_prompt_shows_what_each_forward_took(repository: Path, checkpoint: Checkpoint):
    settings = DecodeSettings(block_size=3, max_new_tokens=20)
    ask = official_ask(
        load_samplers(repository), loader(checkpoint)(), checkpoint.tokenizer, settings, 8
    )
    found = ask(Question("symbolic", ((5, 6, 9),)))
    assert found.rows[0].tokens == (7, 7, 7, 7, 7, checkpoint.tokenizer.im_end_id)
    assert [chunk.num_tokens for chunk in found.rows[0].chunks] == [2, 2, 2]
    assert found.num_forwards == 3


def test_a_batch_is_counted_at_its_end(repository: Path, checkpoint: Checkpoint):
    settings = DecodeSettings(block_size=3, max_new_tokens=20)
    ask = official_ask(
        load_samplers(repository), loader(checkpoint)(), checkpoint.tokenizer, settings, 8
    )
    found = ask(Question("mixed", ((5, 6, 9), (5,))))
    assert [row.tokens for row in found.rows] == [(7, 7, 7)] * 2
    assert found.rate("decode") is None
    assert found.num_forwards == 4


def test_what_is_missing_is_said(tmp_path: Path, repository: Path, checkpoint: Checkpoint):
    with pytest.raises(CheckpointError, match="give --official a copy"):
        load_samplers(tmp_path)
    package = tmp_path / "mars" / "samplers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import a_package_that_is_not_there")
    with pytest.raises(CheckpointError, match="cannot be imported"):
        load_samplers(tmp_path)
    (package / "__init__.py").write_text("MARSCachedSampler = None")
    with pytest.raises(CheckpointError, match="have no MARSBlockCachedSampler"):
        load_samplers(tmp_path)
    (package / "__init__.py").write_text("MARSCachedSampler = MARSBlockCachedSampler = int")
    broken = official_ask(
        load_samplers(tmp_path), loader(checkpoint)(), checkpoint.tokenizer, DecodeSettings(), 8
    )
    with pytest.raises(CheckpointError, match="sampler failed"):
        broken(Question("symbolic", ((5, 6),)))


def test_their_cache_is_cropped_to_a_length_and_goes_on_from_there(checkpoint: Checkpoint) -> None:
    model = loader(checkpoint)()
    tokens = torch.tensor([[5, 6, 9, 7, 8]])
    with torch.inference_mode():
        whole = model(tokens).logits
        cache = model(tokens, past_key_values=length_cache(), use_cache=True).past_key_values
        cache.crop(9)
        assert cache.get_seq_length() == 5
        cache.crop(3)
        assert cache.get_seq_length() == 3
        again = model(tokens[:, 3:], past_key_values=cache, use_cache=True).logits
    assert torch.allclose(again, whole[:, 3:], atol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif("MARS_OFFICIAL" not in os.environ, reason="MARS_OFFICIAL names no copy of it")
def test_the_official_sampler_writes_what_we_write() -> None:
    """At τ 0.95 and B 4, on held-out prompts of every family that has an end."""
    from mars_runtime.lab.evaluation.subject import subject_of

    checkpoint = load_checkpoint("mars-tiny", device="cpu")
    settings = DecodeSettings(tau=0.95, block_size=4, max_new_tokens=64)
    samplers = load_samplers(Path(os.environ["MARS_OFFICIAL"]))
    ask = official_ask(samplers, loader(checkpoint)(), checkpoint.tokenizer, settings, 8)
    decode = subject_of(checkpoint).decode
    for family in ("symbolic", "word_problems", "python_functions"):
        for task in tasks.generate(family, "eval", 7, 4):
            prompt = tuple(checkpoint.tokenizer.encode_prompt(task.prompt))
            theirs = ask(Question(family, (prompt,))).rows[0].tokens
            assert list(theirs) == folds.accepted_tokens(decode([prompt], settings))
