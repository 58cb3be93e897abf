"""The compiled library as Python sees it: its structures, field for field, and its functions.

Knows addresses and numbers; knows no tensors. The fields are explained in ``model.h``.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int64, c_void_p
from pathlib import Path
from typing import Any

from mars_runtime.model.native.compile import CompileError


class Matrix(Structure):
    _fields_ = [("data", c_void_p), ("bits", c_int64), ("outs", c_int64), ("ins", c_int64)]


class LowRank(Structure):
    _fields_ = [("a", Matrix), ("b", Matrix)]


class Layer(Structure):
    _fields_ = [
        ("attention_norm", c_void_p),
        ("qkv", Matrix),
        ("qkv_bias", c_void_p),
        ("output", Matrix),
        ("feed_norm", c_void_p),
        ("gate_up", Matrix),
        ("down", Matrix),
        ("qkv_low", LowRank),
        ("output_low", LowRank),
        ("gate_up_low", LowRank),
        ("down_low", LowRank),
    ]


class Sampler(Structure):
    _fields_ = [
        ("state", Matrix),
        ("previous", c_void_p),
        ("candidate", c_void_p),
        ("previous_scales", c_void_p),
        ("candidate_scales", c_void_p),
    ]


class Spec(Structure):
    _fields_ = [
        *[
            (name, c_int64)
            for name in ("vocab", "hidden", "num_layers", "num_heads", "num_kv", "dim", "feed")
        ],
        ("norm_floor", c_float),
        ("layers", POINTER(Layer)),
        ("final_norm", c_void_p),
        ("embedding", Matrix),
        ("head", Matrix),
        ("mask_id", c_int64),
        ("mask_embeddings", c_void_p),
        ("num_mask_embeddings", c_int64),
        ("sampler", Sampler),
    ]


class Feed(Structure):
    _fields_ = [
        ("num_rows", c_int64),
        ("num_tokens", c_int64),
        ("ids", c_void_p),
        ("cursors", POINTER(c_int64)),
        ("positions", c_void_p),
        ("roots", c_void_p),
        ("starts", c_void_p),
        ("turns", c_void_p),
        ("cache", c_void_p),
        ("layer_stride", c_int64),
        ("row_stride", c_int64),
        ("block_stride", c_int64),
        ("num_threads", c_int64),
    ]


PARTS = ("products", "attention", "norms", "head", "adapter")
"""What ``mars_clock`` counts, in its order."""

_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "mars_path": (c_char_p, []),
    "mars_sizes": (c_int64, [c_int64]),
    "mars_new": (c_void_p, [POINTER(Spec)]),
    "mars_free": (None, [c_void_p]),
    "mars_hidden": (c_int64, [c_void_p, POINTER(Feed), c_void_p]),
    "mars_read": (None, [c_void_p, c_int64, c_void_p, c_int64, c_void_p, c_int64, *[c_void_p] * 5]),
    "mars_logits": (None, [c_void_p, c_int64, c_void_p, c_int64, c_void_p]),
    "mars_clock": (None, [c_void_p, c_int64, POINTER(c_double * len(PARTS))]),
}


def open_library(path: Path) -> Any:
    """The functions of the library at ``path``. Raises CompileError."""
    try:
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        path.unlink(missing_ok=True)  # compiled anew the next time
        raise CompileError(f"The compiled library {path} can't be opened.") from error
    for number, structure in enumerate((Matrix, Layer, Spec, Feed, Sampler)):
        if library.mars_sizes(number) != ctypes.sizeof(structure):
            raise CompileError("The compiled library lays out its memory otherwise than expected.")
    return library
