"""Loading from folders and a hub-like cache, and one sentence for each kind of damage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import hf_config, tokens_of, write_checkpoint
from safetensors.torch import load_file, save_file

from mars_runtime.decoders import decode
from mars_runtime.model.config import CheckpointError, ModelConfig
from mars_runtime.model.load import load_checkpoint
from mars_runtime.model.registry import REGISTRY, registry
from mars_runtime.settings import DecodeSettings


@pytest.fixture
def folder(random_folder: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(random_folder, tmp_path / "copy"))


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_weights(folder: Path, edit: Callable[[dict[str, torch.Tensor]], None]) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    edit(weights)
    save_file(weights, path)


def answer(name: str, **options: Any) -> list[int]:
    checkpoint = load_checkpoint(name, device="cpu", **options)
    prompt = checkpoint.tokenizer.encode_prompt("Hello")
    settings = DecodeSettings(max_new_tokens=12)
    return tokens_of(decode(checkpoint.model, checkpoint.tokenizer, [prompt], lambda: settings))[0]


def test_a_folder_loads(random_folder: Path) -> None:
    checkpoint = load_checkpoint(str(random_folder), device="cpu")
    assert checkpoint.name == random_folder.name
    assert checkpoint.model.dtype == torch.float32
    assert checkpoint.block_size == 4
    assert len(answer(str(random_folder))) == 12


def test_shards_give_the_same_model(random_folder: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    shards = shutil.copytree(random_folder, tmp_path / "shards")
    (shards / "model.safetensors").unlink()
    model = AutoModelForCausalLM.from_pretrained(random_folder)
    model.save_pretrained(shards, max_shard_size="60KB")
    assert len(list(Path(shards).glob("*.safetensors"))) > 1
    assert answer(str(shards)) == answer(str(random_folder))
    next(Path(shards).glob("model-00002*")).unlink()
    with pytest.raises(CheckpointError, match=r"names model-00002-of-.* which is not there"):
        load_checkpoint(str(shards))


def test_tied_head_and_rotary_buffers_are_tolerated(folder: Path) -> None:
    before = answer(str(folder))

    def edit(weights: dict[str, torch.Tensor]) -> None:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
        weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(6)

    edit_weights(folder, edit)
    assert answer(str(folder)) == before


def test_bf16_on_a_cpu(random_folder: Path) -> None:
    assert load_checkpoint(str(random_folder), device="cpu", dtype="bf16").model.dtype == (
        torch.bfloat16
    )
    assert len(answer(str(random_folder), dtype="bf16")) == 12


def test_llama_and_untied(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, tie_word_embeddings=False)
    assert len(answer(str(tmp_path))) == 12


def _drop(name: str) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda weights: weights.__delitem__(name)


def _put(name: str, value: torch.Tensor) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda weights: weights.__setitem__(name, value)


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (_drop("model.layers.1.mlp.down_proj.weight"), "lacks weights .*down_proj"),
        (_drop("model.layers.0.self_attn.q_proj.bias"), "lacks weights .*q_proj.bias"),
        (_put("model.layers.2.mlp.down_proj.weight", torch.ones(2, 2)), "has unknown weights"),
        (_put("model.norm.weight", torch.ones(9)), "has shape \\(9,\\) and config.json says"),
        (_put("model.norm.weight", torch.full((48,), float("nan"))), "not finite"),
    ],
)
def test_wrong_weights(
    folder: Path, edit: Callable[[dict[str, torch.Tensor]], None], sentence: str
) -> None:
    edit_weights(folder, edit)
    with pytest.raises(CheckpointError, match=sentence):
        load_checkpoint(str(folder))


@pytest.mark.parametrize("kept", [0, 5, 400, -100])
def test_a_truncated_file(folder: Path, kept: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match="missing, damaged or incomplete"):
        load_checkpoint(str(folder))


def test_pickled_weights_are_never_opened(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="no safetensors"):
        load_checkpoint(str(folder))


def test_code_of_a_checkpoint_is_never_run(folder: Path) -> None:
    edit_config(folder, model_type="a2d-qwen2", auto_map={"AutoModelForCausalLM": "evil.Model"})
    (folder / "evil.py").write_text("raise SystemExit('run')")
    assert len(answer(str(folder))) == 12


@pytest.mark.parametrize(
    "file_name", ["../secret.safetensors", "/etc/passwd", "model.bin", 7, "a/b.safetensors"]
)
def test_an_index_that_points_elsewhere(folder: Path, file_name: object) -> None:
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"model.norm.weight": file_name}}))
    with pytest.raises(CheckpointError, match=r"index\.json is damaged"):
        load_checkpoint(str(folder))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda folder: (folder / "config.json").write_text("{"), "config.json is missing or"),
        (lambda folder: (folder / "config.json").write_text("[]"), "not a configuration"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json is missing"),
        (lambda folder: edit_config(folder, vocab_size=90), "rows"),
        (lambda folder: edit_config(folder, hidden_size=56), "config.json says"),
        (lambda folder: edit_config(folder, num_hidden_layers=1), "has unknown weights"),
        (lambda folder: edit_config(folder, num_hidden_layers=3), "lacks weights"),
        (lambda folder: edit_config(folder, tie_word_embeddings=False), "lacks weights"),
        (lambda folder: edit_config(folder, model_type="mamba"), "'mamba' is not supported"),
        (lambda folder: edit_config(folder, max_position_embeddings=16), "a context of 16 tokens"),
    ],
)
def test_damaged_folders(folder: Path, damage: Callable[[Path], object], sentence: str) -> None:
    damage(folder)
    with pytest.raises(CheckpointError, match=sentence):
        load_checkpoint(str(folder))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"device": "tpu9"}, "auto, cpu or cuda"),
        ({"device": "meta"}, "auto, cpu or cuda"),
        ({"dtype": "fp8"}, "auto, fp32 or bf16"),
    ],
)
def test_options(random_folder: Path, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(CheckpointError, match=sentence):
        load_checkpoint(str(random_folder), **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_no_cuda_device(random_folder: Path) -> None:
    with pytest.raises(CheckpointError, match="no CUDA device"):
        load_checkpoint(str(random_folder), device="cuda")


def test_an_unknown_name_lists_what_is_known() -> None:
    with pytest.raises(CheckpointError, match=r"no checkpoint 'gpt-5'.*mars-tiny"):
        load_checkpoint("gpt-5")


def test_the_registry_of_this_repository() -> None:
    entries = registry()
    assert list(entries)[:2] == ["mars-tiny", "ar-tiny"]
    for entry in entries.values():
        assert sum(map(bool, (entry.path, entry.hub, entry.gguf))) == 1
        assert entry.licence
        assert entry.note
        assert 1 <= entry.block_size <= 16
    assert all(entry.hub.startswith("Xalphinions/") for entry in entries.values() if entry.hub)
    assert REGISTRY.name == "registry.json"


def test_entries_say_of_their_adapters_what_these_say() -> None:
    adapted = [entry for entry in registry().values() if entry.adapter]
    assert adapted
    for entry in adapted:
        said = json.loads((REGISTRY.parent / str(entry.adapter) / "adapter.json").read_text())
        assert (entry.block_size, entry.mask_token) == (said["block_size"], said["mask_token"])


@pytest.mark.parametrize(
    "text",
    [
        *("{", "{}", "[]", '[{"nonsense": 1}]', "[3]"),
        *('[{"name": "small"}]', '[{"name": 3, "block_size": 4}]', "[" * 9999),
        *(f'[{{"name": "small", "block_size": {size}}}]' for size in ("true", '"4"', "0", "17")),
        '[{"name": "small", "block_size": 4, "nonsense": 1}]',
        '[{"name": "small", "block_size": 4, "gguf": {"file": "x", "size": 1, "sha256": ""}}]',
    ],
)
def test_a_damaged_registry(tmp_path: Path, text: str) -> None:
    (tmp_path / "registry.json").write_text(text)
    with pytest.raises(CheckpointError, match="restore it"):
        load_checkpoint("mars-tiny", registry_path=tmp_path / "registry.json")


def test_a_bundled_entry_lies_beside_the_registry(random_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "registry.json"
    entry = {"name": "small", "path": "small", "block_size": 8, "licence": "MIT", "note": "n"}
    path.write_text(json.dumps([entry]))
    with pytest.raises(CheckpointError, match="restore it from the repository"):
        load_checkpoint("small", registry_path=path)
    shutil.copytree(random_folder, tmp_path / "small")
    checkpoint = load_checkpoint("small", registry_path=path)
    assert (checkpoint.name, checkpoint.block_size, checkpoint.licence) == ("small", 8, "MIT")


def _hub(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local cache laid out as the hub client does, with no network behind it."""
    from huggingface_hub import constants

    revision = "0123456789abcdef0123456789abcdef01234567"
    repo = tmp_path / "hub" / "models--Somebody--MARS-small"
    shutil.copytree(source, repo / "snapshots" / revision)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(revision)
    edit_config(repo / "snapshots" / revision, model_type="a2d-qwen2")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return repo / "snapshots" / revision


@pytest.mark.parametrize("revision", [None, "0123456789abcdef0123456789abcdef01234567"])
@pytest.mark.parametrize("name", ["small", "Somebody/MARS-small"])
def test_a_hub_entry_loads_from_the_local_cache(
    random_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    revision: str | None,
    name: str,
) -> None:
    _hub(tmp_path, random_folder, monkeypatch)
    path = tmp_path / "registry.json"
    entry = {"name": "small", "hub": "Somebody/MARS-small", "revision": revision, "block_size": 4}
    path.write_text(json.dumps([entry]))
    assert load_checkpoint(name, registry_path=path, device="cpu").name == "small"
    assert answer(name, registry_path=path) == answer(str(random_folder))


def test_a_hub_entry_as_the_hub_client_lays_it_out(
    random_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links to blobs, bf16 weights in shards, an old configuration and code that is not run."""
    from transformers import AutoModelForCausalLM

    expected = answer(str(random_folder), dtype="bf16")
    snapshot = _hub(tmp_path, random_folder, monkeypatch)
    (snapshot / "model.safetensors").unlink()
    model = AutoModelForCausalLM.from_pretrained(random_folder, dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "shards", max_shard_size="30KB")
    for path in (tmp_path / "shards").glob("model*"):
        shutil.copy(path, snapshot)
    edit_config(snapshot, auto_map={"AutoModel": "evil.Model"}, torch_dtype="bfloat16")
    blobs = snapshot.parents[1] / "blobs"
    blobs.mkdir()
    for number, path in enumerate(sorted(snapshot.iterdir())):
        shutil.move(path, blobs / f"{number:040}")
        path.symlink_to(Path("../../blobs") / f"{number:040}")
    registered = tmp_path / "registry.json"
    entry = {"name": "small", "hub": "Somebody/MARS-small", "block_size": 4}
    registered.write_text(json.dumps([entry]))
    assert answer("small", registry_path=registered, dtype="bf16") == expected


def test_a_hub_entry_that_cannot_be_had(
    random_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _hub(tmp_path, random_folder, monkeypatch)
    path = tmp_path / "registry.json"
    path.write_text(json.dumps([{"name": "x", "hub": "Somebody/other", "block_size": 4}]))
    with pytest.raises(CheckpointError, match="could not be fetched from the hub"):
        load_checkpoint("x", registry_path=path)


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


def test_a_configuration_of_transformers_5() -> None:
    raw = {key: value for key, value in QWEN.items() if key != "rope_theta"}
    raw["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6}
    assert ModelConfig.from_dict(raw).rope_theta == 1e6


def test_what_transformers_writes_can_be_read() -> None:
    class Sizes:
        size = 93

    config = ModelConfig.from_dict(hf_config(Sizes()).to_dict())
    assert config.vocab_size == 100


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model_type": "gpt2"}, "'gpt2' is not supported"),
        ({"model_type": None}, "is not supported"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "'yarn' is not supported"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, "'linear' is not supported"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, "is not supported"),
        ({"rope_parameters": "default"}, "rope_parameters"),
        ({"use_sliding_window": True}, "sliding-window"),
        ({"quantization_config": {"bits": 4}}, "quantized"),
        ({"hidden_act": "gelu"}, "'gelu'"),
        ({"mlp_bias": True}, "biases"),
        ({"model_type": "llama", "attention_bias": True}, "biases"),
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"vocab_size": "151936"}, "vocab_size"),
        ({"num_key_value_heads": 3}, "does not divide"),
        ({"head_dim": 63}, "odd head size"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"rope_theta": -1.0}, "rope_theta"),
    ],
)
def test_anything_else_is_refused_with_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CheckpointError, match=sentence):
        ModelConfig.from_dict(QWEN | changes)
