"""Choose the implementation of a model from its weights, the device and the requested dtype.

On a CPU, integer weights and (in 8 bits) dense ones use the native forward pass, which is compiled
when it is first needed. If that fails, PyTorch computes, and the log explains why.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mars_runtime.model.adapter import Adapter
from mars_runtime.model.config import CheckpointError, ModelConfig, expected_names, expected_shape
from mars_runtime.model.native.library import (
    CompileError,
    compile_library,
    is_compiled,
    open_library,
)
from mars_runtime.model.native.model import NativeModel, Tell, unsupported
from mars_runtime.model.native.weights import not_finite
from mars_runtime.model.quantized import GroupedMatrix, Weight, can_quantize, dense_weights
from mars_runtime.model.transformer import Transformer
from mars_runtime.system.machine import cache_folder

Model = Transformer | NativeModel

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
    tell: Tell = lambda share: None,
) -> Model:
    """weights: named as in transformers. dtype: fp32, bf16, auto, or on a CPU int8 or int4. auto is
    bf16 on CUDA; on a CPU it leaves integer weights unchanged and uses ``dense_dtype`` for others.
    adapter: acts only on tokens ``mask_id``. tell: called with the share packed so far. Raises
    CheckpointError.
    """
    if dtype in BITS and device.type != "cpu":
        raise CheckpointError(f"The dtype {dtype} needs a CPU: choose bf16 on a GPU.")
    has_integers = False
    if dtype == "auto" and device.type == "cpu":
        # Only the first layer is checked, because each access maps a weight's file into memory.
        first = [weights.get(name) for name in _first_layer(config)]
        has_integers = any(isinstance(weight, GroupedMatrix) for weight in first)
        dtype = dtype if has_integers else dense_dtype(config)
    if dtype in BITS or has_integers:
        return _quantised(config, weights, BITS.get(dtype), adapter, mask_id, tell)
    _require_numbers(weights)
    return Transformer(
        config,
        dense_weights(weights),
        device=device,
        dtype=choose_dtype(dtype, device),
        adapter=adapter,
        mask_id=mask_id,
    )


def choose_dtype(dtype: str, device: torch.device) -> torch.dtype:
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if dtype not in DTYPES:
        also = " (or int8 or int4 on a CPU)"
        raise CheckpointError(f"The dtype must be auto, fp32 or bf16{also}, got {dtype!r}.")
    return DTYPES[dtype]


def has_native() -> bool:
    try:
        native_library()
    except CompileError:
        return False
    return True


def why_not_native(config: ModelConfig) -> str | None:
    """Return why the native forward pass cannot compute this model, or None."""
    reason = unsupported(config)
    if reason is None:
        try:
            native_library()
        except CompileError as error:
            reason = str(error)
    return reason


def dense_dtype(config: ModelConfig) -> str:
    """Return int8 if the native forward pass can run the model, otherwise fp32. Logs why not."""
    reason = why_not_native(config)
    if reason is None:
        return "int8"
    # A missing compiler is worth a warning, because the user can install one.
    log = _log.info if unsupported(config) else _log.warning
    log("%s Dense weights are computed in fp32, which is exact but slower.", reason)
    return "fp32"


def _first_layer(config: ModelConfig) -> list[str]:
    return [name for name in expected_names(config) if name.startswith("model.layers.0.")]


COMPILING = "Compiling the native forward pass, once on this machine…"
_lock = threading.Lock()


def native_library() -> Any:
    """Return the checked library; the first call may compile it, which takes up to a minute. Raises
    CompileError.
    """
    with _lock:
        library = _library()
    if isinstance(library, CompileError):
        raise CompileError(str(library))
    return library


@cache
def _library() -> Any:
    try:
        library = open_library(compile_library(_folder()))
        check_library(library)
    except CompileError as error:
        return error
    return library


def must_compile(device: torch.device, dtype: str) -> bool:
    """Return whether ``build_model`` would compile the library first."""
    if device.type != "cpu" or dtype in DTYPES:
        return False
    try:
        return not is_compiled(_folder())
    except CompileError:  # there is no compiler
        return False


def _folder() -> Path:
    return cache_folder() / "native"


def _quantised(
    config: ModelConfig,
    weights: Mapping[str, Weight],
    bits: int | None,
    adapter: Adapter | None,
    mask_id: int | None,
    tell: Tell,
) -> Model:
    """bits: of the layer matrices; None leaves integer ones and quantises dense ones to 8 bits."""
    reason = why_not_native(config)
    if reason is None:
        return NativeModel(
            config,
            weights,
            native_library(),
            bits=bits,
            adapter=adapter,
            mask_id=mask_id,
            tell=tell,
        )
    _require_numbers(weights)
    is_int8 = can_quantize()
    if bits is not None and not is_int8:
        raise CheckpointError(
            f"The dtype int{bits} needs an x86 CPU or a C++ compiler: choose fp32 on this machine."
        )
    _log.warning(
        "%s The model runs in PyTorch with its %s kernels, which is slower.",
        reason,
        "int8" if is_int8 else "fp32",
    )
    return Transformer(
        config, dense_weights(weights), is_int8=is_int8, adapter=adapter, mask_id=mask_id
    )


def _require_numbers(weights: Mapping[str, Weight]) -> None:
    for name, weight in weights.items():
        is_good = weight.isfinite().all() if isinstance(weight, Tensor) else weight.is_finite()
        if not is_good:
            raise not_finite(name)


LEAST_COSINE = 0.98  # minimum cosine similarity between the library's and PyTorch's logits
NUM_TOKENS = 40  # enough to fill more than one block of the KV cache

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
    """Raise CompileError if the library's logits of small random models differ too much from
    PyTorch's, or if those of a token depend on the others.
    """
    generator = torch.Generator().manual_seed(0)
    for bits, has_head_norms in product((4, 8), (False, True)):
        config = replace(CHECKED, qk_norm=has_head_norms)
        weights: dict[str, Weight] = {}
        for name in sorted(expected_names(config)):
            values = torch.randn(expected_shape(name, config), generator=generator)
            weights[name] = values
            if values.dim() == 2:
                weights[name] = GroupedMatrix.quantize(values / 4, 8 if "embed" in name else bits)
        tokens = torch.randint(0, config.vocab_size, (1, NUM_TOKENS), generator=generator)
        plain = Transformer(config, dense_weights(weights))
        native = NativeModel(config, weights, library)
        expected = plain.logits(plain.hidden(tokens, plain.new_cache(1, 64)), slice(None))
        logits = native.logits(native.hidden(tokens, native.new_cache(1, 64)), slice(None))
        cosine = torch.nn.functional.cosine_similarity(expected, logits, dim=-1).min()
        cache, states = native.new_cache(1, 64), []
        for token in tokens.unbind(1):
            states.append(native.hidden(token.unsqueeze(1), cache))
            cache.cursors[0] += 1
        is_alike = torch.equal(native.logits(torch.cat(states, 1), slice(None)), logits)
        if not cosine > LEAST_COSINE or not is_alike:
            raise CompileError(
                "The compiled library computes wrong results on this machine: the cosine "
                f"similarity to PyTorch's logits is {cosine:.3f}, and the logits of a token "
                f"{'do not ' if is_alike else ''}depend on the other tokens of the forward pass."
            )
