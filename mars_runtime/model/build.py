"""Choose the implementation of a model by its weights, the device and the requested dtype."""

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

from mars_runtime.model.adapter import Adapter
from mars_runtime.model.config import CheckpointError, ModelConfig, expected_names, expected_shape
from mars_runtime.model.native.library import (
    CompileError,
    compile_library,
    is_compiled,
    open_library,
)
from mars_runtime.model.native.model import NativeModel, Tell, check_supported
from mars_runtime.model.quantized import GroupedMatrix, Weight
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
    """dtype: fp32, bf16, auto, or on a CPU int8 or int4. auto is bf16 on CUDA; on a CPU it leaves
    integer weights unchanged and quantises others to int8, or is fp32 if the native forward pass is
    not available. adapter: acts only on tokens ``mask_id``. tell: called with the share packed so
    far. Raises CheckpointError.
    """
    if dtype not in ("auto", *DTYPES, *BITS):
        raise CheckpointError(
            f"The dtype must be auto, fp32 or bf16 (or int8 or int4 on a CPU), got {dtype!r}."
        )
    if dtype in BITS and device.type != "cpu":
        raise CheckpointError(f"The dtype {dtype} needs a CPU: choose bf16 on a GPU.")
    if device.type == "cpu" and dtype not in DTYPES:
        try:
            check_supported(config)
            library = native_library()
        except CompileError as error:
            if dtype in BITS:
                raise CheckpointError(
                    f"{error} Without it, choose fp32 instead of {dtype}."
                ) from error
            _log.warning("%s The model runs in PyTorch in fp32, which is exact but slower.", error)
        else:
            return NativeModel(
                *(config, weights, library),
                bits=BITS.get(dtype),
                adapter=adapter,
                mask_id=mask_id,
                tell=tell,
            )
    default = torch.bfloat16 if device.type == "cuda" else torch.float32
    return Transformer(
        *(config, weights),
        device=device,
        dtype=DTYPES.get(dtype, default),
        adapter=adapter,
        mask_id=mask_id,
    )


def has_native() -> bool:
    try:
        native_library()
    except CompileError:
        return False
    return True


COMPILING = "Compiling the native forward pass, once on this machine…"
_lock = threading.Lock()


def native_library() -> Any:
    """The first call may compile the library, which takes up to a minute. Raises CompileError."""
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
    if device.type != "cpu" or dtype in DTYPES:
        return False
    try:
        return not is_compiled(_folder())
    except CompileError:  # there is no compiler
        return False


def _folder() -> Path:
    return cache_folder() / "native"


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
    """Compare the logits of small random models with PyTorch's, and those of a token alone with
    those in a sequence. Raises CompileError.
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
        plain = Transformer(config, weights)
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
