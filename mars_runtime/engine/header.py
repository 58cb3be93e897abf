"""Header of a run's trace."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
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


@dataclass(frozen=True, slots=True)
class Facts:
    checkpoint: str
    hardware: str = ""
    dtype: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    threads: int = 1
    rho: dict[int, tuple[float, ...]] = field(default_factory=dict)
    forward_seconds: float = 0.0
    is_bitwise: bool = False


def facts_of(checkpoint: Checkpoint, costs: ForwardCosts | None = None) -> Facts:
    model = checkpoint.model
    return Facts(
        checkpoint=checkpoint.name,
        hardware=device_name(model.device),
        dtype=model.arithmetic,
        versions={name: versions()[name] for name in VERSIONED},
        threads=num_threads(checkpoint),
        rho=dict(costs.rho) if costs is not None else {},
        forward_seconds=costs.seconds if costs is not None else 0.0,
        is_bitwise=model.is_bitwise,
    )


def make_header(
    about: Checkpoint | Facts,
    prompt: str,
    request: Request,
    *,
    costs: ForwardCosts | None = None,
    task: dict[str, Any] | None = None,
    name: str = "",
    context: Context = ALONE,
    room: int = 0,
) -> Header:
    """about: the checkpoint if it is loaded in this process, else its facts.
    costs: as measured by the engine. room: the engine's capacity.
    context: the conversation before the prompt, and the given beginning of the answer.
    """
    facts = about if isinstance(about, Facts) else facts_of(about, costs)
    return Header(
        **{fact.name: getattr(facts, fact.name) for fact in fields(facts)},
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
