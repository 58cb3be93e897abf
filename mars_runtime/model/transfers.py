"""Copy numbers from the host to a device without waiting for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def to_device(values: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Return ``values`` (numbers or a tensor) as a tensor on ``device``. On CUDA the copy is
    enqueued from pinned memory, so the host does not wait.
    """
    source = values if isinstance(values, Tensor) else torch.tensor(values, dtype=dtype)
    if source.device == device or device.type == "cpu":
        return source.to(device)
    return source.pin_memory().to(device, non_blocking=True)
