"""Choose how a checkpoint is computed here, by its weights, the device and what was asked.

Whole numbers on a CPU go to the native forward, which is compiled at its first use; where that
can't be, to PyTorch's own kernels, with a word in the log. All else is ``qwen2.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

from mars_runtime.machine import cache_folder
from mars_runtime.model.adapter import Adapter
from mars_runtime.model.config import CheckpointError, ModelConfig, expected_names, expected_shape
from mars_runtime.model.native.library import CompileError, compile_library, open_library
from mars_runtime.model.native.model import NativeModel, unsupported
from mars_runtime.model.quantized import GroupedMatrix, Weight, can_quantize, dense_weights
from mars_runtime.model.qwen2 import Qwen2

Model = Qwen2 | NativeModel

DTYPES = {
    "fp32": torch.float32,
    "float32": torch.float32,
    "bf16": torch.bfloat16,
    "bfloat16": torch.bfloat16,
}
BITS = {"int4": 4, "int8": 8}
_log = logging.getLogger(__name__)


def build_model(
    config: ModelConfig,
    weights: Mapping[str, Weight],
    *,
    device: torch.device,
    dtype: str = "auto",
    adapter: Adapter | None = None,
    mask_id: int | None = None,
) -> Model:
    """A model of these weights, named as in a transformers checkpoint.

    dtype: auto (on a CPU whole numbers as they are and all else fp32, on CUDA bf16), fp32, bf16, or
    int8 or int4 for a CPU. adapter: acts on the tokens ``mask_id`` alone. Raises CheckpointError,
    one sentence.
    """
    _require_numbers(weights)
    is_whole = any(isinstance(weight, GroupedMatrix) for weight in weights.values())
    if dtype in BITS and device.type != "cpu":
        raise CheckpointError(f"{dtype} is made for a CPU: choose bf16 on a GPU.")
    if device.type == "cpu" and (dtype in BITS or (dtype == "auto" and is_whole)):
        return _quantised(config, weights, BITS.get(dtype), adapter, mask_id)
    return Qwen2(
        config,
        dense_weights(weights),
        device=device,
        dtype=choose_dtype(dtype, device),
        adapter=adapter,
        mask_id=mask_id,
    )


def choose_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """auto (bf16 on CUDA, fp32 on a CPU), fp32 or bf16. Raises CheckpointError."""
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if dtype not in DTYPES:
        also = " (or int8 or int4 on a CPU)"
        raise CheckpointError(f"Choose the dtype auto, fp32 or bf16{also}, not {dtype!r}.")
    return DTYPES[dtype]


@cache
def native_library() -> Any:
    """The compiled library, checked. Raises CompileError."""
    library = open_library(compile_library(cache_folder() / "native"))
    check_library(library)
    return library


def _quantised(
    config: ModelConfig,
    weights: Mapping[str, Weight],
    bits: int | None,
    adapter: Adapter | None,
    mask_id: int | None,
) -> Model:
    """``bits`` for all matrices of layers; None: as they are, and 8 for dense ones."""
    reason = unsupported(config)
    if reason is None:
        try:
            return NativeModel(
                config, weights, native_library(), bits=bits, adapter=adapter, mask_id=mask_id
            )
        except CompileError as error:
            reason = str(error)
    is_int8 = can_quantize()
    if bits is not None and not is_int8:
        raise CheckpointError(
            f"int{bits} needs an x86 CPU or a C++ compiler: choose fp32 on this machine."
        )
    _log.warning("%s PyTorch's %s kernels are used.", reason, "int8" if is_int8 else "fp32")
    return Qwen2(config, dense_weights(weights), is_int8=is_int8, adapter=adapter, mask_id=mask_id)


def _require_numbers(weights: Mapping[str, Weight]) -> None:
    for name, weight in weights.items():
        is_good = weight.isfinite().all() if isinstance(weight, Tensor) else weight.is_finite()
        if not is_good:
            raise CheckpointError(f"The weight {name} is not finite: fetch the checkpoint again.")


LEAST_COSINE = 0.98  # of the compiled library's logits with those of plain PyTorch
NUM_TOKENS = 40  # more than a block of the cache

CHECKED = ModelConfig(
    vocab_size=80,
    hidden_size=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    intermediate_size=96,
    tie_word_embeddings=True,
    max_positions=64,
)


@torch.inference_mode()
def check_library(library: Any) -> None:
    """Raises CompileError when logits are not those of plain PyTorch, or depend on company."""
    generator = torch.Generator().manual_seed(0)
    for bits in (4, 8):
        weights: dict[str, Weight] = {}
        for name in sorted(expected_names(CHECKED)):
            values = torch.randn(expected_shape(name, CHECKED), generator=generator)
            is_matrix = values.dim() == 2
            kept = 8 if "embed" in name else bits
            weights[name] = GroupedMatrix.quantize(values / 4, kept) if is_matrix else values
        tokens = torch.randint(0, CHECKED.vocab_size, (1, NUM_TOKENS), generator=generator)
        plain, native = (
            Qwen2(CHECKED, dense_weights(weights)),
            NativeModel(CHECKED, weights, library),
        )
        expected = plain.logits(plain.hidden(tokens, plain.new_cache(1, 64)), slice(None))
        found = native.logits(native.hidden(tokens, native.new_cache(1, 64)), slice(None))
        cosine = torch.nn.functional.cosine_similarity(expected, found, dim=-1).min()
        if not cosine > LEAST_COSINE:
            raise CompileError(f"The compiled library computes wrongly here ({cosine:.3f}).")
        cache, alone = native.new_cache(1, 64), []
        for token in tokens.unbind(1):
            alone.append(native.hidden(token.unsqueeze(1), cache))
            cache.cursors[0] += 1
        if not torch.equal(native.logits(torch.cat(alone, 1), slice(None)), found):
            raise CompileError("The compiled library rounds a token by its company here.")
