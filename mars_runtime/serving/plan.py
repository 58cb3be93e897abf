"""What is to be served, and how: told by flags, handed to whoever brings the model.

Knows no HTTP, and imports nothing heavy before a model is brought.
"""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mars_runtime.serving.metrics import Metrics
    from mars_runtime.serving.models import EngineModel


KEY = "MARS_API_KEY"
"""The environment variable with the key that callers must send; none is asked for without it."""


PROXIES = "MARS_NUM_PROXIES"
"""The environment variable with the number of trusted proxies before the server."""


class PlanError(ValueError):
    """A plan that makes no sense; the message is one sentence."""


def num_proxies() -> int:
    """How many there are (``limits.Proxies``). Raises PlanError."""
    text = os.environ.get(PROXIES, "").strip() or "0"
    if not re.fullmatch(r"[0-9]{1,3}", text):
        raise PlanError(f"{PROXIES} must be a whole number, such as 1.")
    return int(text)


@dataclass(frozen=True, slots=True)
class ServePlan:
    """A checkpoint behind an endpoint. max_runs, max_waiting: served at once and in line, by each
    replica where there are several.

    threads: of the arithmetic of a replica, and the cores that are set aside for it; min_replicas,
    max_replicas: as many as the requests that are going call for. Raises PlanError.
    """

    checkpoint: str
    device: str = "auto"
    dtype: str = "auto"
    max_runs: int = 8
    max_waiting: int = 32
    threads: int = 1
    min_replicas: int = 1
    max_replicas: int = 2

    def __post_init__(self) -> None:
        if self.max_runs < 1 or self.max_waiting < 0:
            raise PlanError("Serve at least 1 request at once, with a line of 0 or more.")
        if self.threads < 1:
            raise PlanError("Give every replica at least 1 thread.")
        if not 1 <= self.min_replicas <= self.max_replicas:
            raise PlanError("Choose at least 1 replica, and no fewer at most than at least.")

    @classmethod
    def of(cls, args: argparse.Namespace) -> ServePlan:
        """What flags of these names ask for. Raises PlanError."""
        return cls(**{field.name: getattr(args, field.name) for field in fields(cls)})


def bring(plan: ServePlan, metrics: Metrics | None = None) -> EngineModel:
    """Load what was asked for, and count what it does where that is asked for. Raises
    CheckpointError."""
    from mars_runtime.engine.engine import Engine
    from mars_runtime.model.load import load_checkpoint
    from mars_runtime.serving.models import EngineModel

    checkpoint = load_checkpoint(plan.checkpoint, device=plan.device, dtype=plan.dtype)
    engine = Engine(checkpoint, max_runs=plan.max_runs, max_waiting=plan.max_waiting)
    if metrics is not None:
        metrics.watch(checkpoint.name, engine)
    return EngineModel.of(checkpoint, engine)
