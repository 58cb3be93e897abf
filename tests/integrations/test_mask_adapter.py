"""A mask adapter in transformers' classes, by hooks, against the runtime."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import hf_config, hf_model, qwen3_config, steps_of, tokens_of
from law_checkpoints import run
from mask_adapter import attach
from native_models import random_adapter
from safetensors.torch import save
from test_custom_generate import CUSTOM, _own_modules
from tiny_tokenizer import write_tokenizer

from mars_runtime.lab.benchmark.peer_process import dense_model
from mars_runtime.model.adapter import Adapter
from mars_runtime.model.config import ModelConfig
from mars_runtime.model.forward import MaskGroup, SamplingMetadata
from mars_runtime.model.load import load_checkpoint
from mars_runtime.model.registry import REGISTRY
from mars_runtime.model.transformer import Transformer
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Tokenizer

MASK_ID = 4
_ = _own_modules


def write(adapter: Adapter, folder: Path, *, is_compressed: bool = False) -> Path:
    tensors = {"mask_embedding": adapter.mask_embedding}
    for index, layer in enumerate(adapter.layers):
        for part, update in layer.items():
            tensors[f"layers.{index}.{part}.a"] = update.a
            tensors[f"layers.{index}.{part}.b"] = update.b
    if adapter.sampler is not None:
        tensors["sampler.first.weight"] = adapter.sampler.first
        tensors["sampler.second.weight"] = adapter.sampler.second
    path, stored = folder / "adapter.safetensors", save(tensors)
    if is_compressed:
        path, stored = path.with_suffix(".safetensors.xz"), lzma.compress(stored)
    path.write_bytes(stored)
    said = {"format": 1, "block_size": 8, "mask_token": "mask"}
    (folder / "adapter.json").write_text(json.dumps(said))
    return folder


@pytest.fixture(params=[hf_config, qwen3_config], ids=["qwen2", "qwen3"])
def theirs(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return hf_model(request.param(Tokenizer.from_dir(write_tokenizer(tmp_path))))


@pytest.mark.parametrize("is_compressed", [False, True])
def test_masks_are_computed_as_in_the_runtime_and_real_tokens_as_in_the_base(
    theirs: Any, tmp_path: Path, is_compressed: bool
) -> None:
    config = ModelConfig.from_dict(theirs.config.to_dict())
    adapter = random_adapter(config)
    folder = write(adapter, tmp_path, is_compressed=is_compressed)
    ours = Transformer(config, theirs.state_dict(), adapter=adapter, mask_id=MASK_ID)
    ids = torch.randint(5, 90, (2, 20), generator=torch.Generator().manual_seed(1))
    ids[0, 12:16] = ids[1, 17:] = ids[1, 3] = MASK_ID
    with torch.inference_mode():
        bare = theirs(ids).logits
        attached = attach(theirs, folder, MASK_ID)
        actual = theirs(ids).logits
        wanted = ours.forward(ids, ours.new_cache(2, 20), slice(None))
        torch.testing.assert_close(actual, wanted, atol=5e-4, rtol=1e-4)
        assert torch.equal(actual[0, :12], bare[0, :12])
        assert (actual[0, 12:] - bare[0, 12:]).norm() > 0.1 * bare[0, 12:].norm()
        assert theirs.config.mask_token_id == MASK_ID
        attached.remove()
        assert torch.equal(theirs(ids).logits, bare)
    assert getattr(theirs.config, "mask_token_id", None) is None


@pytest.mark.parametrize("sampler_width", [0, 32])
def test_a_sampler_head_ranks_as_in_the_runtime(
    theirs: Any, tmp_path: Path, sampler_width: int
) -> None:
    """Up to near ties: the runtime rounds its tables to 8 bits."""
    config = ModelConfig.from_dict(theirs.config.to_dict())
    adapter = random_adapter(config, sampler_width=sampler_width)
    ours = Transformer(config, theirs.state_dict(), adapter=adapter, mask_id=MASK_ID)
    attach(theirs, write(adapter, tmp_path), MASK_ID)
    tokenizer = Tokenizer.from_dir(tmp_path)
    never = tokenizer.forbidden_ids | {MASK_ID} | set(range(tokenizer.size, config.vocab_size))
    forbidden, num_same = torch.tensor(sorted(never)), 0
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        prompt = torch.randint(5, 90, (1, 8), generator=generator)
        answer = theirs.generate(
            prompt,
            **CUSTOM,
            **{"tau": 0.0, "block_size": 4, "max_new_tokens": 4, "suppress_tokens": sorted(never)},
        )
        cache = ours.new_cache(1, 12)
        fed = torch.cat([prompt, torch.full((1, 3), MASK_ID)], 1)
        group = MaskGroup(row=0, before=0, masks=range(1, 4))
        sampling = SamplingMetadata(forbidden, ["probability"], groups=[group])
        (slots,) = ours.predict(ours.hidden(fed, cache), slice(7, 11), sampling)
        num_same += answer[0, 8:].tolist() == [slot.token for slot in slots]
    assert num_same >= (20 if sampler_width == 0 else 18)


def test_another_model_is_refused_and_left_as_it_was(theirs: Any, tmp_path: Path) -> None:
    config = ModelConfig.from_dict(theirs.config.to_dict())
    folder = write(random_adapter(config), tmp_path)
    tokenizer = Tokenizer.from_dir(tmp_path)
    ids = torch.tensor([[5, 6, MASK_ID]])
    for changes in ({"num_hidden_layers": 1}, {"intermediate_size": 64}, {"hidden_size": 32}):
        other = hf_model(hf_config(tokenizer, **changes)).eval()
        with torch.inference_mode():
            before = other(ids).logits
            with pytest.raises(ValueError, match="does not fit this model"):
                attach(other, folder, MASK_ID)
            assert torch.equal(other(ids).logits, before)
    (folder / "adapter.json").write_text('{"format": 2}')
    with pytest.raises(ValueError, match="is not of format 1"):
        attach(theirs, folder, MASK_ID)


@pytest.mark.slow
def test_the_chat_model_writes_what_the_runtime_writes(smollm2_file: Path) -> None:
    checkpoint = load_checkpoint("mars-smollm2", device="cpu", dtype="fp32")
    model, tokenizer = dense_model(checkpoint.path, "float32"), checkpoint.tokenizer
    attach(model, REGISTRY.parent / "mars-smollm2", tokenizer.mask_id)
    num_forwards = num_tokens = 0
    for text in ("Write a Python function that adds two numbers.", "What is 12 + 30?"):
        prompt = tokenizer.encode_prompt(text)
        for settings in ({"tau": 0.7}, {"tau": 0.0, "lossless": True}):
            run_settings = DecodeSettings(block_size=4, max_new_tokens=16, **settings)
            events = run(checkpoint, [prompt], run_settings)
            answer = model.generate(
                torch.tensor([prompt]),
                **{**CUSTOM, **settings},
                max_new_tokens=16,
                suppress_tokens=sorted(tokenizer.forbidden_ids),
                eos_token_id=sorted(tokenizer.eos_ids),
                pad_token_id=tokenizer.pad_id,
                return_dict_in_generate=True,
            )
            assert answer.sequences[0, len(prompt) :].tolist() == tokens_of(events)[0]
            assert answer.num_forwards == len(steps_of(events))
            num_forwards += answer.num_forwards
            num_tokens += len(tokens_of(events)[0])
    assert num_forwards < 0.8 * num_tokens
