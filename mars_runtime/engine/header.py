"""Header of a run's trace."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from mars_runtime.engine.backend import num_threads
from mars_runtime.engine.request import Request
from mars_runtime.runs.trace import Header
from mars_runtime.system.machine import device_name, versions
from mars_runtime.text import ALONE, Context

if TYPE_CHECKING:
    from mars_runtime.decoders.forward_costs import ForwardCosts
    from mars_runtime.model.load import Checkpoint

VERSIONED = ("mars-live", "torch", "python")


def facts_of(checkpoint: Checkpoint, costs: ForwardCosts | None = None) -> dict[str, Any]:
    """Return the header's fields about the checkpoint and the device."""
    model = checkpoint.model
    return {
        "checkpoint": checkpoint.name,
        "hardware": device_name(model.device),
        "dtype": model.arithmetic,
        "versions": {name: versions()[name] for name in VERSIONED},
        "threads": num_threads(checkpoint),
        "rho": dict(costs.rho) if costs is not None else {},
        "forward_seconds": costs.seconds if costs is not None else 0.0,
        "is_bitwise": model.is_bitwise,
    }


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
    """context: the conversation before the prompt, and the given beginning of the answer.
    costs: as measured by the engine. room: the engine's capacity.
    """
    return Header(
        **facts_of(checkpoint, costs),
        prompt=prompt,
        prompt_ids=tuple(request.prompt_ids),
        settings=request.settings,
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        task=task,
        name=name,
        num_given=context.num_given,
        history=context.history,
        num_left_out=context.num_left_out,
        room=room,
        system=context.system,
    )
