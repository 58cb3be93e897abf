"""GGUF files: every supported type exactly, rows as in transformers, damage in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
import torch
from gguf.constants import GGMLQuantizationType as Kind
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_gguf import SYSTEM, write_gguf

from mars_runtime.model.config import CheckpointError
from mars_runtime.model.gguf import read_gguf
from mars_runtime.model.grouped import GroupedMatrix
from mars_runtime.text import Tokenizer

GATE = "model.layers.1.mlp.gate_proj.weight"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    write_gguf(path)
    return path


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
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
    found = read_gguf(tmp_path / "a.gguf")
    assert found.config.tie_word_embeddings == is_tied
    assert found.config.attention_bias == (architecture == "qwen2")
    assert found.weights.keys() == expected.keys()
    for name, weight in found.weights.items():
        dense = weight.dense() if isinstance(weight, GroupedMatrix) else weight.float()
        assert torch.equal(dense, expected[name]), name
    gate = found.weights[GATE]
    assert (gate.bits if isinstance(gate, GroupedMatrix) else gate.dtype) == held


def test_the_tokenizer_is_the_one_that_was_put_in(file: Path) -> None:
    checkpoint = read_gguf(file)
    ours = Tokenizer.from_spec(checkpoint.tokenizer, checkpoint.tokenizer_config)
    theirs = tokenizers.Tokenizer.from_file(str(file.parent / "tokenizer" / "tokenizer.json"))
    assert ours.system == SYSTEM
    assert ours.pad_id == theirs.token_to_id("<|im_end|>")
    assert ours.mask_id == theirs.token_to_id("<|mask|>")
    text = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\nA  12 foxes\n\n7"
    whole = f"{text}<|im_end|>\n<|im_start|>assistant\n"
    assert ours.encode_prompt("A  12 foxes\n\n7") == theirs.encode(whole).ids


@pytest.mark.parametrize(
    ("metadata", "sentence"),
    [
        ({"block_count": 3}, "lacks weights"),
        ({"block_count": 1}, "has unknown weights"),
        ({"block_count": 2**32 - 1}, "lacks weights"),
        ({"block_count": None}, "block_count as None"),
        ({"feed_forward_length": 64}, "doesn't fit"),
        ({"attention__head_count_kv": 3}, "does not divide"),
        ({"attention__head_count": 5}, "turns 16 of 12 numbers"),
        ({"attention__layer_norm_rms_epsilon": -1.0}, "rms_norm_eps as a positive number"),
        ({"rope__dimension_count": 8}, "turns 8 of 16 numbers"),
        ({"rope__scaling__type": "yarn"}, "rope scaling"),
        ({"context_length": "long"}, "context_length as 'long'"),
    ],
)
def test_what_does_not_fit_gets_a_sentence(
    tmp_path: Path, metadata: dict[str, object], sentence: str
) -> None:
    path = tmp_path / "wrong.gguf"
    write_gguf(path, **metadata)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match=sentence) as error:
        read_gguf(path)
    assert str(error.value).startswith(str(path))
    assert str(error.value).endswith(".")
    assert str(error.value).count(": ") == 1


def test_foreign_files_get_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    write_gguf(path, architecture="mamba")
    with pytest.raises(CheckpointError, match="only llama and qwen2"):
        read_gguf(path)
    for content, sentence in (
        (b"", "too short"),
        (b"{" * 100, "not a GGUF file"),
        (b"GGUF\0\0\0\x03" + bytes(92), "only 2 and 3"),
    ):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=sentence):
            read_gguf(path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_gguf(tmp_path / "missing.gguf")
    with pytest.raises(CheckpointError, match=r"cannot be read|too short"):
        read_gguf(tmp_path)


def test_lengths_that_the_file_is_too_short_for_end_at_once(file: Path, tmp_path: Path) -> None:
    """A count of 2^60 numbers must neither be allocated nor counted up to."""
    content = file.read_bytes()
    at = content.index(b"tokenizer.ggml.token_type") + len(b"tokenizer.ggml.token_type") + 8
    path = tmp_path / "long.gguf"
    path.write_bytes(content[:at] + (2**60).to_bytes(8, "little") + content[at + 8 :])
    with pytest.raises(CheckpointError, match="damaged or incomplete"):
        read_gguf(path)


def read_or_refuse(path: Path) -> None:
    """Whatever the bytes are: a checkpoint or one sentence."""
    try:
        checkpoint = read_gguf(path)
    except CheckpointError as error:
        said = str(error)
    else:
        said = f"{len(checkpoint.weights)} weights."
    assert said.endswith(".")


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
def test_flipped_bytes_of_the_header_give_a_sentence_or_a_checkpoint(
    file: Path, tmp_path: Path, data: st.DataObject
) -> None:
    content = bytearray(file.read_bytes())
    header = content.index(b"blk.1.ffn_down.weight") + 60
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, header))] = data.draw(st.integers(0, 255))
    path = tmp_path / "flipped.gguf"
    path.write_bytes(content)
    read_or_refuse(path)
