"""A checkpoint in one GGUF file: shape, weights and tokenizer, named as transformers names them.

Nothing in the file is run, its chat template least of all. Knows the container (``gguf_file.py``)
and the two architectures that ``qwen2.py`` computes; knows no decoding, and nothing of where files
come from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import dequantize
from numpy.typing import NDArray
from torch import Tensor

from mars_runtime.model.config import CheckpointError, ModelConfig, expected_names, expected_shape
from mars_runtime.model.gguf_file import GgufError, GgufFile, GgufTensor
from mars_runtime.model.gguf_tokenizer import tokenizer_spec
from mars_runtime.model.grouped import GROUP, GroupedMatrix

ARCHITECTURES = ("llama", "qwen2")
MAX_POSITIONS = 1 << 20
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
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TENSOR_TYPES = {Kind.F32: torch.float32, Kind.F16: torch.float16, Kind.BF16: torch.bfloat16}


@dataclass(frozen=True, slots=True)
class GgufCheckpoint:
    """What a GGUF file holds.

    weights: named and ordered as in a transformers checkpoint; Q4_0, Q4_1 and Q8_0 as they are.
    tokenizer, tokenizer_config: in the form of the files ``Tokenizer.from_spec`` knows, the chat
    template among them, which is never run.
    """

    config: ModelConfig
    weights: Mapping[str, Tensor | GroupedMatrix]
    tokenizer: Mapping[str, Any]
    tokenizer_config: Mapping[str, Any]


def read_gguf(path: Path) -> GgufCheckpoint:
    """Read a checkpoint of type llama or qwen2. Raises CheckpointError, one sentence."""
    try:
        file = GgufFile.open(path)
        config = _config(file)
        spec, spec_config = tokenizer_spec(file.metadata)
        return GgufCheckpoint(config, _weights(file, config), spec, spec_config)
    except GgufError as error:
        raise CheckpointError(f"{path} {error}: fetch it again or choose another file.") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}).") from error


def _config(file: GgufFile) -> ModelConfig:
    values = file.metadata
    kind = str(values.get("general.architecture"))
    if kind not in ARCHITECTURES:
        raise GgufError(f"holds a model of type {kind!r}, and only llama and qwen2 are supported")
    scaling = values.get(f"{kind}.rope.scaling.type", "none")
    if str(scaling) != "none" or "rope_freqs.weight" in file.tensors:
        raise GgufError("stretches its positions (rope scaling), which is not supported")
    hidden_size = _number(values, f"{kind}.embedding_length")
    num_heads = _number(values, f"{kind}.attention.head_count")
    vocabulary = file.tensors.get("token_embd.weight")
    if vocabulary is None:
        raise GgufError("has no tensor token_embd.weight")
    config: dict[str, Any] = {
        "model_type": kind,
        "vocab_size": vocabulary.shape[0],
        "hidden_size": hidden_size,
        # No more layers than tensors, so that no damaged number makes a long list of names.
        "num_hidden_layers": min(_number(values, f"{kind}.block_count"), len(file.tensors)),
        "num_attention_heads": num_heads,
        "num_key_value_heads": _number(values, f"{kind}.attention.head_count_kv", num_heads),
        "head_dim": _number(values, f"{kind}.attention.key_length", hidden_size // num_heads),
        "intermediate_size": _number(values, f"{kind}.feed_forward_length"),
        "max_position_embeddings": min(_number(values, f"{kind}.context_length"), MAX_POSITIONS),
        "rms_norm_eps": values.get(f"{kind}.attention.layer_norm_rms_epsilon"),
        "rope_theta": values.get(f"{kind}.rope.freq_base"),
        "tie_word_embeddings": "output.weight" not in file.tensors,
    }
    turned = _number(values, f"{kind}.rope.dimension_count", config["head_dim"])
    if turned != config["head_dim"]:
        raise GgufError(f"turns {turned} of {config['head_dim']} numbers a head by position")
    try:
        return ModelConfig.from_dict(config)
    except CheckpointError as error:
        what = str(error).partition(":")[0].replace("config.json", "its header")
        raise GgufError(f"is damaged, since {what}") from error


def _number(values: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = values.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise GgufError(f"gives {key} as {value!r}, which must be a positive whole number")
    return value


def _weights(file: GgufFile, config: ModelConfig) -> dict[str, Tensor | GroupedMatrix]:
    names = {_transformers_name(name): name for name in file.tensors}
    for wrong, what in (
        (expected_names(config) - names.keys(), "lacks"),
        (names.keys() - expected_names(config), "has unknown"),
    ):
        if wrong:
            raise GgufError(f"{what} weights ({len(wrong)}, {min(wrong)} the first)")
    found: dict[str, Tensor | GroupedMatrix] = {}
    for name, stored in names.items():
        tensor = file.tensors[stored]
        if tensor.shape != expected_shape(name, config):
            raise GgufError(f"holds {stored} in the shape {tensor.shape}, which doesn't fit")
        heads = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads}
        num_heads = heads.get(name.rsplit(".", 2)[-2]) if config.model_type == "llama" else None
        found[name] = _unpack(_in_halves(tensor, num_heads) if num_heads else tensor)
    return found


def _transformers_name(name: str) -> str:
    if name in _OUTER:
        return _OUTER[name]
    match = re.fullmatch(r"blk\.(\d{1,5})\.(\w+)\.(weight|bias)", name, re.ASCII)
    if match is None or match[2] not in _PARTS:
        return name
    return f"model.layers.{int(match[1])}.{_PARTS[match[2]]}.{match[3]}"


def _unpack(tensor: GgufTensor) -> Tensor | GroupedMatrix:
    """Exactly what is stored; types that nothing here computes with become fp32."""
    if tensor.type in _TENSOR_TYPES:
        flat = torch.from_numpy(np.array(tensor.data).reshape(-1))
        return flat.view(_TENSOR_TYPES[tensor.type]).view(tensor.shape)
    if len(tensor.shape) == 2 and tensor.type in (Kind.Q4_0, Kind.Q4_1, Kind.Q8_0):
        return _grouped(tensor)
    try:
        dense = dequantize(tensor.data, tensor.type)
    except NotImplementedError as error:
        raise GgufError(f"holds weights of type {tensor.type.name}, which can't be read") from error
    return torch.from_numpy(np.ascontiguousarray(dense, np.float32)).view(tensor.shape)


def _grouped(tensor: GgufTensor) -> GroupedMatrix:
    """Blocks of 32: a scale (and a minimum) in fp16, then the whole numbers.

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
    """The low halves of a block's 16 bytes are its first 16 numbers, the high halves the rest."""
    whole = np.empty((rows, columns // GROUP, 2, GROUP // 2), np.uint8)
    np.bitwise_and(packed, 15, out=whole[:, :, 0])
    np.right_shift(packed, 4, out=whole[:, :, 1])
    return whole.reshape(rows, columns)


def _in_halves(tensor: GgufTensor, num_heads: int) -> GgufTensor:
    """Llama's queries or keys: the rows that turn together lie side by side, here in two halves.

    Source: ggml-org/llama.cpp, convert_hf_to_gguf.py, ``LlamaModel.permute``, backwards.
    """
    rows, row_bytes = tensor.data.shape
    pairs = tensor.data.reshape(num_heads, rows // num_heads // 2, 2, row_bytes)
    return replace(tensor, data=pairs.swapaxes(1, 2).reshape(rows, row_bytes))
