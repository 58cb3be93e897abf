"""Read a checkpoint from GGUF files: shape, weights and tokenizer, with transformers' names.

Nothing in the files is executed, in particular not the chat template. The architectures of
``transformer.py`` are supported, and a metadata key that changes their computation is rejected by
name. Of tokenizers only byte-level BPE (``gpt2`` in GGUF) is supported, with the pre-tokenizers
listed here: any other one would silently give other ids.

This module parses the header itself: the reader of the gguf package takes seconds for a vocabulary
and never ends for some damaged lengths. Here no length beyond the end of the file is accepted. The
package provides the tensor types and their packing. Source: ggml-org/ggml, docs/gguf.md.
"""

from __future__ import annotations

import logging
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from reprlib import repr as shown
from typing import Any, cast

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGUFValueType
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import dequantize
from numpy.typing import NDArray
from torch import Tensor

from mars_runtime.model.config import (
    CheckpointError,
    ModelConfig,
    expected_names,
    expected_shape,
    printable,
)
from mars_runtime.model.files import files_of
from mars_runtime.model.quantized import GROUP, GroupedMatrix

ARCHITECTURES = ("llama", "qwen2", "qwen3")
MAX_POSITIONS = 1 << 20
MAGIC, VERSIONS = b"GGUF", (2, 3)
DEFAULT_ALIGNMENT, MAX_ALIGNMENT = 32, 1 << 16
MAX_DIMENSIONS = 4
DAMAGED = "is damaged or incomplete"
DIVISORS = "rope_freqs.weight"
_OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
DEFAULTS = {"rope.freq_base": 10000.0, "attention.layer_norm_rms_epsilon": 1e-6}
"""Values assumed, with a warning, if a file lacks them: llama.cpp's base and transformers'
epsilon."""
READ = {
    *("block_count", "context_length", "embedding_length", "feed_forward_length"),
    *("attention.head_count", "attention.head_count_kv", "attention.key_length"),
    *("rope.dimension_count", "rope.scaling.type", *DEFAULTS),
}
"""Keys under the architecture that are read."""
NO_EFFECT = {
    *("vocab_size", "tensor_data_layout", "pooling_type", "decoder_start_token_id"),
    *("attention.layer_norm_epsilon", "rope.scaling.original_context_length"),
    "rope.scaling.finetuned",
}
"""Keys that change nothing in these architectures."""
UNIT_SCALES = {
    *("logit_scale", "residual_scale", "embedding_scale", "rope.scaling.factor"),
    *("rope.scaling.attn_factor", "rope.scale_linear"),
}
"""Keys that change nothing if they are 1. All others change nothing if they are 0."""
_log = logging.getLogger(__name__)
_TENSOR_TYPES = {Kind.F32: torch.float32, Kind.F16: torch.float16, Kind.BF16: torch.bfloat16}


@dataclass(frozen=True, slots=True)
class GgufCheckpoint:
    """Contents of GGUF files.

    weights: named and ordered as in a transformers checkpoint; Q4_0, Q4_1 and Q8_0 stay quantised.
    tokenizer, tokenizer_config: in the form of the files that ``Tokenizer.from_spec`` reads, with
    the chat template, which is never run. files: the files read, several for a split checkpoint.
    """

    config: ModelConfig
    weights: Mapping[str, Tensor | GroupedMatrix]
    tokenizer: Mapping[str, Any]
    tokenizer_config: Mapping[str, Any]
    files: tuple[Path, ...]


def read_gguf(path: Path) -> GgufCheckpoint:
    """Read a checkpoint; for a split one, ``path`` may be any part.

    Raises CheckpointError, with one sentence.
    """
    opened = _open(path)
    files = _parts(path, opened)
    if len(files) > 1:
        opened = _joined(files)
    with _as_sentence(path):
        config = _config(opened, path)
        spec, spec_config = tokenizer_spec(opened.metadata)
        return GgufCheckpoint(config, _weights(opened, config), spec, spec_config, files)


@contextmanager
def _as_sentence(path: Path) -> Iterator[None]:
    """Convert errors about a file to CheckpointError."""
    try:
        yield
    except GgufError as error:
        raise CheckpointError(f"{path} {error}: {error.advice}.") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}).") from error


def _open(path: Path) -> GgufFile:
    with _as_sentence(path):
        return GgufFile.open(path)


def _parts(path: Path, opened: GgufFile) -> tuple[Path, ...]:
    """Return the files of the checkpoint that ``path`` belongs to."""
    with _as_sentence(path):
        count = _scalar(opened.metadata, "split.count", 1)
        if count in (0, 1):
            return (path,)
        files = files_of(path)
        if len(files) != count:
            raise GgufError(
                f"is a part of {shown(count)}, and its name does not end in -00001-of-00003.gguf "
                "or the like, as names of parts do"
            )
        return files


def _joined(files: Sequence[Path]) -> GgufFile:
    """Join all parts: the first has the metadata, each has tensors of its own."""
    tensors: dict[str, GgufTensor] = {}
    opened = None
    for number, path in enumerate(files):
        if not path.is_file():
            raise CheckpointError(
                f"{path.name} is missing in {path.parent}, a part of the checkpoint that is split "
                f"into {len(files)} files: fetch it too."
            )
        part = _open(path)
        with _as_sentence(path):
            place = [_scalar(part.metadata, f"split.{name}") for name in ("no", "count")]
            if place != [number, len(files)]:
                raise GgufError("is another part than its name says")
            if both := tensors.keys() & part.tensors.keys():
                raise GgufError(f"holds {printable(min(both))}, which an earlier part holds too")
        tensors |= part.tensors
        opened = opened or part
    assert opened is not None, "a split checkpoint has parts"
    return GgufFile(opened.metadata, tensors)


def _config(file: GgufFile, path: Path) -> ModelConfig:
    values = file.metadata
    kind = _scalar(values, "general.architecture")
    if (what := _scalar(values, "general.type", "model")) != "model":
        raise UnsupportedError(f"holds no model but something of type {shown(what)}")
    if kind not in ARCHITECTURES:
        raise UnsupportedError(
            f"holds a model of type {shown(kind)}, and only {', '.join(ARCHITECTURES)} are "
            "supported"
        )
    scaling = _scalar(values, f"{kind}.rope.scaling.type", "none")
    if scaling != "none":
        raise UnsupportedError(
            f"stretches its positions (rope scaling of type {shown(scaling)}), which is not "
            "supported"
        )
    hidden_size = _number(values, f"{kind}.embedding_length")
    num_heads = _number(values, f"{kind}.attention.head_count")
    vocabulary = file.tensors.get("token_embd.weight")
    if vocabulary is None:
        raise GgufError("has no tensor token_embd.weight")
    config: dict[str, Any] = {
        "model_type": kind,
        "vocab_size": vocabulary.shape[0],
        "hidden_size": hidden_size,
        # At most as many layers as tensors, so that a damaged number cannot create a long list of
        # names.
        "num_hidden_layers": min(_number(values, f"{kind}.block_count"), len(file.tensors)),
        "num_attention_heads": num_heads,
        "num_key_value_heads": _number(values, f"{kind}.attention.head_count_kv", num_heads),
        "head_dim": _number(values, f"{kind}.attention.key_length", hidden_size // num_heads),
        "intermediate_size": _number(values, f"{kind}.feed_forward_length"),
        "max_position_embeddings": min(_number(values, f"{kind}.context_length"), MAX_POSITIONS),
        "rms_norm_eps": _real(values, kind, "attention.layer_norm_rms_epsilon", path),
        "rope_theta": _real(values, kind, "rope.freq_base", path),
        "tie_word_embeddings": "output.weight" not in file.tensors,
    }
    turned = _number(values, f"{kind}.rope.dimension_count", config["head_dim"])
    if turned != config["head_dim"]:
        raise UnsupportedError(f"turns {turned} of {config['head_dim']} numbers a head by position")
    _refuse_what_is_not_computed(values, kind, config)
    divisors = _divisors(file.tensors, config["head_dim"])
    try:
        return replace(ModelConfig.from_dict(config), rope_scaling=divisors)
    except CheckpointError as error:
        what = str(error).partition(":")[0].replace("config.json", "its header")
        raise GgufError(f"is damaged, since {what}") from error


def _divisors(tensors: Mapping[str, GgufTensor], head_dim: int) -> tuple[float, ...] | None:
    """Return what divides the rotary frequencies, which Llama 3.1 and later have, or None."""
    tensor = tensors.get(DIVISORS)
    if tensor is None:
        return None
    if tensor.type != Kind.F32 or tensor.shape != (head_dim // 2,):
        shape = tuple(tensor.shape)
        raise GgufError(f"holds {DIVISORS} as {tensor.type.name} {shape}, which doesn't fit")
    divisors = np.array(tensor.data).view("<f4").reshape(-1)
    if not (np.isfinite(divisors) & (divisors > 0)).all():
        raise GgufError(f"holds numbers in {DIVISORS} that are not positive")
    return tuple(divisors.tolist())


def _scalar(values: Mapping[str, Any], key: str, default: Any = None) -> Any:
    """Return a string or a number. Raises GgufError for a list."""
    value = values.get(key, default)
    if isinstance(value, (list, np.ndarray)):
        raise GgufError(f"gives {key} as a list")
    return value


def _number(values: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = values.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise GgufError(f"gives {key} as {shown(value)}, which must be a positive whole number")
    return value


def _real(values: Mapping[str, Any], kind: str, name: str, path: Path) -> float:
    """Return a positive number, or its default with a warning. Raises GgufError."""
    key, default = f"{kind}.{name}", DEFAULTS[name]
    value = values.get(key)
    if value is None:
        _log.warning("%s does not give %s: %g is assumed, which may be wrong.", path, key, default)
        return default
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
        raise GgufError(f"gives {key} as {shown(value)}, which must be a positive number")
    return value


def _refuse_what_is_not_computed(
    values: Mapping[str, Any], kind: str, config: Mapping[str, Any]
) -> None:
    """Raise UnsupportedError for a key that changes the computation."""
    for key, value in values.items():
        name = key.removeprefix(f"{kind}.")
        if name != key and not _changes_nothing(name, value, config):
            raise UnsupportedError(
                f"gives {printable(key)} as {shown(value)}, which is not computed here"
            )


def _changes_nothing(name: str, value: Any, config: Mapping[str, Any]) -> bool:
    if name in READ or name in NO_EFFECT:
        return True
    if not isinstance(value, (bool, int, float)):
        return False
    if name == "attention.causal":
        return bool(value)
    if name == "attention.value_length":
        return bool(value == config["head_dim"])
    if name == "attention.sliding_window" and value >= config["max_position_embeddings"]:
        return True
    if name == "attention.scale" and math.isclose(value, config["head_dim"] ** -0.5, rel_tol=1e-5):
        return True
    return bool(value == 0 or (name in UNIT_SCALES and value == 1))


def _weights(file: GgufFile, config: ModelConfig) -> dict[str, Tensor | GroupedMatrix]:
    names = {_transformers_name(name): name for name in file.tensors if name != DIVISORS}
    for wrong, what in (
        (expected_names(config) - names.keys(), "lacks"),
        (names.keys() - expected_names(config), "has unknown"),
    ):
        if wrong:
            first = printable(min(wrong))
            raise GgufError(f"{what} weights ({len(wrong)}, {first} the first)")
    weights: dict[str, Tensor | GroupedMatrix] = {}
    for name, stored in names.items():
        tensor = file.tensors[stored]
        if tensor.shape != expected_shape(name, config):
            shape = tuple(tensor.shape)
            raise GgufError(f"holds {printable(stored)} in the shape {shape}, which doesn't fit")
        heads = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads}
        num_heads = heads.get(name.rsplit(".", 2)[-2]) if config.model_type == "llama" else None
        weights[name] = _unpack(_in_halves(tensor, num_heads) if num_heads else tensor)
    return weights


def _transformers_name(name: str) -> str:
    if name in _OUTER:
        return _OUTER[name]
    match = re.fullmatch(r"blk\.(\d{1,5})\.(\w+)\.(weight|bias)", name, re.ASCII)
    if match is None or match[2] not in _PARTS:
        return name
    return f"model.layers.{int(match[1])}.{_PARTS[match[2]]}.{match[3]}"


def _unpack(tensor: GgufTensor) -> Tensor | GroupedMatrix:
    """Return the stored values exactly; types without support in the forward become fp32."""
    if tensor.type in _TENSOR_TYPES:
        flat = torch.from_numpy(np.array(tensor.data).reshape(-1))
        return flat.view(_TENSOR_TYPES[tensor.type]).view(tensor.shape)
    if len(tensor.shape) == 2 and tensor.type in (Kind.Q4_0, Kind.Q4_1, Kind.Q8_0):
        return _grouped(tensor)
    try:
        dense = dequantize(tensor.data, tensor.type)
    except NotImplementedError as error:
        kind = tensor.type.name
        raise UnsupportedError(f"holds weights of type {kind}, which can't be read") from error
    return torch.from_numpy(np.ascontiguousarray(dense, np.float32)).view(tensor.shape)


def _grouped(tensor: GgufTensor) -> GroupedMatrix:
    """Unpack blocks of 32: a scale (and a minimum) in fp16, then the integers.

    Source: ggml-org/ggml, ggml-common.h, block_q4_0, block_q4_1 and block_q8_0.
    """
    rows, columns = tensor.shape
    heads = 2 if tensor.type == Kind.Q4_1 else 1
    blocks = tensor.data.reshape(rows, columns // GROUP, -1)
    numbers = np.array(blocks[:, :, : 2 * heads]).view("<f2").astype(np.float32)
    scales = torch.from_numpy(numbers[:, :, 0].copy())
    packed = blocks[:, :, 2 * heads :]
    if tensor.type == Kind.Q8_0:
        whole = np.array(packed).view(np.int8).reshape(rows, columns)
        return GroupedMatrix(torch.from_numpy(whole), scales, None, 8)
    minimums = torch.from_numpy(numbers[:, :, 1].copy()) if heads == 2 else -8 * scales
    return GroupedMatrix(torch.from_numpy(_nibbles(packed, rows, columns)), scales, minimums, 4)


def _nibbles(packed: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]:
    """Unpack 4-bit values: the low halves of a block's 16 bytes come first, then the high
    halves."""
    whole = np.empty((rows, columns // GROUP, 2, GROUP // 2), np.uint8)
    np.bitwise_and(packed, 15, out=whole[:, :, 0])
    np.right_shift(packed, 4, out=whole[:, :, 1])
    return whole.reshape(rows, columns)


def _in_halves(tensor: GgufTensor, num_heads: int) -> GgufTensor:
    """Reorder Llama's queries or keys from adjacent rotary pairs to two halves.

    This inverts ``LlamaModel.permute`` of convert_hf_to_gguf.py (ggml-org/llama.cpp).
    """
    rows, row_bytes = tensor.data.shape
    pairs = tensor.data.reshape(num_heads, rows // num_heads // 2, 2, row_bytes)
    return replace(tensor, data=pairs.swapaxes(1, 2).reshape(rows, row_bytes))


class GgufError(ValueError):
    """A fault of a file; the message is a clause that follows the file's name."""

    advice = "fetch it again or choose another file"


class UnsupportedError(GgufError):
    """A valid file needs a feature that is not supported."""

    advice = "choose another file"


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor: its type, its shape in PyTorch's order, and its packed bytes in the mapped file.

    data: uint8 [rows, bytes per row].
    """

    type: Kind
    shape: tuple[int, ...]
    data: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class GgufFile:
    """An open file. metadata: numbers, strings and lists by key; lists of numbers are numpy
    arrays."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]

    @classmethod
    def open(cls, path: Path) -> GgufFile:
        """Map ``path`` and parse its GGUF header. Raises GgufError or OSError."""
        if path.stat().st_size < 24:
            raise GgufError("is too short to be a GGUF file")
        data: NDArray[np.uint8] = np.memmap(path, dtype=np.uint8, mode="r")
        try:
            return _read(_Cursor(data))
        except GgufError:
            raise
        except (struct.error, ValueError) as error:
            raise GgufError(DAMAGED) from error


class _Cursor:
    """Reads values sequentially and never past the end."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self.data = data
        self._bytes = memoryview(cast(Any, data))
        self.at = 0

    def number(self, form: str) -> Any:
        """Read one little-endian number in the notation of ``struct``."""
        (value,) = struct.unpack_from(f"<{form}", self._bytes, self.at)
        self.at += struct.calcsize(f"<{form}")
        return value

    def take(self, size: int) -> memoryview:
        """Read the next ``size`` bytes. Raises GgufError past the end."""
        if size > len(self._bytes) - self.at:
            raise GgufError(DAMAGED)
        self.at += size
        return self._bytes[self.at - size : self.at]

    def texts(self, count: int) -> list[str]:
        """Read ``count`` length-prefixed strings.

        A vocabulary has 100,000, so this must be fast.
        """
        data, at, length = self._bytes, self.at, struct.Struct("<Q").unpack_from
        strings = []
        for _ in range(count):
            start = at + 8
            at = start + length(data, at)[0]
            if at > len(data):
                raise GgufError(DAMAGED)
            strings.append(str(data[start:at], "utf-8"))
        self.at = at
        return strings

    def text(self) -> str:
        """Read a length-prefixed string."""
        return self.texts(1)[0]

    def value(self, kind: GGUFValueType) -> Any:
        """Read a metadata value: a scalar, a string or an array of either."""
        if kind == GGUFValueType.STRING:
            return self.text()
        if kind != GGUFValueType.ARRAY:
            return self.numbers(kind, 1)[0].item()
        inner, count = GGUFValueType(self.number("I")), self.number("Q")
        if inner == GGUFValueType.ARRAY:
            raise GgufError("holds arrays of arrays, which no known model has")
        if inner != GGUFValueType.STRING:
            return self.numbers(inner, count)
        return self.texts(count)

    def numbers(self, kind: GGUFValueType, count: int) -> NDArray[Any]:
        """Read ``count`` scalars."""
        form = np.dtype(kind.name.lower()).newbyteorder("<")
        return np.frombuffer(self.take(count * form.itemsize), form)


def _read(cursor: _Cursor) -> GgufFile:
    """Parse a GGUF header: metadata, then the table of tensors. Raises GgufError."""
    if bytes(cursor.take(4)) != MAGIC:
        raise GgufError("is not a GGUF file")
    version = cursor.number("I")
    if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
        raise UnsupportedError("is big-endian, and only little-endian files are read")
    if version not in VERSIONS:
        raise UnsupportedError(f"has version {version} of GGUF, and only 2 and 3 are known")
    num_tensors, num_values = cursor.number("Q"), cursor.number("Q")
    metadata: dict[str, Any] = {}
    for _ in range(num_values):
        key = cursor.text()
        if key in metadata:
            raise GgufError(f"names {printable(key)} twice")
        metadata[key] = cursor.value(GGUFValueType(cursor.number("I")))
    table: dict[str, tuple[Kind, tuple[int, ...], int]] = {}
    for _ in range(num_tensors):
        name = cursor.text()
        if name in table:
            raise GgufError(f"holds the tensor {printable(name)} twice")
        table[name] = _tensor_line(cursor)
    start = cursor.at + -cursor.at % _alignment(metadata)
    tensors = {name: _tensor(cursor.data, start, *line) for name, line in table.items()}
    return GgufFile(metadata, tensors)


def _alignment(metadata: Mapping[str, Any]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    is_power = isinstance(value, int) and 0 < value <= MAX_ALIGNMENT and not value & (value - 1)
    if not is_power:
        raise GgufError(f"gives the alignment {value!r}, which is no power of two")
    return int(value)


def _tensor_line(cursor: _Cursor) -> tuple[Kind, tuple[int, ...], int]:
    """Read type, shape and offset of one tensor."""
    num_dimensions = cursor.number("I")
    if not 1 <= num_dimensions <= MAX_DIMENSIONS:
        raise GgufError(DAMAGED)
    shape = tuple(reversed([cursor.number("Q") for _ in range(num_dimensions)]))
    number = cursor.number("I")
    try:
        kind = Kind(number)
    except ValueError as error:
        raise GgufError(f"holds tensors of an unknown type ({number})") from error
    return kind, shape, cursor.number("Q")


def _tensor(
    data: NDArray[np.uint8],
    start: int,
    kind: Kind,
    shape: tuple[int, ...],
    offset: int,
) -> GgufTensor:
    per_block, block_bytes = GGML_QUANT_SIZES[kind]
    if shape[-1] % per_block:
        raise GgufError(f"holds {kind.name} rows of {shape[-1]} numbers, which it can't")
    row_bytes = shape[-1] // per_block * block_bytes
    size, begin = math.prod(shape[:-1]) * row_bytes, start + offset
    if not size or begin + size > len(data):
        raise GgufError(DAMAGED)
    return GgufTensor(kind, shape, data[begin : begin + size].reshape(-1, row_bytes))


NORMAL, UNUSED = 1, 5
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = (
    _CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _byte_level(*, use_regex: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def _split(pattern: str) -> dict[str, Any]:
    words = {"Regex": pattern}
    split = {"type": "Split", "pattern": words, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, _byte_level(use_regex=False)]}


_GPT2 = _byte_level(use_regex=True)
_DIGITS = {
    "type": "Sequence",
    "pretokenizers": [{"type": "Digits", "individual_digits": True}, _GPT2],
}
_QWEN2, _LLAMA3 = _split(_WORDS.replace("DIGITS", "")), _split(_WORDS.replace("DIGITS", "{1,3}"))
# Source: ggml-org/llama.cpp, src/llama-vocab.cpp, ``regex_exprs`` by the name of the pre-tokenizer.
_CUTS = {
    "gpt-2": _GPT2,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "refact": _DIGITS,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "llama-bpe": _LLAMA3,
}
_NFC = {"qwen2", "deepseek-r1-qwen"}
_WHOLE_WORDS_FIRST = {"llama-bpe"}


def tokenizer_spec(metadata: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of ``tokenizer.json`` and ``tokenizer_config.json``. Raises GgufError.

    Every token that is not plain text (control, unknown, user-defined) is an added token. Tokens
    marked as unused are in neither list.
    """
    kind, cut = (_scalar(metadata, f"tokenizer.ggml.{name}") for name in ("model", "pre"))
    if kind is None:
        raise UnsupportedError("has no tokenizer (tokenizer.ggml.model)")
    if kind != "gpt2":
        raise UnsupportedError(
            f"has a tokenizer of the kind {shown(kind)}, and only gpt2 is supported"
        )
    if cut is None:
        raise UnsupportedError(
            "does not say how its tokenizer cuts text into words (tokenizer.ggml.pre), as files of "
            "old converters"
        )
    if cut not in _CUTS:
        raise UnsupportedError(
            f"has a tokenizer that cuts text as {shown(cut)} does (tokenizer.ggml.pre), and only "
            f"{', '.join(_CUTS)} are supported"
        )
    tokens, merges = _strings(metadata, "tokens"), _strings(metadata, "merges")
    types = metadata.get("tokenizer.ggml.token_type")
    if not isinstance(types, np.ndarray) or {len(types), len(set(tokens))} != {len(tokens)}:
        raise GgufError("has tokens and types of tokens that don't fit")
    listed = list(zip(range(len(tokens)), tokens, types.tolist(), strict=True))
    model = {
        "type": "BPE",
        "vocab": {token: index for index, token, kind in listed if kind == NORMAL},
        "merges": [merge.split(" ") for merge in merges],
        "ignore_merges": cut in _WHOLE_WORDS_FIRST,
    }
    spec = {
        "version": "1.0",
        "added_tokens": [
            {"content": token, "id": index}
            for index, token, kind in listed
            if kind not in (NORMAL, UNUSED)
        ],
        "normalizer": {"type": "NFC"} if cut in _NFC else None,
        "pre_tokenizer": _CUTS[cut],
        "decoder": _GPT2,
        "model": model,
    }
    pad = metadata.get("tokenizer.ggml.padding_token_id")
    config = {
        "pad_token": tokens[pad] if isinstance(pad, int) and 0 <= pad < len(tokens) else None,
        "chat_template": metadata.get("tokenizer.chat_template"),
    }
    return spec, config


def _strings(metadata: Mapping[str, Any], name: str) -> list[str]:
    value = metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(value, list):
        raise GgufError(f"has no list tokenizer.ggml.{name}")
    return value
