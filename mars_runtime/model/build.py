"""Choose the implementation of a model by its weights, the device and the requested dtype.

Integer weights on a CPU use the native forward, which is compiled at its first use, or PyTorch's
own kernels, with a log message, if it cannot be compiled. Dense weights on a CPU use it in 8 bits,
unless a short measurement finds fp32 faster. Everything else uses ``transformer.py``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mars_runtime.machine import cache_folder
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
    """Return a model of these weights, named as in a transformers checkpoint.

    dtype: auto (on a CPU integer weights unchanged and dense weights as ``quickest`` chooses, on
    CUDA bf16), fp32, bf16, or int8 or int4 on a CPU. adapter: acts on the tokens ``mask_id`` only.
    Raises CheckpointError, with one sentence.
    """
    if dtype in BITS and device.type != "cpu":
        raise CheckpointError(f"{dtype} is made for a CPU: choose bf16 on a GPU.")
    is_whole = False
    if dtype == "auto" and device.type == "cpu":
        # Only the first layer is checked, since each access maps a weight of a folder into memory.
        first = [weights.get(name) for name in _first_layer(config)]
        is_whole = any(isinstance(weight, GroupedMatrix) for weight in first)
        dtype = dtype if is_whole else quickest(config, weights)
    if dtype in BITS or is_whole:
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
    """Return the dtype of auto (bf16 on CUDA, fp32 on a CPU), fp32 or bf16.

    Raises CheckpointError.
    """
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if dtype not in DTYPES:
        also = " (or int8 or int4 on a CPU)"
        raise CheckpointError(f"Choose the dtype auto, fp32 or bf16{also}, not {dtype!r}.")
    return DTYPES[dtype]


def has_native() -> bool:
    """Return whether the native forward is available on this machine."""
    try:
        native_library()
    except CompileError:
        return False
    return True


def why_not_native(config: ModelConfig) -> str | None:
    """Return why the native forward cannot compute a model of this shape here, or None if it
    can."""
    reason = unsupported(config)
    if reason is None:
        try:
            native_library()
        except CompileError as error:
            reason = str(error)
    return reason


TRIAL_WEIGHTS = 1 << 24
"""Number of weights in the layers that ``quickest`` times.

As fp32 they exceed a core's share of the processor cache, as all layers of a large model do.
"""
TRIAL_ROWS, TRIAL_CONTEXT, TRIAL_ROUNDS = 512, 64, 7


def quickest(config: ModelConfig, weights: Mapping[str, Weight]) -> str:
    """Return the fastest dtype for dense weights on this CPU, one token at a time.

    It is int8 with the native forward, or fp32. Without the native forward it is fp32, and the log
    says why. Times some layers and takes the shortest time of each, since other load on the machine
    can only make a forward slower.
    """
    reason = why_not_native(config)
    if reason is not None:
        # A missing compiler can be installed, so it is a warning; an unsupported shape is not.
        tell = _log.info if unsupported(config) else _log.warning
        tell("%s Dense weights are computed in fp32, exactly and more slowly.", reason)
        return "fp32"
    layer = _layer_weights(config)
    if layer > TRIAL_WEIGHTS:  # fp32 reads four times the bytes from memory in every layer
        return "int8"
    part = replace(
        config,
        num_layers=min(config.num_layers, TRIAL_WEIGHTS // layer),
        vocab_size=min(config.vocab_size, TRIAL_ROWS),
        max_positions=TRIAL_CONTEXT + 1,
        tie_word_embeddings=True,
    )
    some = _Part(part, weights)
    models: dict[str, Model] = {
        "int8": NativeModel(part, some, native_library(), bits=8),
        "fp32": Transformer(part, dict(some)),
    }
    seconds = {name: _shortest(model) for name, model in models.items()}
    _log.info(
        "A token takes %s.", ", ".join(f"{1e3 * s:.2f} ms in {n}" for n, s in seconds.items())
    )
    return min(seconds, key=seconds.__getitem__)


def _first_layer(config: ModelConfig) -> list[str]:
    return [name for name in expected_names(config) if name.startswith("model.layers.0.")]


def _layer_weights(config: ModelConfig) -> int:
    return sum(prod(expected_shape(name, config)) for name in _first_layer(config))


class _Part(Mapping[str, Tensor]):
    """The first layers and tokens of a model, with a tied head."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, Weight]) -> None:
        self._config, self._weights = config, weights
        self._names = expected_names(config)

    def __getitem__(self, name: str) -> Tensor:
        weight = self._weights[name]
        dense = weight if isinstance(weight, Tensor) else weight.dense()
        return dense[: self._config.vocab_size] if "embed" in name else dense

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@torch.inference_mode()
def _shortest(model: Model) -> float:
    """Return the shortest time of a forward of one token, in seconds."""
    token = torch.zeros(1, 1, dtype=torch.int64)
    cache: Any = model.new_cache(1, TRIAL_CONTEXT + 1)
    cache.cursors[0] = TRIAL_CONTEXT
    seconds = []
    for _ in range(TRIAL_ROUNDS):
        start = time.perf_counter()
        model.hidden(token, cache)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


COMPILING = "The native forward is being compiled."
_in_background = threading.Event()


def native_library() -> Any:
    """Return the compiled library, after checking it.

    Raises CompileError, also while ``compile_in_background`` is at work.
    """
    compiled = _compiled()
    if _in_background.is_set() and not compiled.done():
        raise CompileError(COMPILING)
    return compiled.result()


def compile_in_background(then: Callable[[], None]) -> bool:
    """Build models without the library until it is compiled; return whether it is not ready yet.

    Does nothing if it was compiled earlier or cannot be. then: called in the compiling thread when
    the library has become ready.
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
    _log.warning("%s Until it is ready, PyTorch computes models, more slowly.", COMPILING)
    compiled.add_done_callback(lambda it: then() if it.exception() is None else None)
    return True


def _folder() -> Path:
    return cache_folder() / "native"


@cache
def _compiled() -> Future[Any]:
    """Return the library to come; a thread of its own compiles and checks it."""
    library_to_come: Future[Any] = Future()

    def work() -> None:
        try:
            library = open_library(compile_library(_folder()))
            check_library(library)
        except CompileError as error:
            library_to_come.set_exception(error)
        except BaseException as error:
            library_to_come.set_exception(error)
            raise
        else:
            library_to_come.set_result(library)

    threading.Thread(target=work, name="compile", daemon=True).start()
    return library_to_come


def _quantised(
    config: ModelConfig,
    weights: Mapping[str, Weight],
    bits: int | None,
    adapter: Adapter | None,
    mask_id: int | None,
    tell: Tell,
) -> Model:
    """Build a quantised model.

    ``bits``: of all matrices of layers; None leaves them as they are, and uses 8 for dense ones.
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
            f"int{bits} needs an x86 CPU or a C++ compiler: choose fp32 on this machine."
        )
    _log.warning("%s PyTorch's %s kernels are used.", reason, "int8" if is_int8 else "fp32")
    return Transformer(
        config, dense_weights(weights), is_int8=is_int8, adapter=adapter, mask_id=mask_id
    )


def _require_numbers(weights: Mapping[str, Weight]) -> None:
    for name, weight in weights.items():
        is_good = weight.isfinite().all() if isinstance(weight, Tensor) else weight.is_finite()
        if not is_good:
            raise not_finite(name)


LEAST_COSINE = 0.98  # minimum cosine of the compiled library's logits with PyTorch's
NUM_TOKENS = 40  # more than one block of the cache

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
    """Raise CompileError if logits differ from PyTorch's or depend on other tokens of the
    forward."""
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
                f"The compiled library gives wrong results on this machine (cosine {cosine:.3f})."
            )
        cache, alone = native.new_cache(1, 64), []
        for token in tokens.unbind(1):
            alone.append(native.hidden(token.unsqueeze(1), cache))
            cache.cursors[0] += 1
        if not torch.equal(native.logits(torch.cat(alone, 1), slice(None)), logits):
            raise CompileError(
                "The compiled library's result for a token depends on the batch's other tokens."
            )
