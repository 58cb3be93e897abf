"""Choose the implementation of a model from its weights, the device and the requested dtype.

Integer weights on a CPU use the native forward pass, which is compiled when it is first needed. If
compiling fails, integer weights use PyTorch's own kernels, and the log explains why. Dense weights
on a CPU use the native forward pass in 8 bits, or fp32 if it is unavailable. All other models use
``transformer.py``.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
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
    """Build a model from its weights, named as in a transformers checkpoint.

    dtype: fp32, bf16, auto, or on a CPU int8 or int4. auto is bf16 on CUDA; on a CPU it leaves
        integer weights unchanged and uses ``dense_dtype`` for dense weights.
    adapter: acts only on tokens with the id ``mask_id``.
    tell: called with the share of the weights packed so far.

    Raises CheckpointError.
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
    """Return the PyTorch dtype for fp32, bf16 or auto (bf16 on CUDA, fp32 on a CPU)."""
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
    """Return why the native forward pass cannot compute this model, as a sentence, or None."""
    reason = unsupported(config)
    if reason is None:
        try:
            native_library()
        except CompileError as error:
            reason = str(error)
    return reason


def dense_dtype(config: ModelConfig) -> str:
    """Return the dtype of dense weights on a CPU: int8 if there is a native forward pass for the
    model, otherwise fp32. Logs why there is none.
    """
    reason = why_not_native(config)
    if reason is None:
        return "int8"
    # A missing compiler is worth a warning, because the user can install one.
    log = _log.info if unsupported(config) else _log.warning
    log("%s Dense weights are computed in fp32, which is exact but slower.", reason)
    return "fp32"


def _first_layer(config: ModelConfig) -> list[str]:
    return [name for name in expected_names(config) if name.startswith("model.layers.0.")]


COMPILING = "The native forward pass is being compiled."
_in_background = threading.Event()


def native_library() -> Any:
    """Return the compiled and checked library; the first call compiles it.

    Raises CompileError if compiling fails, or while ``compile_in_background`` is compiling.
    """
    compiled = _compiled()
    if _in_background.is_set() and not compiled.done():
        raise CompileError(COMPILING)
    return compiled.result()


def compile_in_background(then: Callable[[], None]) -> bool:
    """Start to compile the library in a thread; return whether a compilation is running.

    Until the library is ready, models are built without it. Does nothing if the library was
    compiled earlier or there is no compiler. then: called in the compiling thread at the end.
    """
    try:
        if not _in_background.is_set() and is_compiled(_folder()):
            return False
    except CompileError:
        return False
    _in_background.set()
    compiled = _compiled()
    if compiled.done():
        return False
    _log.warning("%s Until it is ready, models run in PyTorch, which is slower.", COMPILING)
    compiled.add_done_callback(lambda it: then() if it.exception() is None else None)
    return True


def _folder() -> Path:
    return cache_folder() / "native"


@cache
def _compiled() -> Future[Any]:
    """Start a thread that compiles and checks the library; return the future of its result."""
    future_library: Future[Any] = Future()
    # The exit of the process waits for the check, because ending a thread in PyTorch aborts.
    checking = threading.Lock()
    atexit.register(checking.acquire)

    def work() -> None:
        try:
            library = open_library(compile_library(_folder()))
            with checking:
                check_library(library)
        except CompileError as error:
            future_library.set_exception(error)
        except BaseException as error:
            future_library.set_exception(error)
            raise
        else:
            future_library.set_result(library)

    threading.Thread(target=work, name="compile", daemon=True).start()
    return future_library


def _quantised(
    config: ModelConfig,
    weights: Mapping[str, Weight],
    bits: int | None,
    adapter: Adapter | None,
    mask_id: int | None,
    tell: Tell,
) -> Model:
    """Build a quantised model for a CPU. bits: of the layer matrices; None leaves integer matrices
    unchanged and quantises dense ones to 8 bits.
    """
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
    """Compare the logits of small random models in the compiled library and in PyTorch.

    Raises CompileError if they differ too much, or if the logits of a token depend on whether other
    tokens are in the same forward pass.
    """
    generator = torch.Generator().manual_seed(0)
    for bits, has_head_norms in product((4, 8), (False, True)):
        config = replace(CHECKED, qk_norm=has_head_norms)
        weights: dict[str, Weight] = {}
        for name in sorted(expected_names(config)):
            values = torch.randn(expected_shape(name, config), generator=generator)
            is_matrix = values.dim() == 2
            bits_of_weight = 8 if "embed" in name else bits
            weights[name] = (
                GroupedMatrix.quantize(values / 4, bits_of_weight) if is_matrix else values
            )
        tokens = torch.randint(0, config.vocab_size, (1, NUM_TOKENS), generator=generator)
        plain, native = (
            Transformer(config, dense_weights(weights)),
            NativeModel(config, weights, library),
        )
        expected = plain.logits(plain.hidden(tokens, plain.new_cache(1, 64)), slice(None))
        logits = native.logits(native.hidden(tokens, native.new_cache(1, 64)), slice(None))
        cosine = torch.nn.functional.cosine_similarity(expected, logits, dim=-1).min()
        if not cosine > LEAST_COSINE:
            raise CompileError(
                "The compiled library computes wrong results on this machine: the cosine "
                f"similarity to PyTorch's logits is {cosine:.3f}, below {LEAST_COSINE}."
            )
        cache, single_states = native.new_cache(1, 64), []
        for token in tokens.unbind(1):
            single_states.append(native.hidden(token.unsqueeze(1), cache))
            cache.cursors[0] += 1
        if not torch.equal(native.logits(torch.cat(single_states, 1), slice(None)), logits):
            raise CompileError(
                "The compiled library computes wrong results on this machine: the logits of a "
                "token depend on the other tokens of the forward pass."
            )
