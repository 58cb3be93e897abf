"""Folders that can be read in two ways are read as transformers reads them, or refused."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import write_checkpoint
from safetensors.torch import load_file, save_file
from torch import Tensor

from mars_runtime.model.adapter import read_tensors
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.load import load_checkpoint, read_weights

IDS = torch.arange(5, 60).unsqueeze(0)
DEFAULT = {"rope_type": "default"}
FAST, SLOW = {**DEFAULT, "rope_theta": 500.0}, {**DEFAULT, "rope_theta": 1e6}
HEAD, EMBEDDINGS = "lm_head.weight", "model.embed_tokens.weight"


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def folder(untouched: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(untouched, tmp_path / "copy"))


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_weights(folder: Path, edit: Callable[[dict[str, Tensor]], object]) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    edit(weights)
    save_file(weights, path, metadata={"format": "pt"})


def our_logits(folder: Path, dtype: str = "fp32") -> Tensor:
    model = load_checkpoint(str(folder), device="cpu", dtype=dtype).model
    return model.logits(model.hidden(IDS, model.new_cache(1, 80)), slice(None))  # type: ignore[arg-type]


def check_like_transformers(folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        wanted = theirs(IDS).logits
    torch.testing.assert_close(our_logits(folder), wanted, atol=5e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_parameters": SLOW, "rope_scaling": FAST},
        {"rope_parameters": SLOW, "rope_scaling": DEFAULT},
        {"rope_parameters": SLOW, "rope_scaling": DEFAULT, "rope_theta": 777.0},
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0}, "rope_scaling": FAST},
        {"rope_parameters": SLOW, "rope_scaling": None, "rope_theta": 777.0},
        {"rope_parameters": None, "rope_scaling": DEFAULT, "rope_theta": 777.0},
        {"rope_parameters": DEFAULT, "rope_theta": 777.0},
    ],
)
def test_positions_turn_as_in_transformers(
    folder: Path, changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    edit_config(folder, **changes)
    with caplog.at_level(logging.WARNING):
        check_like_transformers(folder)
    is_doubtful = bool(changes.get("rope_scaling") and changes["rope_parameters"])
    assert ("rope_scaling is used, as transformers does" in caplog.text) == is_doubtful


def test_a_scaling_that_transformers_would_use_is_not_passed_over(folder: Path) -> None:
    edit_config(folder, rope_parameters=FAST, rope_scaling={"rope_type": "linear", "factor": 2.0})
    with pytest.raises(CheckpointError, match="'linear' is not supported"):
        load_checkpoint(str(folder))


def test_a_head_size_of_null_is_the_usual_one(tmp_path: Path) -> None:
    """In Llama; transformers cannot build a Qwen2 of it, where it is read as in Llama."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    write_checkpoint(tmp_path)
    kept = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    kept += ("num_key_value_heads", "intermediate_size", "tie_word_embeddings")
    raw = json.loads((tmp_path / "config.json").read_text())
    torch.manual_seed(1)
    shape = LlamaConfig(**{key: raw[key] for key in kept})
    AutoModelForCausalLM.from_config(shape).save_pretrained(tmp_path)
    edit_config(tmp_path, head_dim=None)
    check_like_transformers(tmp_path)


def test_a_head_beside_tied_embeddings_is_used_where_it_differs(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    edit_weights(folder, lambda found: found.update({HEAD: torch.randn(found[EMBEDDINGS].shape)}))
    with caplog.at_level(logging.WARNING):
        check_like_transformers(folder)
    assert "holds two different ones" in caplog.text


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_head_that_equals_the_embeddings_is_dropped(
    folder: Path, dtype: torch.dtype, caplog: pytest.LogCaptureFixture
) -> None:
    edit_weights(folder, lambda found: found.update({HEAD: found[EMBEDDINGS].to(dtype, copy=True)}))
    with caplog.at_level(logging.WARNING):
        check_like_transformers(folder)
    assert not caplog.records


def test_a_head_without_embeddings_serves_as_both(folder: Path) -> None:
    edit_weights(folder, lambda found: found.update({HEAD: found.pop(EMBEDDINGS)}))
    check_like_transformers(folder)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_weights_in_8_bit_floats_are_their_values(folder: Path, dtype: torch.dtype) -> None:
    def edit(weights: dict[str, Tensor]) -> None:
        for name in weights:
            weights[name] = weights[name].to(dtype)

    edit_weights(folder, edit)
    check_like_transformers(folder)
    for other in ("bf16", "auto"):
        assert our_logits(folder, other).isfinite().all()


def test_a_type_that_nothing_here_computes_with_is_refused(folder: Path) -> None:
    edit_weights(folder, lambda found: found.update({EMBEDDINGS: found[EMBEDDINGS] + 1j}))
    with pytest.raises(CheckpointError, match=r"weights of type complex64, which is not supported"):
        load_checkpoint(str(folder), device="cpu")


@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_weight_in_two_files_is_refused(folder: Path, is_indexed: bool) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({"model.norm.weight": weights["model.norm.weight"]}, folder / "z.safetensors")
    if is_indexed:
        names = {
            **dict.fromkeys(weights, "model.safetensors"),
            "model.norm.weight": "z.safetensors",
        }
        index = {"metadata": {}, "weight_map": names}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    sentence = r"model\.safetensors and z\.safetensors in .* both hold model\.norm\.weight"
    with pytest.raises(CheckpointError, match=sentence):
        load_checkpoint(str(folder))
    with pytest.raises(CheckpointError, match=sentence):
        read_weights(folder)  # which a base of an adapter is read by


def test_a_weight_in_two_files_of_an_adapter_is_refused(tmp_path: Path) -> None:
    for name in ("adapter-1.safetensors", "adapter-2.safetensors"):
        save_file({"mask_embedding": torch.ones(1, 4)}, tmp_path / name)
    with pytest.raises(CheckpointError, match="holds mask_embedding in two files"):
        read_tensors(tmp_path)


@pytest.mark.parametrize("has_weights", [True, False])
def test_a_stale_index_names_the_shard_that_is_missing(folder: Path, has_weights: bool) -> None:
    weights = load_file(folder / "model.safetensors")
    names = dict.fromkeys(weights, "model-00001-of-00002.safetensors")
    index = {"metadata": {}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    if not has_weights:
        (folder / "model.safetensors").unlink()
    sentence = r"index\.json names model-00001-of-00002\.safetensors, which is not there"
    with pytest.raises(CheckpointError, match=sentence):
        load_checkpoint(str(folder))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layers without full attention"),
        ({"is_causal": False}, "attention in both directions"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings as true or false"),
        ({"rope_parameters": None, "rope_theta": 0}, "rope_theta as a positive number"),
    ],
)
def test_keys_that_change_the_computation_are_refused(
    folder: Path, changes: dict[str, Any], sentence: str
) -> None:
    edit_config(folder, **changes)
    with pytest.raises(CheckpointError, match=sentence):
        load_checkpoint(str(folder))


def test_control_characters_in_a_name_do_not_reach_the_terminal(folder: Path) -> None:
    edit_weights(folder, lambda found: found.update({"\x1b]0;owned\x07\x1b[2J": torch.ones(1)}))
    with pytest.raises(CheckpointError, match="has unknown weights") as caught:
        load_checkpoint(str(folder))
    assert str(caught.value).isprintable()
    (folder / "z\x1b[2J.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="missing, damaged or incomplete") as caught:
        load_checkpoint(str(folder))
    assert str(caught.value).isprintable()
