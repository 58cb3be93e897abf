"""A tiny GGUF file with random weights, laid out as llama.cpp's converter does, for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import numpy as np
import torch
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize

from tests.tiny_tokenizer import SPECIALS, write_tokenizer

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, INNER = 64, 2, 4, 2, 16, 96
SYSTEM = "You are a small test"
TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\n" + SYSTEM + "<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_PARTS: dict[str, tuple[str, tuple[int, ...]]] = {
    "attn_norm": ("input_layernorm", (HIDDEN,)),
    "attn_q": ("self_attn.q_proj", (HEADS * HEAD_DIM, HIDDEN)),
    "attn_k": ("self_attn.k_proj", (KV_HEADS * HEAD_DIM, HIDDEN)),
    "attn_v": ("self_attn.v_proj", (KV_HEADS * HEAD_DIM, HIDDEN)),
    "attn_q_norm": ("self_attn.q_norm", (HEAD_DIM,)),
    "attn_k_norm": ("self_attn.k_norm", (HEAD_DIM,)),
    "attn_output": ("self_attn.o_proj", (HIDDEN, HEADS * HEAD_DIM)),
    "ffn_norm": ("post_attention_layernorm", (HIDDEN,)),
    "ffn_gate": ("mlp.gate_proj", (INNER, HIDDEN)),
    "ffn_up": ("mlp.up_proj", (INNER, HIDDEN)),
    "ffn_down": ("mlp.down_proj", (HIDDEN, INNER)),
}
"""Name in a GGUF file -> name in transformers, and shape."""


_METADATA: dict[str, Any] = {
    "block_count": LAYERS,
    "context_length": 512,
    "embedding_length": HIDDEN,
    "feed_forward_length": INNER,
    "attention.head_count": HEADS,
    "attention.head_count_kv": KV_HEADS,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 10000.0,
    "rope.dimension_count": HEAD_DIM,
}


def write_gguf(
    path: Path,
    kind: Kind = Kind.Q4_1,
    architecture: str = "llama",
    seed: int = 0,
    is_tied: bool = True,
    divisors: Sequence[float] = (),
    options: Mapping[str, Any] = MappingProxyType({}),
    general: Mapping[str, Any] = MappingProxyType({}),
    **metadata: Any,
) -> dict[str, torch.Tensor]:
    """Write ``path``; the weights in it, named and ordered as in transformers, as fp32.

    kind: of the matrices; embeddings are Q8_0, norms and biases F32. metadata: keys under the
    architecture, dots as ``__``, to add or to replace; None leaves one out. general: other keys, by
    their whole name. divisors: of the rotary frequencies. options: of the writer.
    """
    writer = gguf.GGUFWriter(path, architecture, **options)
    size = _add_tokenizer(writer, path.parent)
    fields = _METADATA | {key.replace("__", "."): item for key, item in metadata.items()}
    named = {f"{architecture}.{key}": item for key, item in fields.items()}
    for name, value in (named | dict(general)).items():
        writer.kv_data[0].pop(name, None)
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, list):
            writer.add_array(name, value)
        elif value is not None:
            writer.add_uint32(name, value)
    shapes = {"token_embd.weight": (size, HIDDEN), "output_norm.weight": (HIDDEN,)}
    if not is_tied:
        shapes["output.weight"] = (size, HIDDEN)
    for index in range(LAYERS):
        for name, (_, shape) in _PARTS.items():
            if architecture == "qwen3" or name[-7:] not in ("_q_norm", "_k_norm"):
                shapes[f"blk.{index}.{name}.weight"] = shape
        if architecture == "qwen2":
            shapes |= {f"blk.{index}.attn_{x}.bias": _PARTS[f"attn_{x}"][1][:1] for x in "qkv"}
    rng = np.random.default_rng(seed)
    expected = {}
    for name, shape in shapes.items():
        weight = (rng.standard_normal(shape) / 4 + (len(shape) == 1)).astype(np.float32)
        stored = Kind.F32 if len(shape) == 1 else Kind.Q8_0 if "token" in name else kind
        packed = quantize(weight, stored)
        dense = torch.from_numpy(dequantize(packed, stored).reshape(shape).astype(np.float32))
        expected[transformers_name(name)] = dense
        if architecture == "llama" and ("attn_q." in name or "attn_k." in name):
            heads = HEADS if "attn_q" in name else KV_HEADS
            packed = packed.reshape(heads, 2, HEAD_DIM // 2, -1).swapaxes(1, 2)
            packed = np.ascontiguousarray(packed).reshape(shape[0], -1)
        writer.add_tensor(name, packed, raw_dtype=stored)
    if divisors:
        writer.add_tensor("rope_freqs.weight", np.array(divisors, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def transformers_name(name: str) -> str:
    outer = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    parts = name.split(".")
    if parts[0] in outer:
        return f"{outer[parts[0]]}.{parts[1]}"
    return f"model.layers.{parts[1]}.{_PARTS[parts[2]][0]}.{parts[3]}"


def _add_tokenizer(writer: gguf.GGUFWriter, folder: Path) -> int:
    """Add the tokenizer of ``write_tokenizer`` and return its size."""
    write_tokenizer(folder / "tokenizer")
    spec = json.loads((folder / "tokenizer" / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = sorted(spec["model"]["vocab"], key=spec["model"]["vocab"].__getitem__)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([control if token in SPECIALS else normal for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in spec["model"]["merges"]])
    writer.add_pad_token_id(tokens.index("<|im_end|>"))
    writer.add_chat_template(TEMPLATE)
    return len(tokens)
