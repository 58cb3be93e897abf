"""The container of a GGUF file: its metadata and where its tensors lie, as plain values.

Knows no model and no tokenizer. The header is read here and not by the gguf package, whose reader
takes seconds for a vocabulary and never ends on some damaged lengths: here nothing is believed that
the file is too short for. The package still says which types there are and how they are packed.
Source: ggml-org/ggml, docs/gguf.md.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType
from numpy.typing import NDArray

MAGIC, VERSIONS = b"GGUF", (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 16
MAX_DIMENSIONS = 4
_SCALARS = {
    GGUFValueType.UINT8: "<u1",
    GGUFValueType.INT8: "<i1",
    GGUFValueType.UINT16: "<u2",
    GGUFValueType.INT16: "<i2",
    GGUFValueType.UINT32: "<u4",
    GGUFValueType.INT32: "<i4",
    GGUFValueType.UINT64: "<u8",
    GGUFValueType.INT64: "<i8",
    GGUFValueType.FLOAT32: "<f4",
    GGUFValueType.FLOAT64: "<f8",
    GGUFValueType.BOOL: "?",
}


class GgufError(ValueError):
    """What is wrong with a file, as a clause that follows its name."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor: its type, its shape as PyTorch says it, and its packed bytes in the mapped file.

    data: uint8 [rows, bytes a row].
    """

    type: GGMLQuantizationType
    shape: tuple[int, ...]
    data: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class GgufFile:
    """metadata: numbers, strings and lists by key. Numbers of an array are a numpy array."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]

    @classmethod
    def open(cls, path: Path) -> GgufFile:
        """Map ``path`` and read its header. Raises GgufError or OSError."""
        if path.stat().st_size < 24:
            raise GgufError("is too short to be a GGUF file")
        data: NDArray[np.uint8] = np.memmap(path, dtype=np.uint8, mode="r")
        try:
            return _read(_Cursor(data))
        except (struct.error, UnicodeDecodeError) as error:
            raise GgufError("is damaged or incomplete") from error


class _Cursor:
    """Reads values one after the other and never past the end."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self.data = data
        self._bytes = memoryview(cast(Any, data))
        self.at = 0

    def number(self, form: str) -> Any:
        """One number in the notation of ``struct``, without its byte order."""
        (value,) = struct.unpack_from(f"<{form}", self._bytes, self.at)
        self.at += struct.calcsize(f"<{form}")
        return value

    def take(self, size: int) -> memoryview:
        """The next ``size`` bytes."""
        if size > len(self._bytes) - self.at:
            raise GgufError("is damaged or incomplete")
        self.at += size
        return self._bytes[self.at - size : self.at]

    def texts(self, count: int) -> list[str]:
        """``count`` strings, each with its length before it. A vocabulary has 100,000: be quick."""
        data, at, length = self._bytes, self.at, struct.Struct("<Q").unpack_from
        found = []
        for _ in range(count):
            start = at + 8
            at = start + length(data, at)[0]
            if at > len(data):
                raise GgufError("is damaged or incomplete")
            found.append(str(data[start:at], "utf-8"))
        self.at = at
        return found

    def text(self) -> str:
        """A string with its length before it."""
        return self.texts(1)[0]

    def value(self, kind: GGUFValueType) -> Any:
        """A value of the metadata: a scalar, a string or an array of either."""
        if kind == GGUFValueType.STRING:
            return self.text()
        if kind != GGUFValueType.ARRAY:
            return self.numbers(kind, 1)[0].item()
        inner, count = _value_type(self.number("I")), self.number("Q")
        if inner == GGUFValueType.ARRAY:
            raise GgufError("holds arrays of arrays, which no known model has")
        if inner != GGUFValueType.STRING:
            return self.numbers(inner, count)
        return self.texts(count)

    def numbers(self, kind: GGUFValueType, count: int) -> NDArray[Any]:
        """``count`` scalars."""
        form = np.dtype(_SCALARS[kind])
        return np.frombuffer(self.take(count * form.itemsize), form)


def _read(cursor: _Cursor) -> GgufFile:
    if bytes(cursor.take(4)) != MAGIC:
        raise GgufError("is not a GGUF file")
    version = cursor.number("I")
    if version not in VERSIONS:
        raise GgufError(f"has version {version} of GGUF, and only 2 and 3 are known")
    num_tensors, num_values = cursor.number("Q"), cursor.number("Q")
    metadata: dict[str, Any] = {}
    for _ in range(num_values):
        key = cursor.text()
        if key in metadata:
            raise GgufError(f"names {key} twice")
        metadata[key] = cursor.value(_value_type(cursor.number("I")))
    found: dict[str, tuple[GGMLQuantizationType, tuple[int, ...], int]] = {}
    for _ in range(num_tensors):
        name = cursor.text()
        if name in found:
            raise GgufError(f"holds the tensor {name} twice")
        found[name] = _tensor_line(cursor)
    start = cursor.at + -cursor.at % _alignment(metadata)
    tensors = {name: _tensor(cursor.data, start, *line) for name, line in found.items()}
    return GgufFile(metadata, tensors)


def _value_type(number: int) -> GGUFValueType:
    try:
        return GGUFValueType(number)
    except ValueError as error:
        raise GgufError("is damaged or incomplete") from error


def _alignment(metadata: Mapping[str, Any]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    is_power = isinstance(value, int) and 0 < value <= MAX_ALIGNMENT and not value & (value - 1)
    if not is_power:
        raise GgufError(f"gives the alignment {value!r}, which is no power of two")
    return int(value)


def _tensor_line(cursor: _Cursor) -> tuple[GGMLQuantizationType, tuple[int, ...], int]:
    """Type, shape and offset of one tensor."""
    num_dimensions = cursor.number("I")
    if not 1 <= num_dimensions <= MAX_DIMENSIONS:
        raise GgufError("is damaged or incomplete")
    shape = tuple(reversed([cursor.number("Q") for _ in range(num_dimensions)]))
    number = cursor.number("I")
    try:
        kind = GGMLQuantizationType(number)
    except ValueError as error:
        raise GgufError(f"holds tensors of an unknown type ({number})") from error
    return kind, shape, cursor.number("Q")


def _tensor(
    data: NDArray[np.uint8],
    start: int,
    kind: GGMLQuantizationType,
    shape: tuple[int, ...],
    offset: int,
) -> GgufTensor:
    per_block, block_bytes = GGML_QUANT_SIZES[kind]
    if shape[-1] % per_block:
        raise GgufError(f"holds {kind.name} rows of {shape[-1]} numbers, which it can't")
    row_bytes = shape[-1] // per_block * block_bytes
    size, begin = math.prod(shape[:-1]) * row_bytes, start + offset
    if not size or begin + size > len(data):
        raise GgufError("is damaged or incomplete")
    return GgufTensor(kind, shape, data[begin : begin + size].reshape(-1, row_bytes))
