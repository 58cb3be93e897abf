"""Attach a mask adapter of MARS live to its base in transformers, by hooks.

    model = AutoModelForCausalLM.from_pretrained("HuggingFaceTB/SmolLM2-135M-Instruct")
    attach(model, "checkpoints/mars-smollm2", tokenizer.convert_tokens_to_ids("<reponame>"))
    model.generate(**inputs, custom_generate=REPOSITORY, trust_remote_code=True, lossless=True)

An adapter acts on mask tokens only: it replaces the embedding of a mask, and adds b (a x) to the
product of each linear layer in the rows of masks. Real tokens are computed as in the base. So plain
``generate`` writes the base's text, and lossless MARS decoding writes it in fewer passes.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load
from torch import Tensor

NUM_CANDIDATES = 4
"""Tokens of a mask that the sampler head ranks."""

Hook = Callable[[Any, tuple[Tensor, ...], Tensor], "Tensor | None"]


def attach(model: Any, folder: str | Path, mask_token_id: int) -> AdapterHooks:
    """Attach the adapter in ``folder`` to a Llama, Qwen2 or Qwen3 that is on its final device.

    mask_token_id: the id of the token that ``adapter.json`` names as ``mask_token``. Raises
    ValueError if the adapter does not fit the model, which is left as it was.
    """
    adapter = AdapterHooks(model, mask_token_id)
    weights = read_weights(Path(folder))
    try:
        adapter.add(weights)
        if weights:
            raise ValueError(f"{min(weights)} has no place in this model")
    except (KeyError, ValueError) as error:
        adapter.remove()
        raise ValueError(
            f"The adapter in {folder} does not fit this model ({error}): load the base that it was "
            "trained for."
        ) from error
    return adapter


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of an adapter; its files may be compressed with xz.

    Raises ValueError for another format.
    """
    described = json.loads((folder / "adapter.json").read_text(encoding="utf-8"))
    if described.get("format") != 1:
        raise ValueError(f"{folder / 'adapter.json'} is not of format 1.")
    tensors: dict[str, Tensor] = {}
    for path in sorted(folder.glob("adapter*.safetensors*")):
        stored = path.read_bytes()
        tensors |= load(lzma.decompress(stored) if path.suffix == ".xz" else stored)
    return tensors


class AdapterHooks:
    """The hooks of an adapter. ``remove`` detaches them.

    The hook of the embeddings stores where the masks of a forward pass are, for the hooks of the
    layers.
    """

    def __init__(self, model: Any, mask_id: int) -> None:
        self._model, self._mask_id = model, mask_id
        self._base = model.base_model
        self._mask_embedding = torch.empty(0)
        self._sampler: tuple[Tensor, Tensor] | None = None
        self._is_mask: Tensor | None = None  # [R, Q, 1], of the forward in progress, if it has any
        self._states = torch.empty(0)  # what the head reads: [R, slots, hidden]
        self._handles: list[Any] = []
        self._former_id = getattr(model.config, "mask_token_id", None)
        model.config.mask_token_id = mask_id

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._model.config.mask_token_id = self._former_id
        self._model.__dict__.pop("rank_mask_candidates", None)

    def add(self, weights: dict[str, Tensor]) -> None:
        """Hook all ``weights`` and remove them from the dictionary.

        Raises KeyError or ValueError if one is missing or has another shape.
        """
        self._mask_embedding = self._placed(weights.pop("mask_embedding"))
        if self._mask_embedding.shape[1] != self._base.embed_tokens.embedding_dim:
            raise ValueError("mask_embedding has another size")
        self._hook(self._base.embed_tokens, self._embed)
        for index, layer in enumerate(self._base.layers):
            attention, feed = layer.self_attn, layer.mlp
            for part, modules in (
                ("qkv", (attention.q_proj, attention.k_proj, attention.v_proj)),
                ("o", (attention.o_proj,)),
                ("gate_up", (feed.gate_proj, feed.up_proj)),
                ("down", (feed.down_proj,)),
            ):
                name = f"layers.{index}.{part}"
                if f"{name}.a" in weights:
                    self._update(modules, weights.pop(f"{name}.a"), weights.pop(f"{name}.b"))
        if "sampler.first.weight" in weights:
            first, second = (weights.pop(f"sampler.{name}.weight") for name in ("first", "second"))
            self._sampler = self._placed(first).float(), self._placed(second).float()
            head = self._model.get_output_embeddings()
            self._handles.append(head.register_forward_pre_hook(self._note_states))
            self._model.rank_mask_candidates = self.rank

    def rank(self, probabilities: Tensor, slot: int, previous: Tensor) -> Tensor:
        """Rank the best candidates of the mask at ``slot``, given the token before it, [1].

        score(c) = log p(c) + E[c] . W2 silu(W1 [E[previous]; h]), with the embedding E and the
        normed state h of the mask. The candidates keep the sum of their probabilities, [1, V].
        """
        assert self._sampler is not None, "only a sampler head ranks"
        first, second = self._sampler
        embedding = self._base.embed_tokens.weight
        best, ids = probabilities[0].topk(NUM_CANDIDATES)
        inputs = torch.cat([embedding[previous[0]], self._states[0, slot]]).float()
        scores = best.log() + embedding[ids].float() @ (second @ F.silu(first @ inputs))
        return probabilities.index_copy(1, ids, (scores.softmax(-1) * best.sum()).unsqueeze(0))

    def _update(self, modules: Sequence[Any], a: Tensor, b: Tensor) -> None:
        """Add b (a x) to the outputs of modules, with their rows of b one after the other."""
        sizes = [module.out_features for module in modules]
        if b.shape != (sum(sizes), len(a)) or a.shape[1] != modules[0].in_features:
            raise ValueError(f"b has the shape {tuple(b.shape)}, the layers {sizes}")
        placed = self._placed(a)
        for module, part in zip(modules, self._placed(b).split(sizes), strict=True):
            self._hook(module, self._adding(placed, part))

    def _adding(self, a: Tensor, b: Tensor) -> Hook:
        def hook(module: Any, args: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
            if self._is_mask is None:
                return None
            return output + F.linear(F.linear(args[0], a) * self._is_mask, b)

        return hook

    def _embed(self, module: Any, args: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        """Replace the embedding of each mask by the embedding for its position in its group of
        masks.
        """
        is_mask = args[0] == self._mask_id
        self._is_mask = is_mask.unsqueeze(-1) if bool(is_mask.any()) else None
        if self._is_mask is None:
            return None
        slots = torch.arange(is_mask.shape[1], device=is_mask.device).expand(is_mask.shape)
        first = torch.where(is_mask, -1, slots).cummax(1).values + 1
        places = (slots - first).clamp(0, len(self._mask_embedding) - 1)
        return torch.where(self._is_mask, self._mask_embedding[places], output)

    def _note_states(self, module: Any, args: tuple[Tensor, ...]) -> None:
        self._states = args[0]

    def _hook(self, module: Any, hook: Hook) -> None:
        self._handles.append(module.register_forward_hook(hook))

    def _placed(self, tensor: Tensor) -> Tensor:
        weight = self._base.embed_tokens.weight
        return tensor.to(weight.device, weight.dtype)
