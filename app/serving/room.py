"""Whether a checkpoint fits into the memory that is left, asked before it is read.

Knows the sizes of its matrices, from the head of its files, and none of its weights.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from mars_runtime.machine import free_memory
from mars_runtime.model.config import CheckpointError

if TYPE_CHECKING:
    import torch

SPARE = 1.3  # times its weights: what decoding needs, and everybody else on the machine
BYTES = {"fp32": 4.0, "float32": 4.0, "bf16": 2.0, "bfloat16": 2.0, "int8": 1.25, "int4": 1.25}
GGUF_BYTES = 0.6  # of a weight in a file of four bits each
MAX_HEAD = 100_000_000
GIGABYTE = 1e9


class RoomError(CheckpointError):
    """It would fit if others left."""


def check_room(name: str, path: Path, device: str, dtype: str) -> None:
    """Raises RoomError where the checkpoint in ``path``, a folder or a GGUF file, does not
    fit on the device; where neither can be told, nothing is refused."""
    from mars_runtime.model.load import choose_device

    where = choose_device(device)
    free = _free_on_gpu(where) if where.type == "cuda" else free_memory()
    usual = "bf16" if where.type == "cuda" else "int8" if path.is_file() else "fp32"
    needed = SPARE * num_weights(path) * BYTES.get(dtype, BYTES[usual])
    if free is not None and needed > free:
        raise RoomError(
            f"{name} needs some {needed / GIGABYTE:.1f} GB of memory and "
            f"{free / GIGABYTE:.1f} GB are free: choose a smaller one."
        )


def num_weights(path: Path) -> int:
    """Numbers in all matrices; 0 where that cannot be told: what is damaged is refused later."""
    if path.is_file():
        return round(path.stat().st_size / GGUF_BYTES)
    return sum(map(_in_safetensors, path.glob("*.safetensors")))


def _in_safetensors(path: Path) -> int:
    """From the head of a file: eight bytes that hold its length, then JSON."""
    try:
        with path.open("rb") as file:
            head = json.loads(file.read(min(MAX_HEAD, int.from_bytes(file.read(8), "little"))))
        return sum(math.prod(each["shape"]) for name, each in head.items() if name[0] != "_")
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return 0


def _free_on_gpu(device: torch.device) -> int:
    import torch

    return int(torch.cuda.mem_get_info(device)[0])
