"""Copy numbers from the host to a device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def to_device(values: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """values: numbers or a tensor. The host does not wait for CUDA, which copies from pinned
    memory.
    """
    source = values if isinstance(values, Tensor) else torch.tensor(values, dtype=dtype)
    if source.device == device or device.type == "cpu":
        return source.to(device)
    return source.pin_memory().to(device, non_blocking=True)
