"""Read a checkpoint from a GGUF file (ggml-org/ggml, docs/gguf.md), with transformers' names.

Metadata that would change the computation is rejected, and so is a pre-tokenizer that is not listed
here, because its token ids would silently be wrong. The reader of the gguf package takes seconds
for a vocabulary and never ends for some damaged lengths, so this module parses the header itself.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
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
    differing_names,
    expected_shape,
    printable,
)
from mars_runtime.model.files import GGUF_MAGIC
from mars_runtime.model.quantized import GROUP_SIZE, GroupedMatrix
from mars_runtime.text import BOS_IN_CHATS, EOS_IDS

ARCHITECTURES = ("llama", "qwen2", "qwen3")
MAX_POSITIONS = 1 << 20
VERSIONS = (2, 3)
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
# Metadata keys, without the prefix that names the architecture: those that are read or have no
# effect, and those without effect if their value is 1. Any other has none if it is 0.
KNOWN = {
    *("block_count", "context_length", "embedding_length", "feed_forward_length"),
    *("attention.head_count", "attention.head_count_kv", "attention.key_length"),
    *("rope.dimension_count", "rope.scaling.type", "rope.freq_base"),
    *("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon", "vocab_size"),
    *("tensor_data_layout", "pooling_type", "decoder_start_token_id", "rope.scaling.finetuned"),
    "rope.scaling.original_context_length",
}
UNIT_SCALES = {
    *("logit_scale", "residual_scale", "embedding_scale", "rope.scaling.factor"),
    *("rope.scaling.attn_factor", "rope.scale_linear"),
}
_TENSOR_TYPES = {Kind.F32: torch.float32, Kind.F16: torch.float16, Kind.BF16: torch.bfloat16}


@dataclass(frozen=True, slots=True)
class GgufCheckpoint:
    """tokenizer, tokenizer_config: the arguments of ``Tokenizer``."""

    config: ModelConfig
    weights: Mapping[str, Tensor | GroupedMatrix]
    tokenizer: Mapping[str, Any]
    tokenizer_config: Mapping[str, Any]


class GgufError(ValueError):
    """The message continues a sentence after the file's name."""

    advice = "fetch it again or choose another file"


class UnsupportedError(GgufError):
    advice = "choose another file"


def read_gguf(path: Path) -> GgufCheckpoint:
    """Raises CheckpointError."""
    try:
        file = GgufFile.open(path)
        config = _config(file)
        return GgufCheckpoint(config, _weights(file, config), *tokenizer_spec(file.metadata))
    except GgufError as error:
        raise CheckpointError(f"{path} {error}: {error.advice}.") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}).") from error


def _config(file: GgufFile) -> ModelConfig:
    values, tensors = file.metadata, file.tensors
    kind = _value(values, "general.architecture", str)
    if kind not in ARCHITECTURES:
        raise UnsupportedError(
            f"contains a model of type {shown(kind)}, but only {', '.join(ARCHITECTURES)} are "
            "supported"
        )
    for key, wanted in (
        ("general.type", ("model",)),
        ("split.count", (0, 1)),
        (f"{kind}.rope.scaling.type", ("none",)),
    ):
        value = values.get(key, wanted[-1])
        if not isinstance(value, (int, str)) or value not in wanted:
            raise UnsupportedError(f"has {key} = {shown(value)}, which is not supported")

    def number(name: str, default: int | None = None) -> int:
        return int(_value(values, f"{kind}.{name}", int, default))

    hidden_size, num_heads = number("embedding_length"), number("attention.head_count")
    if "token_embd.weight" not in tensors:
        raise GgufError("lacks the tensor token_embd.weight")
    head_dim = number("attention.key_length", hidden_size // num_heads)
    config: dict[str, Any] = {
        "model_type": kind,
        "vocab_size": tensors["token_embd.weight"].shape[0],
        "hidden_size": hidden_size,
        # Valid files have at least one tensor per layer, so the limit affects only damaged files.
        "num_hidden_layers": min(number("block_count"), len(tensors)),
        "num_attention_heads": num_heads,
        "num_key_value_heads": number("attention.head_count_kv", num_heads),
        "head_dim": head_dim,
        "intermediate_size": number("feed_forward_length"),
        "max_position_embeddings": min(number("context_length"), MAX_POSITIONS),
        "rms_norm_eps": _value(values, f"{kind}.attention.layer_norm_rms_epsilon", float),
        "rope_theta": _value(values, f"{kind}.rope.freq_base", float, 10000.0),
        "tie_word_embeddings": "output.weight" not in tensors,
    }
    rotary_size = number("rope.dimension_count", head_dim)
    if rotary_size != head_dim:
        raise UnsupportedError(
            f"has {kind}.rope.dimension_count = {rotary_size}, but only the head size, {head_dim}, "
            "is supported"
        )
    _reject_unsupported_keys(values, kind, head_dim, config["max_position_embeddings"])
    divisors = _divisors(tensors, head_dim)
    try:
        return replace(ModelConfig.from_dict(config), rope_scaling=divisors)
    except CheckpointError as error:
        reason = str(error).partition(":")[0].replace("config.json", "its header")
        raise GgufError(f"is damaged ({reason})") from error


def _value(values: Mapping[str, Any], key: str, kind: type, default: Any = None) -> Any:
    """Numbers must be positive, and a ``float`` may be whole."""
    value = values.get(key, default)
    if value is None:
        raise GgufError(f"lacks {key}")
    kinds = (int, float) if kind is float else kind
    is_positive = kind is str or (isinstance(value, (int, float)) and value > 0)
    if not isinstance(value, kinds) or isinstance(value, bool) or not is_positive:
        what = {str: "a text", int: "a positive whole number", float: "a positive number"}[kind]
        raise GgufError(f"has {key} = {shown(value)}, which must be {what}")
    return value


def _reject_unsupported_keys(
    values: Mapping[str, Any], kind: str, head_dim: int, max_positions: int
) -> None:
    neutral: dict[str, Callable[[Any], bool]] = {
        "attention.causal": bool,
        "attention.value_length": lambda value: bool(value == head_dim),
        "attention.sliding_window": lambda value: bool(value >= max_positions or value == 0),
        "attention.scale": lambda value: (
            value == 0 or math.isclose(value, head_dim**-0.5, rel_tol=1e-5)
        ),
        **dict.fromkeys(UNIT_SCALES, lambda value: value in (0, 1)),
    }
    for key, value in values.items():
        name = key.removeprefix(f"{kind}.")
        if name == key or name in KNOWN:
            continue
        has_no_effect = neutral.get(name, lambda value: bool(value == 0))
        if not isinstance(value, (bool, int, float)) or not has_no_effect(value):
            raise UnsupportedError(f"has {printable(key)} = {shown(value)}, which is not supported")


def _divisors(tensors: Mapping[str, GgufTensor], head_dim: int) -> tuple[float, ...] | None:
    """Return the divisors of the rotary frequencies, in files of Llama 3.1 and later."""
    tensor = tensors.get(DIVISORS)
    if tensor is None:
        return None
    if tensor.type != Kind.F32 or tensor.shape != (head_dim // 2,):
        raise GgufError(
            f"contains {DIVISORS} as {tensor.type.name} of shape {tuple(tensor.shape)}, which must "
            f"be F32 of shape {(head_dim // 2,)}"
        )
    divisors = np.array(tensor.data).view("<f4").reshape(-1)
    if not (np.isfinite(divisors) & (divisors > 0)).all():
        raise GgufError(f"contains numbers in {DIVISORS} that are not positive and finite")
    return tuple(divisors.tolist())


def _weights(file: GgufFile, config: ModelConfig) -> dict[str, Tensor | GroupedMatrix]:
    names = {_transformers_name(name): name for name in file.tensors if name != DIVISORS}
    if (differing := differing_names(names.keys(), config)) is not None:
        raise GgufError(f"has {differing[0]}")
    weights: dict[str, Tensor | GroupedMatrix] = {}
    for name, stored in names.items():
        tensor = file.tensors[stored]
        expected = expected_shape(name, config)
        if tensor.shape != expected:
            raise GgufError(
                f"contains {printable(stored)} of shape {tuple(tensor.shape)}, but its header "
                f"requires {expected}"
            )
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
    if tensor.type in _TENSOR_TYPES:
        flat = torch.from_numpy(np.array(tensor.data).reshape(-1))
        return flat.view(_TENSOR_TYPES[tensor.type]).view(tensor.shape)
    if len(tensor.shape) == 2 and tensor.type in (Kind.Q4_0, Kind.Q4_1, Kind.Q8_0):
        return _grouped(tensor)
    try:
        dense = dequantize(tensor.data, tensor.type)
    except NotImplementedError as error:
        fault = f"contains weights of type {tensor.type.name}, which is not supported"
        raise UnsupportedError(fault) from error
    return torch.from_numpy(np.ascontiguousarray(dense, np.float32)).view(tensor.shape)


def _grouped(tensor: GgufTensor) -> GroupedMatrix:
    """For each 32 weights an fp16 scale, in Q4_1 an fp16 minimum, then the integers (ggml-common.h:
    block_q4_0, block_q4_1, block_q8_0). Of 16 bytes with 4-bit integers, the low halves are the
    first 16.
    """
    rows, columns = tensor.shape
    num_halves = 2 if tensor.type == Kind.Q4_1 else 1
    blocks = tensor.data.reshape(rows, columns // GROUP_SIZE, -1)
    halves = np.array(blocks[:, :, : 2 * num_halves]).view("<f2").astype(np.float32)
    scales = torch.from_numpy(halves[:, :, 0].copy())
    packed = blocks[:, :, 2 * num_halves :]
    if tensor.type == Kind.Q8_0:
        values = torch.from_numpy(np.array(packed).view(np.int8).reshape(rows, columns))
        return GroupedMatrix(values, scales, None, 8)
    minimums = torch.from_numpy(halves[:, :, 1].copy()) if num_halves == 2 else -8 * scales
    integers = np.empty((rows, columns // GROUP_SIZE, 2, GROUP_SIZE // 2), np.uint8)
    np.bitwise_and(packed, 15, out=integers[:, :, 0])
    np.right_shift(packed, 4, out=integers[:, :, 1])
    values = torch.from_numpy(integers.reshape(rows, columns))
    return GroupedMatrix(values, scales, minimums, 4)


def _in_halves(tensor: GgufTensor, num_heads: int) -> GgufTensor:
    """Invert ``LlamaModel.permute`` of llama.cpp's convert_hf_to_gguf.py."""
    rows, row_bytes = tensor.data.shape
    pairs = tensor.data.reshape(num_heads, rows // num_heads // 2, 2, row_bytes)
    return replace(tensor, data=pairs.swapaxes(1, 2).reshape(rows, row_bytes))


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """shape: in PyTorch's order. data: packed, uint8 [rows, bytes per row]."""

    type: Kind
    shape: tuple[int, ...]
    data: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class GgufFile:
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]

    @classmethod
    def open(cls, path: Path) -> GgufFile:
        """Raises GgufError or OSError."""
        if path.stat().st_size < 24:
            raise GgufError("is too short to be a GGUF file")
        data: NDArray[np.uint8] = np.memmap(path, dtype=np.uint8, mode="r")
        try:
            return _read_header(_Cursor(data))
        except GgufError:
            raise
        except (struct.error, ValueError) as error:
            raise GgufError(DAMAGED) from error


class _Cursor:
    """Raises GgufError, struct.error or ValueError past the end."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self.data = data
        self._bytes = memoryview(cast(Any, data))
        self.at = 0

    def number(self, form: str) -> Any:
        (value,) = struct.unpack_from(f"<{form}", self._bytes, self.at)
        self.at += struct.calcsize(f"<{form}")
        return value

    def take(self, size: int) -> memoryview:
        if size > len(self._bytes) - self.at:
            raise GgufError(DAMAGED)
        self.at += size
        return self._bytes[self.at - size : self.at]

    def texts(self, count: int) -> list[str]:
        # Local variables for speed: a vocabulary has 100,000 strings.
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

    def value(self, kind: GGUFValueType) -> Any:
        if kind == GGUFValueType.STRING:
            return self.texts(1)[0]
        if kind != GGUFValueType.ARRAY:
            return self.numbers(kind, 1)[0].item()
        inner, count = GGUFValueType(self.number("I")), self.number("Q")
        if inner == GGUFValueType.ARRAY:
            raise GgufError("contains an array of arrays, which no known model uses")
        if inner != GGUFValueType.STRING:
            return self.numbers(inner, count)
        return self.texts(count)

    def numbers(self, kind: GGUFValueType, count: int) -> NDArray[Any]:
        form = np.dtype(kind.name.lower()).newbyteorder("<")
        return np.frombuffer(self.take(count * form.itemsize), form)


def _read_header(cursor: _Cursor) -> GgufFile:
    if bytes(cursor.take(4)) != GGUF_MAGIC:
        raise GgufError("is not a GGUF file")
    version = cursor.number("I")
    if version not in VERSIONS:
        raise UnsupportedError(
            f"has GGUF version {version} or is big-endian; only little-endian files of versions 2 "
            "and 3 are supported"
        )
    num_tensors, num_values = cursor.number("Q"), cursor.number("Q")
    metadata: dict[str, Any] = {}
    for _ in range(num_values):
        (key,) = cursor.texts(1)
        if key in metadata:
            raise GgufError(f"contains the key {printable(key)} twice")
        metadata[key] = cursor.value(GGUFValueType(cursor.number("I")))
    table: dict[str, tuple[Kind, tuple[int, ...], int]] = {}
    for _ in range(num_tensors):
        (name,) = cursor.texts(1)
        if name in table:
            raise GgufError(f"contains the tensor {printable(name)} twice")
        table[name] = _tensor_line(cursor)
    start = cursor.at + -cursor.at % _alignment(metadata)
    tensors = {name: _tensor(cursor.data, start, *line) for name, line in table.items()}
    return GgufFile(metadata, tensors)


def _alignment(metadata: Mapping[str, Any]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    is_power = isinstance(value, int) and 0 < value <= MAX_ALIGNMENT and not value & (value - 1)
    if not is_power:
        raise GgufError(
            f"has general.alignment = {shown(value)}, which must be a power of two up to "
            f"{MAX_ALIGNMENT}"
        )
    return int(value)


def _tensor_line(cursor: _Cursor) -> tuple[Kind, tuple[int, ...], int]:
    num_dimensions = cursor.number("I")
    if not 1 <= num_dimensions <= MAX_DIMENSIONS:
        raise GgufError(DAMAGED)
    shape = tuple(reversed([cursor.number("Q") for _ in range(num_dimensions)]))
    number = cursor.number("I")
    try:
        kind = Kind(number)
    except ValueError as error:
        raise GgufError(f"contains a tensor of unknown type {number}") from error
    return kind, shape, cursor.number("Q")


def _tensor(
    data: NDArray[np.uint8], start: int, kind: Kind, shape: tuple[int, ...], offset: int
) -> GgufTensor:
    per_block, block_bytes = GGML_QUANT_SIZES[kind]
    if shape[-1] % per_block:
        raise GgufError(
            f"contains rows of {shape[-1]} {kind.name} numbers, which must be a multiple of "
            f"{per_block}"
        )
    row_bytes = shape[-1] // per_block * block_bytes
    size, begin = math.prod(shape[:-1]) * row_bytes, start + offset
    if not size or begin + size > len(data):
        raise GgufError(DAMAGED)
    return GgufTensor(kind, shape, data[begin : begin + size].reshape(-1, row_bytes))


NORMAL, USER_DEFINED, UNUSED = 1, 4, 5
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def _split(pattern: str) -> dict[str, Any]:
    words = {"Regex": pattern}
    split = {"type": "Split", "pattern": words, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, {**_GPT2, "use_regex": False}]}


_DIGITS = {
    "type": "Sequence",
    "pretokenizers": [{"type": "Digits", "individual_digits": True}, _GPT2],
}
_QWEN2, _LLAMA3 = _split(_WORDS.replace("DIGITS", "")), _split(_WORDS.replace("DIGITS", "{1,3}"))
# Pre-tokenizers in the format of tokenizer.json, by the value of tokenizer.ggml.pre.
# Source: ggml-org/llama.cpp, src/llama-vocab.cpp, ``regex_exprs``.
_PRE_TOKENIZERS = {
    "gpt-2": _GPT2,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "refact": _DIGITS,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "llama-bpe": _LLAMA3,
}
_NFC = {"qwen2", "deepseek-r1-qwen"}
_LLAMA = {"llama-bpe"}
"""These look for whole words first, and begin texts with BOS unless a key forbids."""
_ENDS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>")
"""Control tokens that end a turn in any file that has them (llama-vocab.cpp, special_eog_ids)."""
_SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}


def tokenizer_spec(metadata: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Every token that is not plain text is an added token; unused ones are left out."""

    def value(name: str, default: Any = None) -> Any:
        return metadata.get(f"tokenizer.ggml.{name}", default)

    for name, known in (("model", ("gpt2",)), ("pre", _PRE_TOKENIZERS)):
        if value(name) is None:
            raise UnsupportedError(f"lacks tokenizer.ggml.{name}, which names its tokenizer")
        if not isinstance(value(name), str) or value(name) not in known:
            raise UnsupportedError(
                f"has tokenizer.ggml.{name} = {shown(value(name))}, but only {', '.join(known)} "
                "can be read"
            )
    tokens, merges, types = map(value, ("tokens", "merges", "token_type"))
    is_complete = isinstance(tokens, list) and isinstance(merges, list)
    if not is_complete or {len(set(tokens)), np.size(types)} != {len(tokens)}:
        raise GgufError(
            "must have merges (tokenizer.ggml.merges), distinct tokens (tokenizer.ggml.tokens) and "
            "one type for each of them (tokenizer.ggml.token_type)"
        )
    pre, ids = value("pre"), {token: index for index, token in enumerate(tokens)}
    kinds = dict(zip(tokens, np.array(types).tolist(), strict=True))
    control = {token: kind for token, kind in kinds.items() if kind not in (NORMAL, UNUSED)}
    special = {
        f"{key}_token": tokens[index]
        for key, name in _SPECIAL.items()
        if (index := value(f"{name}_token_id")) in range(len(tokens))
    }
    begin = special.get("bos_token") if value("add_bos_token", pre in _LLAMA) else None
    spec = {
        "version": "1.0",
        "added_tokens": [
            {"content": token, "id": ids[token], "special": kind != USER_DEFINED}
            for token, kind in control.items()
        ],
        "normalizer": {"type": "NFC"} if pre in _NFC else None,
        "pre_tokenizer": _PRE_TOKENIZERS[pre],
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": begin}}],
        },
        "decoder": _GPT2,
        "model": {
            "type": "BPE",
            "vocab": {token: ids[token] for token, kind in kinds.items() if kind == NORMAL},
            "merges": [merge.split(" ") for merge in merges],
            "ignore_merges": pre in _LLAMA,
        },
    }
    ends = [value(f"{name}_token_id") for name in ("eos", "eot", "eom")]
    config = {
        **special,
        "chat_template": metadata.get("tokenizer.chat_template"),
        BOS_IN_CHATS: True,
        EOS_IDS: [*ends, *(ids[end] for end in _ENDS if end in control)],
    }
    return spec, config
