"""Loading from folders and a hub-like cache: as transformers reads them, or a sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import tokens_of
from safetensors.torch import load_file, save_file
from torch import Tensor

from mars_runtime.decoders.cursor import decode
from mars_runtime.model.adapter import read_tensors
from mars_runtime.model.config import (
    CheckpointError,
    ModelConfig,
)
from mars_runtime.model.load import load_checkpoint, read_weights
from mars_runtime.model.registry import REGISTRY, registry
from mars_runtime.settings import DecodeSettings
from tests.published import REVISION, in_hub_cache, use_hub_cache


@pytest.fixture
def folder(random_folder: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(random_folder, tmp_path / "copy"))


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_weights(folder: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    edit(weights)
    save_file(weights, path, metadata={"format": "pt"})


def answer(name: str, **options: Any) -> list[int]:
    checkpoint = load_checkpoint(name, device="cpu", **options)
    prompt = checkpoint.tokenizer.encode_prompt("Hello")
    settings = DecodeSettings(max_new_tokens=12)
    return tokens_of(decode(checkpoint.model, checkpoint.tokenizer, [prompt], lambda: settings))[0]


def _drop(name: str) -> Callable[[Path], object]:
    return lambda folder: edit_weights(folder, lambda weights: weights.pop(name))


def _put(name: str, value: torch.Tensor) -> Callable[[Path], object]:
    return lambda folder: edit_weights(folder, lambda weights: weights.update({name: value}))


def _cut(num_bytes: int) -> Callable[[Path], object]:
    def cut(folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:num_bytes])

    return cut


def _index(file_name: object) -> Callable[[Path], object]:
    def index(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        write_index(folder, {"model.norm.weight": file_name})

    return index


def write_index(folder: Path, files: dict[str, Any]) -> None:
    text = json.dumps({"metadata": {}, "weight_map": files})
    (folder / "model.safetensors.index.json").write_text(text)


DOWN = "model.layers.1.mlp.down_proj.weight"
OUTSIDE = ("../secret.safetensors", "model.bin", 7)
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
SCALED = {
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
    "rope_scaling": {"rope_type": "linear", "factor": 2.0},
}


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        *[(_cut(num_bytes), "missing, damaged or incomplete") for num_bytes in (0, 400, -100)],
        *[(_index(name), r"index\.json is damaged") for name in OUTSIDE],
        (
            _index("a-1-of-2.safetensors"),
            r"names a-1-of-2\.safetensors, which is missing",
        ),
        (_drop(DOWN), "missing weights, such as .*down_proj"),
        (_drop("model.layers.0.self_attn.q_proj.bias"), "missing weights, such as .*q_proj.bias"),
        (
            _put("model.layers.2.mlp.down_proj.weight", torch.ones(2, 2)),
            r"has \d+ unknown weights, such as .*down_proj\.weight in .*\.safetensors:",
        ),
        (_put("model.norm.weight", torch.ones(9)), "has shape \\(9,\\), but config.json requires"),
        (_put("model.norm.weight", torch.full((48,), float("nan"))), "not finite"),
        (_put(DOWN, torch.ones(48, 96) + 1j), "weights of type complex64, which is not supported"),
        *[
            (_put(DOWN, torch.ones(48, 96).to(kind)), f"type {name}, .* such as {DOWN}")
            for name, kind in (("int8", torch.int8), ("int64", torch.int64), ("bool", torch.bool))
        ],
        (lambda folder: (folder / "config.json").write_text("{"), "config.json is missing or"),
        (lambda folder: (folder / "config.json").write_text("[]"), "must contain a JSON object"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json is missing"),
        # Pickled weights are never opened.
        (lambda folder: (folder / "model.safetensors").rename(folder / "x.bin"), r"no model\.saf"),
        *[
            (lambda folder, name=name: (folder / "model.safetensors").rename(folder / name), name)
            for name in ("pytorch_model.bin", "pytorch_model.bin.index.json")
        ],
        (lambda folder: edit_config(folder, vocab_size=90), "rows"),
        (lambda folder: edit_config(folder, hidden_size=56), "config.json requires"),
        (lambda folder: edit_config(folder, num_hidden_layers=1), r"has \d+ unknown weights"),
        (lambda folder: edit_config(folder, num_hidden_layers=3), "missing weights"),
        (lambda folder: edit_config(folder, tie_word_embeddings=False), "missing weights"),
        (lambda folder: edit_config(folder, max_position_embeddings=16), "a context of 16 tokens"),
        (lambda folder: edit_config(folder, **SCALED), "'linear' is not supported"),
    ],
)
def test_damaged_folders(folder: Path, damage: Callable[[Path], object], sentence: str) -> None:
    damage(folder)
    with pytest.raises(CheckpointError, match=sentence):
        load_checkpoint(str(folder), device="cpu")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"device": "tpu9"}, "auto, cpu or cuda"),
        ({"device": "meta"}, "auto, cpu or cuda"),
        ({"dtype": "fp8"}, "auto, fp32 or bf16"),
        pytest.param({"device": "cuda"}, "no CUDA device", marks=NO_GPU),
    ],
)
def test_options(random_folder: Path, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(CheckpointError, match=sentence):
        load_checkpoint(str(random_folder), **options)


def test_entries_say_of_their_adapters_what_these_say() -> None:
    adapted = [entry for entry in registry().values() if entry.adapter]
    assert adapted
    for entry in adapted:
        said = json.loads((REGISTRY.parent / str(entry.adapter) / "adapter.json").read_text())
        assert (entry.block_size, entry.mask_token) == (said["block_size"], said["mask_token"])


@pytest.mark.parametrize("revision", [None, REVISION])
@pytest.mark.parametrize("name", ["small", "Somebody/MARS-small"])
def test_a_hub_entry_as_the_hub_client_lays_it_out(
    random_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    revision: str | None,
    name: str,
) -> None:
    """Links to blobs, bf16 weights in shards, an old configuration and code that is not run."""
    from transformers import AutoModelForCausalLM

    use_hub_cache(tmp_path, monkeypatch)
    snapshot = in_hub_cache(random_folder, tmp_path, "Somebody/MARS-small")
    (snapshot / "model.safetensors").unlink()
    model = AutoModelForCausalLM.from_pretrained(random_folder, dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "shards", max_shard_size="30KB")
    for path in (tmp_path / "shards").glob("model*"):
        shutil.copy(path, snapshot)
    assert len(list(snapshot.glob("*.safetensors"))) > 1
    old = {"model_type": "a2d-qwen2", "torch_dtype": "bfloat16"}
    edit_config(snapshot, auto_map={"AutoModel": "evil.Model"}, **old)
    blobs = snapshot.parents[1] / "blobs"
    blobs.mkdir()
    for number, path in enumerate(sorted(snapshot.iterdir())):
        shutil.move(path, blobs / f"{number:040}")
        path.symlink_to(Path("../../blobs") / f"{number:040}")
    path = tmp_path / "registry.json"
    entry = {"name": "small", "hub": "Somebody/MARS-small", "revision": revision, "block_size": 4}
    lost = {"name": "lost", "hub": "Somebody/other", "block_size": 4}
    path.write_text(json.dumps([entry, lost]))
    assert load_checkpoint(name, registry_path=path, device="cpu").name == "small"
    expected = answer(str(random_folder), dtype="bf16")
    assert answer(name, registry_path=path, dtype="bf16") == expected
    with pytest.raises(CheckpointError, match="could not be downloaded from the Hub"):
        load_checkpoint("lost", registry_path=path)


QWEN = {
    "model_type": "qwen2",
    "vocab_size": 151936,
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "use_sliding_window": False,
    "sliding_window": 32768,
}


def test_the_published_configuration_reads_as_it_says() -> None:
    config = ModelConfig.from_dict(QWEN | {"model_type": "a2d-qwen2"})
    assert (config.head_dim, config.group, config.rope_theta) == (64, 7, 1e6)
    assert config.attention_bias
    assert config.tie_word_embeddings
    qwen3 = QWEN | {"model_type": "qwen3", "hidden_size": 1024, "num_attention_heads": 16}
    assert ModelConfig.from_dict(qwen3 | {"head_dim": None}).head_dim == 128
    of_transformers_5 = {key: value for key, value in QWEN.items() if key != "rope_theta"}
    of_transformers_5["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6}
    assert ModelConfig.from_dict(of_transformers_5).rope_theta == 1e6


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model_type": "gpt2"}, "'gpt2' are not supported: .* llama, qwen2, qwen3, a2d-qwen2"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "'yarn' is not supported"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, "'linear' is not supported"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, "is not supported"),
        ({"use_sliding_window": True}, "sliding-window"),
        ({"quantization_config": {"bits": 4}}, "quantized"),
        ({"hidden_act": "gelu"}, "'gelu'"),
        ({"mlp_bias": True}, "biases"),
        ({"model_type": "llama", "attention_bias": True}, "biases in its attention"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"vocab_size": "151936"}, "vocab_size"),
        ({"num_key_value_heads": 3}, "must be a multiple of num_key_value_heads"),
        ({"head_dim": 63}, "head_dim in config.json must be even"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"rope_theta": -1.0}, "rope_theta"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layers without full attention"),
        ({"is_causal": False}, "attention in both directions"),
    ],
)
def test_anything_else_is_refused_with_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CheckpointError, match=sentence):
        ModelConfig.from_dict(QWEN | changes)


IDS = torch.arange(5, 60).unsqueeze(0)
DEFAULT = {"rope_type": "default"}
FAST, SLOW = {**DEFAULT, "rope_theta": 500.0}, {**DEFAULT, "rope_theta": 1e6}
HEAD, EMBEDDINGS = "lm_head.weight", "model.embed_tokens.weight"


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
        {"rope_parameters": SLOW, "rope_scaling": DEFAULT, "rope_theta": 777.0},
        {"rope_parameters": SLOW, "rope_scaling": None, "rope_theta": 777.0},
        {"rope_parameters": None, "rope_scaling": DEFAULT, "rope_theta": 777.0},
    ],
)
def test_positions_turn_as_in_transformers(folder, changes) -> None:
    edit_config(folder, **changes)
    check_like_transformers(folder)


def test_a_folder_without_the_mask_token_proposes_one_token(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace("<|mask|>", "<|tool|>"))
    checkpoint = load_checkpoint(str(folder), device="cpu")
    assert checkpoint.block_size == 1
    assert checkpoint.tokenizer.token_bytes(checkpoint.tokenizer.mask_id) == b"<|tool|>"


def test_a_head_with_tied_embeddings_is_used_if_it_differs(folder: Path) -> None:
    edit_weights(
        folder, lambda actual: actual.update({HEAD: torch.randn(actual[EMBEDDINGS].shape)})
    )
    check_like_transformers(folder)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_head_that_equals_the_embeddings_is_dropped(folder, dtype) -> None:
    turns = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(6)}  # of old versions
    edit_weights(folder, lambda actual: actual.update(turns))
    edit_weights(
        folder, lambda result: result.update({HEAD: result[EMBEDDINGS].to(dtype, copy=True)})
    )
    check_like_transformers(folder)


def test_a_head_without_embeddings_serves_as_both(folder: Path) -> None:
    edit_weights(folder, lambda actual: actual.update({HEAD: actual.pop(EMBEDDINGS)}))
    check_like_transformers(folder)


def test_a_weight_in_two_files_is_refused(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    save_file({"model.norm.weight": weights["model.norm.weight"]}, folder / "z.safetensors")
    files = dict.fromkeys(weights, "a.safetensors")
    write_index(folder, {**files, "model.norm.weight": "z.safetensors"})
    sentence = r"a\.safetensors and z\.safetensors in .* both contain model\.norm\.weight"
    with pytest.raises(CheckpointError, match=sentence):
        load_checkpoint(str(folder))
    with pytest.raises(CheckpointError, match=sentence):
        read_weights(folder)  # which a base of an adapter is read by


@pytest.mark.parametrize(("name", "has_index"), [("optimizer", False), ("a-00001-of-00002", True)])
def test_of_several_sets_of_weights_the_one_of_transformers_is_read(
    folder: Path, name: str, has_index: bool
) -> None:
    wanted = our_logits(folder)
    weights = load_file(folder / "model.safetensors")
    other = {key: weight + 1 for key, weight in weights.items()}
    save_file(other, folder / f"{name}.safetensors")
    if has_index:
        write_index(folder, dict.fromkeys(other, f"{name}.safetensors"))
    assert torch.equal(our_logits(folder), wanted)
    (file,) = load_checkpoint(str(folder), device="cpu").weight_files
    assert file.name == "model.safetensors"
    check_like_transformers(folder)


def test_a_weight_in_two_files_of_an_adapter_is_refused(tmp_path: Path) -> None:
    for name in ("adapter-1.safetensors", "adapter-2.safetensors"):
        save_file({"mask_embedding": torch.ones(1, 4)}, tmp_path / name)
    with pytest.raises(CheckpointError, match="contains mask_embedding in two files"):
        read_tensors(tmp_path)


def test_control_characters_in_a_name_do_not_reach_the_terminal(folder: Path) -> None:
    edit_weights(folder, lambda actual: actual.update({"\x1b]0;owned\x07\x1b[2J": torch.ones(1)}))
    with pytest.raises(CheckpointError, match=r"has \d+ unknown weights") as caught:
        load_checkpoint(str(folder))
    assert str(caught.value).isprintable()
    _index("z\x1b[2J.safetensors")(folder)
    with pytest.raises(CheckpointError, match="damaged") as caught:
        load_checkpoint(str(folder))
    assert str(caught.value).isprintable()
