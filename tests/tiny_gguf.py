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
_NAMES = {
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
_SHAPES = {
    "attn_norm": (HIDDEN,),
    "attn_q": (HEADS * HEAD_DIM, HIDDEN),
    "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN),
    "attn_v": (KV_HEADS * HEAD_DIM, HIDDEN),
    "attn_output": (HIDDEN, HEADS * HEAD_DIM),
    "ffn_norm": (HIDDEN,),
    "ffn_gate": (INNER, HIDDEN),
    "ffn_up": (INNER, HIDDEN),
    "ffn_down": (HIDDEN, INNER),
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
    fields = {f"{architecture}.{key.replace('__', '.')}": item for key, item in metadata.items()}
    usual = {
        f"{architecture}.{key.replace('__', '.')}": entry for key, entry in _metadata().items()
    }
    for name, value in (usual | fields | dict(general)).items():
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
        shapes |= {f"blk.{index}.{name}.weight": shape for name, shape in _SHAPES.items()}
        if architecture == "qwen3":
            shapes |= {f"blk.{index}.attn_{x}_norm.weight": (HEAD_DIM,) for x in "qk"}
        if architecture == "qwen2":
            shapes |= {f"blk.{index}.attn_{x}.bias": _SHAPES[f"attn_{x}"][:1] for x in "qkv"}
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
    """blk.0.attn_q.weight -> model.layers.0.self_attn.q_proj.weight"""
    outer = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    parts = name.split(".")
    if parts[0] in outer:
        return f"{outer[parts[0]]}.{parts[1]}"
    return f"model.layers.{parts[1]}.{_NAMES[parts[2]]}.{parts[3]}"


def _metadata() -> dict[str, Any]:
    return {
        "block_count": LAYERS,
        "context_length": 512,
        "embedding_length": HIDDEN,
        "feed_forward_length": INNER,
        "attention__head_count": HEADS,
        "attention__head_count_kv": KV_HEADS,
        "attention__layer_norm_rms_epsilon": 1e-5,
        "rope__freq_base": 10000.0,
        "rope__dimension_count": HEAD_DIM,
    }


def _add_tokenizer(writer: gguf.GGUFWriter, folder: Path) -> int:
    """The tokenizer of ``write_tokenizer``; its size."""
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
