"""An adapter: what its files must be, and that it acts on masks and on nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from test_transformer import CONFIGS

from mars_runtime.model.adapter import PARTS, Adapter, Update, part_shapes
from mars_runtime.model.config import CheckpointError, ModelConfig
from mars_runtime.model.files import has_adapter
from mars_runtime.model.forward import Branches, Layout
from mars_runtime.model.transformer import Transformer

MASK, RANK = 3, 2
SAID: dict[str, Any] = {"format": 1, "block_size": 4, "mask_token": "<m>", "base": "tiny"}


def write(folder: Path, tensors: dict[str, torch.Tensor], **changes: Any) -> Path:
    """An adapter of two files."""
    (folder / "adapter.json").write_text(json.dumps(SAID | changes))
    names = sorted(tensors)
    for index, part in enumerate((names[::2], names[1::2])):
        shard = {name: tensors[name].bfloat16().contiguous() for name in part}
        save_file(shard, folder / f"adapter-{index}.safetensors")
    return folder


def tensors_of(config: ModelConfig, num_embeddings: int = 2) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    actual = {"mask_embedding": torch.randn(num_embeddings, config.hidden_size)}
    for layer in range(config.num_layers):
        for part, (outputs, inputs) in part_shapes(config).items():
            actual[f"layers.{layer}.{part}.a"] = 0.3 * torch.randn(RANK, inputs)
            actual[f"layers.{layer}.{part}.b"] = 0.3 * torch.randn(outputs, RANK)
    return {name: tensor.bfloat16().float() for name, tensor in actual.items()}


def adapter_of(config: ModelConfig, num_embeddings: int = 2) -> Adapter:
    tensors = tensors_of(config, num_embeddings)
    layers = tuple(
        {
            part: Update(*(tensors[f"layers.{layer}.{part}.{name}"] for name in "ab"))
            for part in PARTS
        }
        for layer in range(config.num_layers)
    )
    return Adapter(tensors["mask_embedding"], layers, 4, "<m>")


def built(name: str = "tied", num_embeddings: int = 2) -> tuple[Any, Transformer, Transformer]:
    """transformers' model, the base, and the base with an adapter."""
    from helpers import hf_model

    config = CONFIGS[name]()
    theirs, shape = hf_model(config), ModelConfig.from_dict(config.to_dict())
    base = Transformer(shape, theirs.state_dict())
    adapter = adapter_of(shape, num_embeddings)
    return theirs, base, Transformer(shape, theirs.state_dict(), adapter=adapter, mask_id=MASK)


def adapted_by_hooks(theirs: Any, ids: torch.Tensor, adapter: Adapter) -> torch.Tensor:
    """transformers' model with the updates added by hooks at mask tokens."""
    is_mask = (ids == MASK).unsqueeze(-1)
    before = [0]
    for token in ids[0, :-1].tolist():
        before.append(before[-1] + 1 if token == MASK else 0)
    places = torch.tensor(before).clamp(max=len(adapter.mask_embedding) - 1)
    hooks = []

    def add(module: Any, a: torch.Tensor, b: torch.Tensor) -> None:
        def hook(_: Any, given: Any, out: torch.Tensor) -> torch.Tensor:
            return torch.where(is_mask, out + given[0] @ a.t() @ b.t(), out)

        hooks.append(module.register_forward_hook(hook))

    embedding = theirs.model.embed_tokens
    hooks.append(
        embedding.register_forward_hook(
            lambda _, given, out: torch.where(is_mask, adapter.mask_embedding[places], out)
        )
    )
    for layer, updates in zip(theirs.model.layers, adapter.layers, strict=True):
        attention, feed = layer.self_attn, layer.mlp
        sizes = [m.out_features for m in (attention.q_proj, attention.k_proj, attention.v_proj)]
        for part, modules in {
            "qkv": (attention.q_proj, attention.k_proj, attention.v_proj),
            "o": (attention.o_proj,),
            "gate_up": (feed.gate_proj, feed.up_proj),
            "down": (feed.down_proj,),
        }.items():
            update = updates[part]
            sizes = [module.out_features for module in modules]
            for module, b in zip(modules, update.b.split(sizes), strict=True):
                add(module, update.a, b)
    with torch.inference_mode():
        logits: torch.Tensor = theirs(ids).logits
    for hook in hooks:
        hook.remove()
    return logits


@pytest.mark.parametrize("num_embeddings", [1, 3])
@pytest.mark.parametrize("name", ["tied", "llama"])
def test_masks_get_what_hooks_in_transformers_would_add(name: str, num_embeddings: int) -> None:
    theirs, base, ours = built(name, num_embeddings)
    ids = torch.randint(4, 90, (1, 20), generator=torch.Generator().manual_seed(1))
    ids[0, 7:9] = ids[0, 15:] = MASK
    wanted = adapted_by_hooks(theirs, ids, adapter_of(base.config, num_embeddings))
    actual = ours.forward(ids, ours.new_cache(1, 20), slice(0, 20))
    torch.testing.assert_close(actual, wanted, atol=3e-4, rtol=1e-4)
    bare = base.forward(ids, base.new_cache(1, 20), slice(0, 20))
    assert torch.equal(actual[:, :7], bare[:, :7])  # before the first mask, to the last bit
    assert not torch.allclose(actual[:, 7:], bare[:, 7:])


def test_a_mask_counts_those_before_it_in_its_own_branch() -> None:
    _, _, ours = built(num_embeddings=3)
    text = torch.randint(4, 90, (8,), generator=torch.Generator().manual_seed(3)).tolist()
    layout = Layout(3, (3, 3, 3))
    cache = ours.new_cache(1, 40)
    ours.forward(torch.tensor([text[:5]]), cache, None)
    cache.cursors[0] = 5
    branches = Branches.of([layout], 12)
    actual = ours.forward(torch.tensor([text[5:] + [MASK] * 9]), cache, slice(0, 12), branches)
    for group in range(3):
        fed = torch.tensor([text[: 6 + group] + [MASK] * 3])
        wanted = ours.forward(fed, ours.new_cache(1, 20), slice(6 + group, 9 + group))
        at = 3 + 3 * group
        torch.testing.assert_close(actual[0, at : at + 3], wanted[0], atol=2e-4, rtol=1e-4)


def test_files_come_back_as_they_were(tmp_path: Path) -> None:
    config = ModelConfig.from_dict(CONFIGS["tied"]().to_dict())
    assert not has_adapter(tmp_path)
    tensors = tensors_of(config)
    del tensors["layers.1.o.a"], tensors["layers.1.o.b"]
    actual = Adapter.load(write(tmp_path, tensors), config)
    assert has_adapter(tmp_path)
    assert (actual.block_size, actual.mask_token, actual.base) == (4, "<m>", "tiny")
    assert set(actual.layers[0]) == set(PARTS)
    assert set(actual.layers[1]) == set(PARTS) - {"o"}
    assert torch.equal(actual.layers[0]["down"].b, tensors["layers.0.down.b"])
    assert torch.equal(actual.mask_embedding, tensors["mask_embedding"])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"mask_embedding": None}, "no mask_embedding"),
        ({"mask_embedding": torch.zeros(2, 5)}, "no mask_embedding"),
        ({"layers.0.qkv.a": None}, "update of qkv in layer 0 that is incomplete"),
        (
            {"layers.1.down.a": torch.zeros(RANK, 7)},
            "update of down in layer 1 that is incomplete or does not fit",
        ),
        ({"layers.0.o.b": torch.full((48, RANK), torch.nan)}, "not finite"),
        ({"layers.9.o.b": torch.zeros(48, RANK)}, "the unknown weight layers.9.o.b"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(tmp_path, change, sentence) -> None:
    config = ModelConfig.from_dict(CONFIGS["tied"]().to_dict())
    tensors = tensors_of(config) | change
    remaining = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    with pytest.raises(CheckpointError, match=sentence):
        Adapter.load(write(tmp_path, remaining), config)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (json.dumps(SAID | {"format": 2}), "format 1"),
        (json.dumps(SAID | {"block_size": "8"}), "block_size"),
        (json.dumps(SAID | {"mask_token": 4}), "mask"),
        ("{", r"adapter\.json is missing or damaged"),
    ],
)
def test_a_folder_that_says_too_little_is_refused(tmp_path: Path, said: str, sentence: str) -> None:
    config = ModelConfig.from_dict(CONFIGS["tied"]().to_dict())
    (write(tmp_path, tensors_of(config)) / "adapter.json").write_text(said)
    with pytest.raises(CheckpointError, match=sentence):
        Adapter.load(tmp_path, config)
