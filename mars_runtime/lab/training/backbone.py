"""The frozen base that an adapter is trained for: a Llama, Qwen2 or Qwen3 with a tied head.

``read_base`` reads it by its name in the registry, from a folder in transformers' layout or from a
GGUF file. ``Backbone`` runs its layers on rows of hidden states; the caller's ``Attend`` decides
what each row attends to. The residual stream and the norms are float32; the products have the dtype
of the weights, and bfloat16 is several times as fast on CPUs with AMX.
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
from mars_runtime.model.fetch import resolve_checkpoint
from mars_runtime.model.gguf import read_gguf
from mars_runtime.model.load import read_config, read_weights
from mars_runtime.model.quantized import GroupedMatrix
from mars_runtime.text import TextError, Tokenizer, read_spec

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [N, kv heads, group, d], k [N, kv heads, d], v) -> [N, heads * d]."""
Update = Callable[[int, str, Tensor, Tensor], Tensor]
"""(layer, part, input of the product, product) -> the product with what an adapter adds."""

ALIGNED = 8  # products of rows of other lengths are many times slower on a GPU
PIECES, COMPARED = 96, 4
"""Parts of the vocabulary, and how many of them can hold the best token after rounding."""


@dataclass(frozen=True, slots=True)
class Base:
    """A base model. weights: dense, named and ordered as in a checkpoint of transformers."""

    name: str
    config: ModelConfig
    weights: dict[str, Tensor]
    tokenizer: Tokenizer


def read_base(name_or_path: str) -> Base:
    """Read a base into host memory, regardless of the default device. Raises CheckpointError."""
    files = resolve_checkpoint(name_or_path)
    try:
        with torch.device("cpu"):
            config, weights, spec = _read(files.path)
        mask = files.entry.mask_token if files.entry else None
        tokenizer = Tokenizer.from_spec(*spec, mask=mask, name=str(files.path))
    except (TextError, OSError, ValueError) as error:
        raise CheckpointError(str(error)) from error
    return Base(name_or_path, config, weights, tokenizer)


def _check(config: ModelConfig, path: Path) -> None:
    """Raise CheckpointError if adapters cannot be trained for this kind of model."""
    if not config.tie_word_embeddings:
        raise CheckpointError(
            f"{path} cannot be the base of an adapter. Choose a model with its output head tied "
            "to its embedding, as in most models below 3 B parameters."
        )


def _read(path: Path) -> tuple[ModelConfig, dict[str, Tensor], Any]:
    """Return the shape, the dense weights, and what the tokenizer is made from. Raises
    CheckpointError."""
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
    """One decoder layer; ``weights`` [out, in] by part, qkv and gate_up joined in this order.

    qkv_bias: [out], or None. head_norms: those of a query's and of a key's head, or None.
    """

    attention_norm: Tensor
    mlp_norm: Tensor
    weights: dict[str, Tensor]
    qkv_bias: Tensor | None
    head_norms: tuple[Tensor, Tensor] | None


class Backbone:
    """A base on the default device; ``hidden`` runs its layers."""

    def __init__(self, base: Base, dtype: torch.dtype, is_compiled: bool = False) -> None:
        """is_compiled: whether the functions between the products are compiled."""
        self.config = base.config
        device = torch.get_default_device()
        weights = {name: weight.to(device, dtype) for name, weight in base.weights.items()}
        self.pieces = Pieces(is_compiled)
        self.embedding = weights["model.embed_tokens.weight"]
        self.norm = weights["model.norm.weight"].float()
        self.layers = [_layer(weights, f"model.layers.{i}.") for i in range(base.config.num_layers)]
        self._frequencies = frequencies(base.config)

    def rotations(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines [N, 1, d] for positions [N]."""
        angles = positions[:, None].float() * self._frequencies
        angles = torch.cat([angles, angles], -1)[:, None]
        return angles.cos(), angles.sin()

    def hidden(
        self, x: Tensor, positions: Tensor, attend: Attend, update: Update | None = None
    ) -> Tensor:
        """Return the residual stream [N, H] (float32, before the final norm) of embedded rows."""
        turn = self.rotations(positions)
        for index, layer in enumerate(self.layers):
            x = self.pieces.add(x, self._attention(index, layer, x, turn, attend, update))
            x = self.pieces.add(x, self._mlp(index, layer, x, update))
        return x

    def head(self, h: Tensor) -> Tensor:
        """Return logits [N, V], in the dtype of the weights, for normed hidden states [N, H]."""
        return linear(h, self.embedding)

    def embed(self, ids: Tensor) -> Tensor:
        """Return the embeddings [N, H], float32, of ids [N]."""
        return self.embedding[ids].float()

    def normed(self, x: Tensor) -> Tensor:
        """Apply the final norm; return [N, H] float32."""
        return rms_norm(x, self.norm, self.config.rms_norm_eps, torch.float32)

    def greedy(self, x: Tensor) -> Tensor:
        """Return the best next tokens [N] for the residual stream [N, H].

        Products in bfloat16 cannot distinguish near ties, so the best token of each of the best
        parts of the vocabulary is compared again in float32.
        """
        h = self.normed(x)
        logits = self.head(h)
        if logits.dtype is torch.float32 or logits.shape[-1] % PIECES:
            return logits.argmax(-1)
        width = logits.shape[-1] // PIECES
        pieces = logits.view(len(x), PIECES, width)
        chosen = pieces.amax(-1).topk(COMPARED).indices
        inside = pieces.gather(1, chosen[..., None].expand(-1, -1, width)).argmax(-1)
        best = chosen * width + inside
        exact = (self.embedding[best].float() @ h[:, :, None])[..., 0]
        return best.gather(1, exact.argmax(-1, keepdim=True))[:, 0]

    def _attention(
        self,
        index: int,
        layer: BackboneLayer,
        x: Tensor,
        turn: tuple[Tensor, Tensor],
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
        turned = self.pieces.rotate(heads, *turn, config.num_kv_heads)
        q, k, v = torch.split(turned, [config.num_heads, *[config.num_kv_heads] * 2], 1)
        grouped = q.view(rows, config.num_kv_heads, -1, config.head_dim)
        return _product(index, layer, "o", attend(index, grouped, k, v), update)

    def _mlp(self, index: int, layer: BackboneLayer, x: Tensor, update: Update | None) -> Tensor:
        h = self.pieces.norm(x, layer.mlp_norm, self.config.rms_norm_eps, self.embedding.dtype)
        gate_up = _product(index, layer, "gate_up", h, update)
        return _product(index, layer, "down", self.pieces.swiglu(gate_up), update)


def fast_dtype() -> torch.dtype:
    """Return bfloat16 if the default device multiplies it faster than float32, else float32."""
    if torch.get_default_device().type == "cuda":
        return torch.bfloat16
    has_bf16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if has_bf16 else torch.float32


def pays_compiling() -> bool:
    """Whether to compile the functions between the products: on a CPU with a compiler.

    On a GPU compiling took two minutes.
    """
    is_cpu = torch.get_default_device().type == "cpu"
    return is_cpu and any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++")))


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Return x [N, in] @ weight [out, in].T in the dtype of the weight."""
    return F.linear(x.to(weight.dtype), weight)


def rms_norm(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """Return the norm of a float32 ``x`` in ``dtype``."""
    return F.rms_norm(x, weight.shape, weight, eps).to(dtype)


def norm_heads(qkv: Tensor, query: Tensor, key: Tensor, config: ModelConfig) -> Tensor:
    """Norm each head of the queries and keys of [N, heads, d] by these weights [d], in float32."""
    q, k, v = torch.split(qkv, [config.num_heads, *[config.num_kv_heads] * 2], 1)
    eps = config.rms_norm_eps
    normed = [rms_norm(x.float(), w, eps, qkv.dtype) for x, w in ((q, query), (k, key))]
    return torch.cat([*normed, v], 1)


def rotate(qkv: Tensor, cos: Tensor, sin: Tensor, kv_heads: int) -> Tensor:
    """Apply rotary embedding in float32 to the queries and keys of [N, heads, d].

    The last ``kv_heads`` heads are the values, which do not change.
    """
    split = qkv.shape[1] - kv_heads
    half = qkv.shape[2] // 2
    y = qkv[:, :split].float()
    turned = torch.cat([-y[..., half:], y[..., :half]], -1)
    return torch.cat([(y * cos + turned * sin).to(qkv.dtype), qkv[:, split:]], 1)


def swiglu(gate_up: Tensor) -> Tensor:
    """Return silu(gate) * up for [N, 2 I], gate first."""
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


def add(x: Tensor, y: Tensor) -> Tensor:
    """Add the output of a product, in its own dtype, to the float32 residual stream."""
    return x + y


def joint_softmax(
    scores: Tensor, own: Tensor, unseen: Tensor, own_unseen: Tensor
) -> tuple[Tensor, Tensor]:
    """Return one softmax over two sets of keys, scores [..., T] and own [..., M].

    unseen, own_unseen: the keys that are masked out.
    """
    width, masks = scores.shape[-1], own.shape[-1]
    parts = [scores.masked_fill(unseen, -math.inf), own.masked_fill(own_unseen, -math.inf)]
    if masks % ALIGNED:
        missing = (*own.shape[:-1], -masks % ALIGNED)
        parts.append(own.new_full((1,), -math.inf).expand(missing))
    weights = torch.softmax(torch.cat(parts, -1), -1)
    return weights[..., :width], weights[..., width : width + masks]


class Pieces:
    """The functions between the products. Compiled, each is one pass over memory; otherwise these
    passes take longer than the products on two cores."""

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
