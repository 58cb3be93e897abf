"""The header of a run's trace: on what, with what and when. Knows no events and no drawing."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from mars_runtime.engine.backend import num_threads
from mars_runtime.engine.request import Request
from mars_runtime.machine import device_name, versions
from mars_runtime.trace import Header
from mars_runtime.turns import ALONE, Context

if TYPE_CHECKING:
    from mars_runtime.decoders.adaptive import ForwardCosts
    from mars_runtime.model.load import Checkpoint

VERSIONED = ("mars-live", "torch", "python")
"""What the arithmetic and its clock depend on; a trace names no more."""


def make_header(
    checkpoint: Checkpoint,
    prompt: str,
    request: Request,
    *,
    costs: ForwardCosts | None = None,
    task: dict[str, Any] | None = None,
    name: str = "",
    context: Context = ALONE,
    room: int = 0,
) -> Header:
    """The header for the trace of ``request``, which asks ``prompt`` of ``checkpoint``, now.

    costs: as the engine that serves it measured them. context: what stands before the prompt, and
    after it. room: the engine's.
    """
    from mars_runtime.engine.memory import slot_bytes

    model = checkpoint.model
    return Header(
        checkpoint=checkpoint.name,
        prompt=prompt,
        prompt_ids=tuple(request.prompt_ids),
        settings=request.settings,
        hardware=device_name(model.device),
        dtype=model.arithmetic,
        versions={name: versions()[name] for name in VERSIONED},
        threads=num_threads(checkpoint),
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        task=task,
        name=name,
        rho=dict(costs.rho) if costs is not None else {},
        forward_seconds=costs.seconds if costs is not None else 0.0,
        is_bitwise=model.is_bitwise,
        num_given=context.num_given,
        slot_bytes=slot_bytes(model),
        history=context.history,
        num_left_out=context.num_left_out,
        room=room,
    )
