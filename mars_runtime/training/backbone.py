"""A frozen Llama for many rows at once: what writes the answers and what the adapter trains on.

Knows weights and rows of hidden states, but neither caches nor texts: whoever runs it says, through
an ``Attend``, what each row sees. The residual stream and the norms are float32; the products run
in the dtype of the weights, which for bfloat16 is several times as fast on CPUs with AMX.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [N, kv heads, group, d], k [N, kv heads, d], v) -> [N, heads * d]."""
Update = Callable[[int, str, Tensor], Tensor | None]
"""(layer, part, input of the product) -> what is added to the product, or None."""

PARTS = ("qkv", "o", "gate_up", "down")


class BaseError(ValueError):
    """A base model that cannot be used; one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the weights do not tell: head sizes and constants."""

    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    theta: float


class Product:
    """y = x @ weight.T for a constant weight [out, in], packed for oneDNN where that is there."""

    def __init__(self, weight: Tensor, pack_rows: int | None = None) -> None:
        self.weight = weight
        self._packed: Tensor | None = None
        if pack_rows and weight.dtype is torch.bfloat16 and torch.backends.mkldnn.is_available():
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
    """Weights of a Llama with a tied head; ``hidden`` runs its layers."""

    def __init__(self, shape: Shape, weights: dict[str, Tensor], pack_rows: int | None) -> None:
        self.shape = shape
        self.embedding = weights["model.embed_tokens.weight"]
        self.head = Product(self.embedding, pack_rows)
        self.norm = weights["model.norm.weight"].float()
        count = 1 + max(int(n.split(".")[2]) for n in weights if n.startswith("model.layers."))
        self.layers = [_layer(weights, f"model.layers.{i}.", pack_rows) for i in range(count)]
        steps = torch.arange(0, shape.head_dim, 2).float() / shape.head_dim
        self._frequencies = shape.theta**-steps

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype, pack_rows: int | None = None) -> Backbone:
        """Read a checkpoint in transformers' layout; ``pack_rows``: the usual rows of a forward,
        for a model that only ever runs without gradients. Raises BaseError."""
        from safetensors.torch import load_file

        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            shape = read_shape(config)
            weights = load_file(folder / "model.safetensors")
        except (OSError, ValueError, KeyError) as error:
            raise BaseError(
                f"No Llama checkpoint with a tied head in {folder}: {error}."
            ) from error
        return cls(shape, {name: weight.to(dtype) for name, weight in weights.items()}, pack_rows)

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
            x = x + self._attention(index, layer, x, turn, attend, update)
            x = x + self._mlp(index, layer, x, update)
        return x

    def embed(self, ids: Tensor) -> Tensor:
        """Rows [N, H], float32, of ids [N]."""
        return self.embedding[ids].float()

    def normed(self, x: Tensor) -> Tensor:
        """The final norm, [N, H] float32."""
        return rms_norm(x, self.norm, self.shape.eps)

    def _attention(
        self,
        index: int,
        layer: Layer,
        x: Tensor,
        turn: tuple[Tensor, Tensor],
        attend: Attend,
        update: Update | None,
    ) -> Tensor:
        shape, rows = self.shape, len(x)
        h = rms_norm(x, layer.attention_norm, shape.eps)
        qkv = _product(index, layer, "qkv", h, update)
        widths = [shape.heads * shape.head_dim, *[shape.kv_heads * shape.head_dim] * 2]
        q, k, v = (part.view(rows, -1, shape.head_dim) for part in qkv.split(widths, -1))
        q, k = rotate(q, turn), rotate(k, turn)
        grouped = q.view(rows, shape.kv_heads, -1, shape.head_dim)
        return _product(index, layer, "o", attend(index, grouped, k, v), update).float()

    def _mlp(self, index: int, layer: Layer, x: Tensor, update: Update | None) -> Tensor:
        h = rms_norm(x, layer.mlp_norm, self.shape.eps)
        gate, up = _product(index, layer, "gate_up", h, update).chunk(2, -1)
        return _product(index, layer, "down", F.silu(gate) * up, update).float()


def read_shape(config: dict[str, Any]) -> Shape:
    """Head sizes of a config.json. Raises BaseError for what ``Backbone`` does not compute."""
    if config.get("model_type") != "llama" or not config.get("tie_word_embeddings"):
        raise BaseError("The base must be a Llama whose head is tied to its embedding")
    if config.get("attention_bias") or config.get("mlp_bias"):
        raise BaseError("The base must be a Llama without biases")
    rope = config.get("rope_parameters") or config
    heads = int(config["num_attention_heads"])
    return Shape(
        heads=heads,
        kv_heads=int(config["num_key_value_heads"]),
        head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
        eps=float(config["rms_norm_eps"]),
        theta=float(rope["rope_theta"]),
    )


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """float32 in, float32 out."""
    return F.rms_norm(x, weight.shape, weight, eps)


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding of [N, heads, d] by ``rotations``, in float32, back in the dtype of x."""
    cos, sin = turn
    half = x.shape[-1] // 2
    y = x.float()
    turned = torch.cat([-y[..., half:], y[..., :half]], -1)
    return (y * cos + turned * sin).to(x.dtype)


def _product(index: int, layer: Layer, part: str, x: Tensor, update: Update | None) -> Tensor:
    x = x.to(layer.products[part].weight.dtype)
    y = layer.products[part](x)
    added = update(index, part, x) if update else None
    return y if added is None else y + added


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
