"""GGUF files: every supported type exactly, rows as in transformers, damage in a sentence."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import gguf
import pytest
import tokenizers
import torch
from gguf.constants import GGMLQuantizationType as Kind
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_adapter import tensors_of
from test_adapter import write as write_adapter
from tiny_gguf import HEAD_DIM, SYSTEM, write_gguf

from mars_runtime.lab.evaluation.run import eval_model_of
from mars_runtime.model.attention import frequencies
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.gguf import read_gguf
from mars_runtime.model.load import load_checkpoint
from mars_runtime.model.quantized import GroupedMatrix
from mars_runtime.model.source import resolve
from mars_runtime.text import Tokenizer

FILE = "small.gguf"
GATE = "model.layers.1.mlp.gate_proj.weight"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    write_gguf(path)
    return path


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize(
    ("kind", "held"),
    [
        (Kind.Q4_0, 4),
        (Kind.Q4_1, 4),
        (Kind.Q8_0, 8),
        (Kind.F16, torch.float16),
        (Kind.BF16, torch.bfloat16),
        (Kind.F32, torch.float32),
        (Kind.Q5_0, torch.float32),
    ],
)
def test_weights_come_back_exactly_and_in_transformers_order(
    tmp_path: Path, kind: Kind, held: int | torch.dtype, architecture: str, is_tied: bool
) -> None:
    expected = write_gguf(tmp_path / "a.gguf", kind, architecture, is_tied=is_tied)
    loaded = read_gguf(tmp_path / "a.gguf")
    assert loaded.config.tie_word_embeddings == is_tied
    assert loaded.config.attention_bias == (architecture == "qwen2")
    assert loaded.weights.keys() == expected.keys()
    for name, weight in loaded.weights.items():
        dense = weight.dense() if isinstance(weight, GroupedMatrix) else weight.float()
        assert torch.equal(dense, expected[name]), name
    gate = loaded.weights[GATE]
    assert (gate.bits if isinstance(gate, GroupedMatrix) else gate.dtype) == held


def test_the_tokenizer_is_the_one_that_was_put_in(file: Path) -> None:
    checkpoint = read_gguf(file)
    ours = Tokenizer(checkpoint.tokenizer, checkpoint.tokenizer_config)
    theirs = tokenizers.Tokenizer.from_file(str(file.parent / "tokenizer" / "tokenizer.json"))
    assert ours.system is None
    assert ours.pad_id == theirs.token_to_id("<|im_end|>")
    assert ours.mask_id == theirs.token_to_id("<|mask|>")
    text = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\nA  12 foxes\n\n7"
    whole = f"{text}<|im_end|>\n<|im_start|>assistant\n"
    assert ours.encode_prompt("A  12 foxes\n\n7") == theirs.encode(whole).ids
    loaded = eval_model_of(load_checkpoint(str(file), device="cpu"))
    assert list(loaded.encode_prompt("A  12 foxes\n\n7")) == theirs.encode(whole).ids


MISFITS: list[tuple[dict[str, Any], str]] = [
    ({"block_count": 3}, "missing weights"),
    ({"block_count": 2**32 - 1}, "missing weights"),
    ({"block_count": None}, "lacks llama.block_count"),
    ({"feed_forward_length": 64}, "but its header requires"),
    ({"attention__head_count_kv": 3}, "must be a multiple of num_key_value_heads"),
    ({"attention__head_count": 5}, r"rope\.dimension_count = 16, but only the head size, 12,"),
    ({"rope__freq_base": 0.0}, "has llama.rope.freq_base = 0.0, which must be a positive"),
    ({"rope__freq_base": 1e-45}, "rope_theta in its header must be at least 1"),
    ({"rope__freq_base": [1e4, 1e4]}, "freq_base = .*, which must be a positive number"),
    ({"attention__layer_norm_rms_epsilon": None}, "lacks llama.attention.layer_norm_rms"),
    ({"rope__scaling__type": ["yarn"]}, r"rope\.scaling\.type = .* not supported"),
    ({"rope__dimension_count": 8}, r"rope\.dimension_count = 8, but only the head size, 16,"),
    ({"rope__scaling__type": "yarn"}, r"rope\.scaling\.type = 'yarn', which is not supported"),
    ({"general": {"split.count": 3}}, r"split\.count = 3, which is not supported"),
    ({"context_length": "long"}, "context_length = 'long'"),
    ({"architecture": "mamba"}, "of type 'mamba', but only llama, qwen2, qwen3 are supported"),
    ({"options": {"endianess": gguf.GGUFEndian.BIG}}, "is big-endian; only little-endian"),
    *[
        ({"general": general}, sentence)
        for general, sentence in (
            ({"tokenizer.ggml.pre": None}, r"lacks tokenizer\.ggml\.pre"),
            ({"tokenizer.ggml.pre": "tekken"}, r"tokenizer\.ggml\.pre = 'tekken', but only"),
            ({"tokenizer.ggml.model": None}, r"lacks tokenizer\.ggml\.model"),
            ({"tokenizer.ggml.model": "llama"}, r"tokenizer\.ggml\.model = 'llama', but only gpt2"),
            ({"general.type": "adapter"}, "has general.type = 'adapter', which is not supported"),
            ({"tokenizer.ggml.pre": ["smollm"]}, r"tokenizer\.ggml\.pre = \['smollm'\], but only"),
        )
    ],
]
CHANGING: list[tuple[dict[str, Any], str]] = [
    ({"attention__causal": False}, r"has llama\.attention\.causal = False"),
    ({"attention__scale": 0.5}, r"has llama\.attention\.scale = 0\.5"),
    ({"expert_count": 8}, r"has llama\.expert_count = 8"),
    ({"attention__sliding_window": 256}, r"has llama\.attention\.sliding_window = 256"),
    ({"rope__scaling__factor": 4.0}, r"has llama\.rope\.scaling\.factor = 4\.0"),
    ({"attention__some_new_thing": 3}, r"has llama\.attention\.some_new_thing = 3"),
    ({"a_list": [1, 2]}, r"has llama\.a_list = "),
    ({"\x1b[31mred": 1}, r"has 'llama\.\\x1b\[31mred' = 1"),
]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [*MISFITS, *((change, f"{said}.* not supported: choose") for change, said in CHANGING)],
)
def test_what_does_not_fit_or_would_be_computed_otherwise_gets_a_sentence(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    path = tmp_path / FILE
    write_gguf(path, **change)
    with pytest.raises(CheckpointError, match=sentence) as error:
        read_gguf(path)
    assert str(error.value).startswith(str(path))
    assert str(error.value).endswith(".")
    assert str(error.value).isprintable()


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_logits_are_those_of_the_same_file_in_transformers(
    tmp_path: Path, architecture: str, is_tied: bool
) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"attention__key_length": HEAD_DIM, "attention__value_length": HEAD_DIM}
    write_gguf(tmp_path / FILE, Kind.Q8_0, architecture, is_tied=is_tied, **sizes)
    # It does not read the head size of a Qwen3: the published ones all have 128.
    config = AutoConfig.from_pretrained(tmp_path, gguf_file=FILE, head_dim=HEAD_DIM)
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path, config=config, gguf_file=FILE, dtype=torch.float32
    )
    assert theirs.config.model_type == architecture
    ours = load_checkpoint(str(tmp_path / FILE), device="cpu", dtype="fp32").model
    ids = torch.arange(5, 60).unsqueeze(0)
    with torch.inference_mode():
        wanted = theirs.eval()(ids).logits
    actual = ours.logits(ours.hidden(ids, ours.new_cache(1, 80)), slice(None))  # type: ignore[arg-type]
    torch.testing.assert_close(actual, wanted, atol=5e-4, rtol=1e-4)


def test_divided_frequencies_are_those_of_llama_3(tmp_path: Path) -> None:
    """The file holds what ggml-org/llama.cpp's converter computes of such a configuration."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    rope = {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 32.0,
        "original_max_position_embeddings": 256,
    }
    theirs = LlamaConfig(head_dim=16, max_position_embeddings=512, rope_parameters=rope)
    divisors = []
    for place in range(0, 16, 2):
        length = 2 * math.pi * 10000.0 ** (place / 16)
        smooth = (256 / length - 1.0) / (32.0 - 1.0)
        between = 1 / ((1 - smooth) / 8.0 + smooth)
        divisors.append(1.0 if length < 256 / 32.0 else 8.0 if length > 256 / 1.0 else between)
    assert len(set(divisors)) > 3
    write_gguf(tmp_path / FILE, divisors=divisors)
    config = read_gguf(tmp_path / FILE).config
    wanted = LlamaRotaryEmbedding(theirs).inv_freq
    torch.testing.assert_close(frequencies(config), wanted, rtol=1e-6, atol=0)
    model = load_checkpoint(str(tmp_path / FILE), device="cpu", dtype="fp32").model
    assert model.config == config


@pytest.mark.parametrize("divisors", [[1.0] * 7, [1.0] * 7 + [0.0], [1.0] * 7 + [math.nan]])
def test_divisors_that_do_not_fit_get_a_sentence(tmp_path: Path, divisors: list[float]) -> None:
    write_gguf(tmp_path / FILE, divisors=divisors)
    with pytest.raises(CheckpointError, match=r"rope_freqs\.weight"):
        read_gguf(tmp_path / FILE)


def test_foreign_files_get_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / FILE
    for content, sentence in (
        (b"", "too short"),
        (b"{" * 100, "not a GGUF file"),
        (b"GGUF\x09\0\0\0" + bytes(92), "has GGUF version 9"),
    ):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=sentence):
            read_gguf(path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_gguf(tmp_path / "missing.gguf")
    with pytest.raises(CheckpointError, match=r"cannot be read|too short"):
        read_gguf(tmp_path)


def test_keys_that_change_nothing_are_read_over(tmp_path, caplog) -> None:
    neutral: dict[str, Any] = {
        "attention__causal": True,
        "attention__scale": 0.25,
        "attention__value_length": 16,
        "attention__sliding_window": 512,
        "logit_scale": 1.0,
        "expert_count": 0,
        "rope__scale_linear": 1.0,
        "rope__scaling__type": "none",
        "tensor_data_layout": "Meta AI original pth",
        "vocab_size": 7,
    }
    write_gguf(tmp_path / FILE, **neutral)
    assert read_gguf(tmp_path / FILE).config.num_layers == 2
    assert not caplog.records


@pytest.mark.parametrize(
    ("names", "asked", "found"),
    [
        (["small.GGUF"], "small.GGUF", "small.GGUF"),
        (["small.bin"], "small.bin", "small.bin"),
        (["blob", "README.md"], "", "blob"),
    ],
)
def test_a_file_is_recognised_by_its_first_bytes(
    file: Path, tmp_path: Path, names: list[str], asked: str, found: str
) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(b"# " if name.endswith(".md") else file.read_bytes())
    link.symlink_to(folder / found)
    assert resolve(str(folder / asked)).path == folder / found
    assert resolve(str(link)).path == link


def test_a_folder_with_several_checkpoints_names_them(file: Path, tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf", "c\x1b[2J.gguf"):
        (tmp_path / name).write_bytes(file.read_bytes())
    with pytest.raises(CheckpointError, match=r"a\.gguf, b\.gguf") as caught:
        resolve(str(tmp_path))
    assert "\x1b" not in str(caught.value)


def test_a_count_that_the_file_is_too_short_for_ends_at_once(file: Path, tmp_path: Path) -> None:
    content, key = file.read_bytes(), b"tokenizer.ggml.token_type"
    at = content.index(key) + len(key) + 8
    path = tmp_path / "long.gguf"
    path.write_bytes(content[:at] + (2**60).to_bytes(8, "little") + content[at + 8 :])
    with pytest.raises(CheckpointError, match="damaged or incomplete"):
        read_gguf(path)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True))
def test_truncated_files_get_a_sentence(file: Path, tmp_path: Path, share: float) -> None:
    content = file.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(CheckpointError, match=r"\.$"):
        read_gguf(path)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes_of_the_header_give_a_sentence_or_a_checkpoint(file, tmp_path, data) -> None:
    content = bytearray(file.read_bytes())
    header = content.index(b"blk.1.ffn_down.weight") + 60
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, header))] = data.draw(st.integers(0, 255))
    path = tmp_path / "flipped.gguf"
    path.write_bytes(content)
    refusal = None
    try:
        read_gguf(path)
    except CheckpointError as error:
        refusal = str(error)
    assert refusal is None or refusal.endswith(".")


def register(folder: Path, path: Path, **changes: Any) -> Path:
    """Write a registry in ``folder`` with one entry for the file ``path``."""
    content = path.read_bytes()
    line = {
        "name": "small",
        "block_size": 8,
        "mask_token": "<|pad|>",
        "adapter": "small",
        "gguf": {
            "file": path.name,
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "hub": "somebody/small",
            "wheel": {"package": "small", "version": "1", "size": 1, "sha256": ""},
        },
    }
    (folder / "registry.json").write_text(json.dumps([line | changes]))
    return folder / "registry.json"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv("MARS_CACHE", str(folder))
    return folder


def test_an_entry_is_loaded_from_the_cache(cache: Path, tmp_path: Path) -> None:
    write_gguf(cache / FILE)
    known = register(tmp_path, cache / FILE, system="Be kind.")
    checkpoint = load_checkpoint("small", registry_path=known, device="cpu")
    assert (checkpoint.name, checkpoint.block_size, checkpoint.path) == ("small", 8, cache / FILE)
    assert checkpoint.tokenizer.token_bytes(checkpoint.tokenizer.mask_id) == b"<|pad|>"
    assert checkpoint.tokenizer.system == "Be kind."
    (cache / FILE).rename(cache / "away")
    with pytest.raises(CheckpointError, match="mars_runtime fetch small"):
        load_checkpoint("small", registry_path=known)


def test_an_entry_brings_its_adapter_as_soon_as_it_is_there(cache: Path, tmp_path: Path) -> None:
    write_gguf(cache / FILE)
    known = register(tmp_path, cache / FILE)
    plain = load_checkpoint("small", registry_path=known, device="cpu", dtype="fp32")
    (tmp_path / "small").mkdir()
    tensors = tensors_of(plain.model.config)
    write_adapter(tmp_path / "small", tensors, block_size=5, mask_token="<|mask|>")
    checkpoint = load_checkpoint("small", registry_path=known, device="cpu", dtype="fp32")
    assert checkpoint.block_size == 5
    assert checkpoint.tokenizer.token_bytes(checkpoint.tokenizer.mask_id) == b"<|mask|>"
    assert [path.name for path in checkpoint.weight_files] == [
        FILE,
        "adapter-0.safetensors",
        "adapter-1.safetensors",
    ]
    masks = torch.tensor(
        [[*checkpoint.tokenizer.encode_prompt("Hello"), checkpoint.tokenizer.mask_id]]
    )
    said = [item.model.hidden(masks, item.model.new_cache(1, 200)) for item in (plain, checkpoint)]
    assert torch.equal(said[0][:, :-1], said[1][:, :-1])
    assert not torch.allclose(said[0][:, -1], said[1][:, -1])


@pytest.mark.parametrize("at", [-20, -18], ids=["scale", "minimum"])
def test_scales_that_are_no_numbers_are_refused(tmp_path: Path, at: int) -> None:
    write_gguf(tmp_path / FILE)
    content = bytearray((tmp_path / FILE).read_bytes())
    content[at : at + 2] = b"\xff\x7f"  # of the last group
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(CheckpointError, match="is not finite: fetch"):
        load_checkpoint(str(tmp_path / FILE))
