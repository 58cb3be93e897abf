"""A frozen Llama for many rows at once: what writes the answers and what the adapter trains on.

``read_base`` finds it, by its name in the registry, in a folder in transformers' layout or in a
GGUF file. ``Backbone`` knows weights and rows of hidden states, but neither caches nor texts:
whoever runs it says, through an ``Attend``, what each row sees. The residual stream and the norms
are float32; the products run in the dtype of the weights, which for bfloat16 is several times as
fast on CPUs with AMX.
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

from mars_runtime.model.config import CheckpointError, ModelConfig
from mars_runtime.model.fetch import resolve_checkpoint
from mars_runtime.model.gguf import read_gguf
from mars_runtime.model.load import read_config, read_weights
from mars_runtime.model.quantized import GroupedMatrix
from mars_runtime.model.registry import entry_of
from mars_runtime.text import TextError, Tokenizer, read_spec

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [N, kv heads, group, d], k [N, kv heads, d], v) -> [N, heads * d]."""
Update = Callable[[int, str, Tensor, Tensor], Tensor]
"""(layer, part, input of the product, product) -> the product with what an adapter adds."""

ALIGNED = 8  # numbers
PIECES, COMPARED = 96, 4
"""Pieces of the vocabulary, and how many of them can hold the best token after rounding."""


@dataclass(frozen=True, slots=True)
class Base:
    """name: as given; weights: dense, named and ordered as in a transformers checkpoint."""

    name: str
    config: ModelConfig
    weights: dict[str, Tensor]
    tokenizer: Tokenizer


def read_base(name_or_path: str) -> Base:
    """Read a base that is on this machine, into host memory whatever the default device is. Raises
    CheckpointError, one sentence."""
    entry, path = entry_of(name_or_path), resolve_checkpoint(name_or_path)
    try:
        with torch.device("cpu"):
            config, weights, spec = _read(path)
        mask = entry.mask_token if entry else None
        tokenizer = Tokenizer.from_spec(*spec, mask=mask, name=str(path))
    except (TextError, OSError, ValueError) as error:
        raise CheckpointError(str(error)) from error
    return Base(name_or_path, config, weights, tokenizer)


def _check(config: ModelConfig, path: Path) -> None:
    """Raise CheckpointError for a shape that no adapter is trained for."""
    is_plain = config.model_type == "llama" and config.rope_scaling is None
    if not is_plain or config.attention_bias or not config.tie_word_embeddings:
        raise CheckpointError(
            f"{path} cannot be the base of an adapter here: choose a Llama without biases and "
            "stretched positions whose head is tied to its embedding."
        )


def _read(path: Path) -> tuple[ModelConfig, dict[str, Tensor], Any]:
    """Return the shape, the dense weights, and what the tokenizer is made from. Raises
    CheckpointError."""
    if path.is_file():
        found = read_gguf(path)
        _check(found.config, path)
        weights = {
            name: weight.dense() if isinstance(weight, GroupedMatrix) else weight
            for name, weight in found.weights.items()
        }
        return found.config, weights, (found.tokenizer, found.tokenizer_config)
    _check(read_config(path), path)
    config, stored = read_weights(path)
    return config, dict(stored), read_spec(path)


class Product:
    """y = x @ weight.T for a constant weight [out, in], packed for oneDNN where that is there."""

    def __init__(self, weight: Tensor, pack_rows: int | None = None) -> None:
        self.weight = weight
        self._packed: Tensor | None = None
        is_packable = weight.is_cpu and weight.dtype is torch.bfloat16 and torch._C._has_mkldnn
        if pack_rows and is_packable:
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, pack_rows)

    def __call__(self, x: Tensor) -> Tensor:
        """x: [N, in] of any float dtype; the result [N, out] has the dtype of the weight."""
        x = x.to(self.weight.dtype)
        if self._packed is None:
            return F.linear(x, self.weight)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, None, "none", [], "")
        return y


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer; ``products`` by part, rows of qkv and gate_up in transformers' order."""

    attention_norm: Tensor
    mlp_norm: Tensor
    products: dict[str, Product]


class Backbone:
    """Weights of a Llama with a tied head on the default device; ``hidden`` runs its layers."""

    def __init__(
        self,
        base: Base,
        dtype: torch.dtype,
        pack_rows: int | None = None,
        is_compiled: bool = False,
    ) -> None:
        """pack_rows: the usual rows of a forward, for a model that never needs gradients;
        is_compiled: whether what stands between the products is compiled."""
        self.config = base.config
        device = torch.get_default_device()
        weights = {name: weight.to(device, dtype) for name, weight in base.weights.items()}
        self.pieces = Pieces(is_compiled)
        self.embedding = weights["model.embed_tokens.weight"]
        self.head = Product(self.embedding, pack_rows)
        self.norm = weights["model.norm.weight"].float()
        self.layers = [
            _layer(weights, f"model.layers.{i}.", pack_rows) for i in range(base.config.num_layers)
        ]
        steps = torch.arange(0, base.config.head_dim, 2).float() / base.config.head_dim
        self._frequencies = base.config.rope_theta**-steps

    def rotations(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [N, 1, d] for positions [N]."""
        angles = positions[:, None].float() * self._frequencies
        angles = torch.cat([angles, angles], -1)[:, None]
        return angles.cos(), angles.sin()

    def hidden(
        self, x: Tensor, positions: Tensor, attend: Attend, update: Update | None = None
    ) -> Tensor:
        """Residual stream [N, H] (float32, before the final norm) of embedded rows ``x``."""
        turn = self.rotations(positions)
        for index, layer in enumerate(self.layers):
            x = self.pieces.add(x, self._attention(index, layer, x, turn, attend, update))
            x = self.pieces.add(x, self._mlp(index, layer, x, update))
        return x

    def embed(self, ids: Tensor) -> Tensor:
        """Rows [N, H], float32, of ids [N]."""
        return self.embedding[ids].float()

    def normed(self, x: Tensor) -> Tensor:
        """The final norm, [N, H] float32."""
        return rms_norm(x, self.norm, self.config.rms_norm_eps, torch.float32)

    def greedy(self, x: Tensor) -> Tensor:
        """Best next tokens [N] for the residual stream [N, H].

        Products in bfloat16 cannot tell near ties apart, so the best token of each of the best
        pieces of the vocabulary is compared again in float32.
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
        layer: Layer,
        x: Tensor,
        turn: tuple[Tensor, Tensor],
        attend: Attend,
        update: Update | None,
    ) -> Tensor:
        config, rows = self.config, len(x)
        h = self.pieces.norm(x, layer.attention_norm, config.rms_norm_eps, self.embedding.dtype)
        qkv = _product(index, layer, "qkv", h, update)
        turned = self.pieces.rotate(qkv.view(rows, -1, config.head_dim), *turn, config.num_kv_heads)
        q, k, v = torch.split(turned, [config.num_heads, *[config.num_kv_heads] * 2], 1)
        grouped = q.view(rows, config.num_kv_heads, -1, config.head_dim)
        return _product(index, layer, "o", attend(index, grouped, k, v), update)

    def _mlp(self, index: int, layer: Layer, x: Tensor, update: Update | None) -> Tensor:
        h = self.pieces.norm(x, layer.mlp_norm, self.config.rms_norm_eps, self.embedding.dtype)
        gate_up = _product(index, layer, "gate_up", h, update)
        return _product(index, layer, "down", self.pieces.swiglu(gate_up), update)


def fast_dtype() -> torch.dtype:
    """bfloat16 where the default device multiplies it faster than float32."""
    if torch.get_default_device().type == "cuda":
        return torch.bfloat16
    has_bf16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if has_bf16 else torch.float32


def pays_compiling() -> bool:
    """Whether what stands between the products is worth compiling: where the default device is a
    CPU and there is a compiler. On a GPU it took two minutes."""
    is_cpu = torch.get_default_device().type == "cpu"
    return is_cpu and any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++")))


def rms_norm(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """float32 in, ``dtype`` out."""
    return F.rms_norm(x, weight.shape, weight, eps).to(dtype)


def rotate(qkv: Tensor, cos: Tensor, sin: Tensor, kv_heads: int) -> Tensor:
    """Rotary embedding of the queries and keys in [N, heads, d], in float32; the last ``kv_heads``
    heads, which are the values, stay as they are."""
    split = qkv.shape[1] - kv_heads
    half = qkv.shape[2] // 2
    y = qkv[:, :split].float()
    turned = torch.cat([-y[..., half:], y[..., :half]], -1)
    return torch.cat([(y * cos + turned * sin).to(qkv.dtype), qkv[:, split:]], 1)


def swiglu(gate_up: Tensor) -> Tensor:
    """silu(gate) * up of [N, 2 I], gate first."""
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


def add(x: Tensor, y: Tensor) -> Tensor:
    """The float32 residual stream and the output of a product in its own dtype."""
    return x + y


def joint_softmax(
    scores: Tensor, own: Tensor, unseen: Tensor, own_unseen: Tensor
) -> tuple[Tensor, Tensor]:
    """One softmax over two sets of keys: scores [..., T] and own [..., M] in the dtype of the
    products, and which of them are unseen."""
    width, masks = scores.shape[-1], own.shape[-1]
    parts = [scores.masked_fill(unseen, -math.inf), own.masked_fill(own_unseen, -math.inf)]
    if masks % ALIGNED:  # products with rows of other lengths are many times as slow on a GPU
        missing = (*own.shape[:-1], -masks % ALIGNED)
        parts.append(own.new_full((1,), -math.inf).expand(missing))
    weights = torch.softmax(torch.cat(parts, -1), -1)
    return weights[..., :width], weights[..., width : width + masks]


class Pieces:
    """Everything between the products. Compiled, each is one pass over memory, which is what these
    cost: on two cores the passes take longer than the products otherwise."""

    def __init__(self, is_compiled: bool) -> None:
        def piece(function: Callable[..., Any]) -> Callable[..., Any]:
            return torch.compile(function, dynamic=True) if is_compiled else function

        self.norm, self.rotate = piece(rms_norm), piece(rotate)
        self.swiglu, self.add = piece(swiglu), piece(add)
        self.joint_softmax = piece(joint_softmax)


def _product(index: int, layer: Layer, part: str, x: Tensor, update: Update | None) -> Tensor:
    y = layer.products[part](x)
    return y if update is None else update(index, part, x, y)


def _layer(weights: dict[str, Tensor], prefix: str, pack_rows: int | None) -> Layer:
    def cat(names: Sequence[str]) -> Product:
        return Product(torch.cat([weights[f"{prefix}{n}.weight"] for n in names]), pack_rows)

    return Layer(
        attention_norm=weights[f"{prefix}input_layernorm.weight"].float(),
        mlp_norm=weights[f"{prefix}post_attention_layernorm.weight"].float(),
        products={
            "qkv": cat([f"self_attn.{n}_proj" for n in "qkv"]),
            "o": cat(["self_attn.o_proj"]),
            "gate_up": cat(["mlp.gate_proj", "mlp.up_proj"]),
            "down": cat(["mlp.down_proj"]),
        },
    )
