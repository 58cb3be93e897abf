"""Load and run the frozen base model of an adapter: a Llama, Qwen2 or Qwen3 with a tied head.

The caller of ``Backbone.hidden`` supplies the attention. The residual stream and the norms are
float32. Matrix products have the dtype of the weights; bfloat16 is several times as fast as float32
on CPUs with AMX.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mars_runtime.model.attention import frequencies
from mars_runtime.model.config import CheckpointError, ModelConfig
from mars_runtime.model.fetch import download
from mars_runtime.model.gguf import read_gguf
from mars_runtime.model.load import read_config, read_weights
from mars_runtime.model.quantized import GroupedMatrix
from mars_runtime.model.source import resolve
from mars_runtime.text import TextError, Tokenizer, read_spec

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Attention of one layer, supplied by the caller.

(layer, q [N, kv heads, group, d], k [N, kv heads, d], v [N, kv heads, d]) -> [N, heads * d].
"""
Update = Callable[[int, str, Tensor, Tensor], Tensor]
"""Adds the update of an adapter: (layer, part, input, product) -> product with the update."""

LENGTH_MULTIPLE = 8  # on a GPU, a length that is no multiple of 8 makes products many times slower
NUM_PARTS, NUM_COMPARED = 96, 4
"""``greedy`` divides the vocabulary into NUM_PARTS parts; NUM_COMPARED are compared in float32."""


@dataclass(frozen=True, slots=True)
class Base:
    """A base model. weights: name and order as in a transformers checkpoint; not quantised."""

    name: str
    config: ModelConfig
    weights: dict[str, Tensor]
    tokenizer: Tokenizer


def read_base(name_or_path: str) -> Base:
    """Load a base by registry name, folder of transformers or GGUF file into host memory,
    regardless of the default device. Raises CheckpointError.
    """
    source = download(resolve(name_or_path))
    try:
        with torch.device("cpu"):
            config, weights, spec = _read(source.path)
        mask = source.entry.mask_token if source.entry else None
        tokenizer = Tokenizer(*spec, mask=mask, name=str(source.path))
    except (TextError, OSError, ValueError) as error:
        raise CheckpointError(str(error)) from error
    return Base(name_or_path, config, weights, tokenizer)


def _check(config: ModelConfig, path: Path) -> None:
    if not config.tie_word_embeddings:
        raise CheckpointError(
            f"{path} cannot be the base of an adapter. Choose a model with its output head tied "
            "to its embedding, as in most models below 3 B parameters."
        )


def _read(path: Path) -> tuple[ModelConfig, dict[str, Tensor], Any]:
    """Return config, dense weights and the arguments of ``Tokenizer``. Raises CheckpointError."""
    if path.is_file():
        content = read_gguf(path)
        _check(content.config, path)
        weights = {
            name: weight.dense() if isinstance(weight, GroupedMatrix) else weight
            for name, weight in content.weights.items()
        }
        return content.config, weights, (content.tokenizer, content.tokenizer_config)
    _check(read_config(path), path)
    config, stored = read_weights(path)
    return config, dict(stored), read_spec(path)


@dataclass(frozen=True, slots=True)
class BackboneLayer:
    """The weights of one decoder layer.

    - weights: part (qkv, o, gate_up, down) -> [out, in]. qkv and gate_up are joined matrices.
    - head_norms: weights of the norms of query heads and key heads, or None.
    """

    attention_norm: Tensor
    mlp_norm: Tensor
    weights: dict[str, Tensor]
    qkv_bias: Tensor | None
    head_norms: tuple[Tensor, Tensor] | None


class Backbone:
    def __init__(self, base: Base, dtype: torch.dtype, is_compiled: bool = False) -> None:
        """Copy the weights to the default device. is_compiled: see ``Pieces``."""
        self.config = base.config
        device = torch.get_default_device()
        weights = {name: weight.to(device, dtype) for name, weight in base.weights.items()}
        self.pieces = Pieces(is_compiled)
        self.embedding = weights["model.embed_tokens.weight"]
        self.norm = weights["model.norm.weight"].float()
        self.layers = [_layer(weights, f"model.layers.{i}.") for i in range(base.config.num_layers)]
        self._frequencies = frequencies(base.config)

    def rotations(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines, [N, 1, d], for positions [N]."""
        angles = positions[:, None].float() * self._frequencies
        angles = torch.cat([angles, angles], -1)[:, None]
        return angles.cos(), angles.sin()

    def hidden(
        self, x: Tensor, positions: Tensor, attend: Attend, update: Update | None = None
    ) -> Tensor:
        """Run all layers on ``x`` [N, H]; return the float32 residual stream [N, H] before the
        final norm.
        """
        rotation = self.rotations(positions)
        for index, layer in enumerate(self.layers):
            x = self.pieces.add(x, self._attention(index, layer, x, rotation, attend, update))
            x = self.pieces.add(x, self._mlp(index, layer, x, update))
        return x

    def head(self, h: Tensor) -> Tensor:
        """Return logits [N, V] for normed hidden states [N, H], in the dtype of the weights."""
        return linear(h, self.embedding)

    def embed(self, ids: Tensor) -> Tensor:
        return self.embedding[ids].float()

    def normed(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.norm, self.config.rms_norm_eps, torch.float32)

    def greedy(self, x: Tensor) -> Tensor:
        """Return the most probable next tokens [N] for the residual stream [N, H].

        bfloat16 logits cannot distinguish near ties, so the best tokens of the best parts of the
        vocabulary are compared again in float32.
        """
        h = self.normed(x)
        logits = self.head(h)
        if logits.dtype is torch.float32 or logits.shape[-1] % NUM_PARTS:
            return logits.argmax(-1)
        width = logits.shape[-1] // NUM_PARTS
        pieces = logits.view(len(x), NUM_PARTS, width)
        chosen = pieces.amax(-1).topk(NUM_COMPARED).indices
        inside = pieces.gather(1, chosen[..., None].expand(-1, -1, width)).argmax(-1)
        best = chosen * width + inside
        exact = (self.embedding[best].float() @ h[:, :, None])[..., 0]
        return best.gather(1, exact.argmax(-1, keepdim=True))[:, 0]

    def _attention(
        self,
        index: int,
        layer: BackboneLayer,
        x: Tensor,
        rotation: tuple[Tensor, Tensor],
        attend: Attend,
        update: Update | None,
    ) -> Tensor:
        config, rows = self.config, len(x)
        h = self.pieces.norm(x, layer.attention_norm, config.rms_norm_eps, self.embedding.dtype)
        qkv = _product(index, layer, "qkv", h, update)
        heads = (qkv if layer.qkv_bias is None else qkv + layer.qkv_bias).view(
            rows, -1, config.head_dim
        )
        if layer.head_norms is not None:
            heads = norm_heads(heads, *layer.head_norms, config)
        rotated = self.pieces.rotate(heads, *rotation, config.num_kv_heads)
        q, k, v = torch.split(rotated, [config.num_heads, *[config.num_kv_heads] * 2], 1)
        grouped = q.view(rows, config.num_kv_heads, -1, config.head_dim)
        return _product(index, layer, "o", attend(index, grouped, k, v), update)

    def _mlp(self, index: int, layer: BackboneLayer, x: Tensor, update: Update | None) -> Tensor:
        h = self.pieces.norm(x, layer.mlp_norm, self.config.rms_norm_eps, self.embedding.dtype)
        gate_up = _product(index, layer, "gate_up", h, update)
        return _product(index, layer, "down", self.pieces.swiglu(gate_up), update)


def fast_dtype() -> torch.dtype:
    if torch.get_default_device().type == "cuda":
        return torch.bfloat16
    has_bf16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if has_bf16 else torch.float32


def pays_compiling() -> bool:
    """Return whether to compile ``Pieces``: on a CPU with a C++ compiler. On a GPU it would take
    two minutes.
    """
    is_cpu = torch.get_default_device().type == "cpu"
    return is_cpu and any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++")))


def linear(x: Tensor, weight: Tensor) -> Tensor:
    return F.linear(x.to(weight.dtype), weight)


def rms_norm(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    return F.rms_norm(x, weight.shape, weight, eps).to(dtype)


def norm_heads(qkv: Tensor, query: Tensor, key: Tensor, config: ModelConfig) -> Tensor:
    """Apply RMS norm to each query head and key head of ``qkv`` [N, heads, d], in float32."""
    q, k, v = torch.split(qkv, [config.num_heads, *[config.num_kv_heads] * 2], 1)
    eps = config.rms_norm_eps
    normed = [rms_norm(x.float(), w, eps, qkv.dtype) for x, w in ((q, query), (k, key))]
    return torch.cat([*normed, v], 1)


def rotate(qkv: Tensor, cos: Tensor, sin: Tensor, kv_heads: int) -> Tensor:
    """Apply rotary embedding to ``qkv`` [N, heads, d] in float32, except to the last ``kv_heads``
    heads: values.
    """
    split = qkv.shape[1] - kv_heads
    half = qkv.shape[2] // 2
    y = qkv[:, :split].float()
    turned = torch.cat([-y[..., half:], y[..., :half]], -1)
    return torch.cat([(y * cos + turned * sin).to(qkv.dtype), qkv[:, split:]], 1)


def swiglu(gate_up: Tensor) -> Tensor:
    """Return silu(gate) * up. gate_up: [N, 2 I], gate first."""
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


def add(x: Tensor, y: Tensor) -> Tensor:
    return x + y


def joint_softmax(
    scores: Tensor, own: Tensor, unseen: Tensor, own_unseen: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute one softmax over two sets of keys, [..., T] and [..., M]; return the weights of both.
    unseen, own_unseen: True for keys that must be ignored.
    """
    width, masks = scores.shape[-1], own.shape[-1]
    parts = [scores.masked_fill(unseen, -math.inf), own.masked_fill(own_unseen, -math.inf)]
    if masks % LENGTH_MULTIPLE:
        missing = (*own.shape[:-1], -masks % LENGTH_MULTIPLE)
        parts.append(own.new_full((1,), -math.inf).expand(missing))
    weights = torch.softmax(torch.cat(parts, -1), -1)
    return weights[..., :width], weights[..., width : width + masks]


class Pieces:
    """The functions between the matrix products of a layer, compiled if ``is_compiled``: on a CPU
    with two cores they otherwise take longer than the matrix products.
    """

    def __init__(self, is_compiled: bool) -> None:
        def piece(function: Callable[..., Any]) -> Callable[..., Any]:
            return torch.compile(function, dynamic=True) if is_compiled else function

        self.norm, self.rotate = piece(rms_norm), piece(rotate)
        self.swiglu, self.add = piece(swiglu), piece(add)
        self.joint_softmax = piece(joint_softmax)


def _product(
    index: int, layer: BackboneLayer, part: str, x: Tensor, update: Update | None
) -> Tensor:
    y = linear(x, layer.weights[part])
    return y if update is None else update(index, part, x, y)


def _layer(weights: dict[str, Tensor], prefix: str) -> BackboneLayer:
    def cat(names: Sequence[str], kind: str = "weight") -> Tensor:
        return torch.cat([weights[f"{prefix}{name}.{kind}"] for name in names])

    projections = [f"self_attn.{n}_proj" for n in "qkv"]
    norms = [weights.get(f"{prefix}self_attn.{n}_norm.weight") for n in "qk"]
    return BackboneLayer(
        attention_norm=weights[f"{prefix}input_layernorm.weight"].float(),
        mlp_norm=weights[f"{prefix}post_attention_layernorm.weight"].float(),
        weights={
            "qkv": cat(projections),
            "o": cat(["self_attn.o_proj"]),
            "gate_up": cat(["mlp.gate_proj", "mlp.up_proj"]),
            "down": cat(["mlp.down_proj"]),
        },
        qkv_bias=cat(projections, "bias") if f"{prefix}{projections[0]}.bias" in weights else None,
        head_norms=None
        if norms[0] is None or norms[1] is None
        else (norms[0].float(), norms[1].float()),
    )
