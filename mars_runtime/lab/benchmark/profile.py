"""Where the time of a step goes: decoding under torch's profiler, split into parts.

The profiler makes every operation a little slower, so wall-clock time comes from the same decoding
without it. An operation belongs to the part of the nearest operation around it that has one; its
own time is what its children did not take.
"""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from mars_runtime.decoders import CursorBatch
from mars_runtime.decoders.base import Vocabulary
from mars_runtime.events import Step
from mars_runtime.lab.benchmark.forward import ForwardWork, MachineLimits, now
from mars_runtime.lab.tables import NONE, Table
from mars_runtime.model.forward import SamplingMetadata
from mars_runtime.model.native.model import NativeModel
from mars_runtime.settings import DecodeSettings

Part = Literal["matmuls", "adapter", "attention", "head", "elementwise", "acceptance", "overhead"]
"""``matmuls``: the layers' matrix products. ``adapter``: what masks are multiplied with first.
``attention``: of queries with keys and values. ``head``: the product that gives logits, and where a
model reads them itself, that too. ``elementwise``: all else in the model: norms, rotation,
activation, copies into the cache. ``acceptance``: operations outside the model, which read tokens
and confidences. ``overhead``: what no operation accounts for: Python, launching, waiting."""

PARTS: tuple[Part, ...] = get_args(Part)
STEP, FORWARD, HEAD = "mars::step", "mars::forward", "mars::head"
"""The marks around each step, around the layers of the model in it and around its head."""
MARKS = {"hidden": FORWARD, "forward": FORWARD, "logits": HEAD}

_MATMUL = re.compile(r"::(mm|addmm_?|bmm|baddbmm_?|linear\w*|\w*int8pack_mm\w*)$")
_ATTENTION = re.compile(r"attention|varlen_attn", re.IGNORECASE)
CLOCKED: dict[str, Part] = {
    "products": "matmuls",
    "adapter": "adapter",
    "attention": "attention",
    "norms": "elementwise",
    "head": "head",
}
"""Parts by the names that the native clock gives them."""


@dataclass(frozen=True, slots=True)
class Operation:
    """parent: index of the operation around it, earlier in the list; None at the top.
    seconds: its own, without its children's."""

    name: str
    parent: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Recording:
    """What ``num_steps`` steps did. parts: seconds of each step's parts, as a profiler saw them or
    the model's own clock. seconds: of the median step without the profiler; profiled_seconds: with
    it. num_tokens, num_logits: fed to the model and given logits, over all rows of a mean step.
    device_seconds: of the kernels of a mean step, None on a CPU."""

    parts: list[dict[Part, float]]
    num_steps: int
    seconds: float
    profiled_seconds: float
    num_tokens: float
    num_logits: float
    device_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One part of a step: seconds, its share, and the least that reading and computing allow
    (None where neither says anything)."""

    part: str
    seconds: float
    share: float
    read_seconds: float | None
    compute_seconds: float | None


class Marked:
    """A model whose forwards carry a mark that the profiler sees."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def read(self, hidden: Any, head: Any, sampling: SamplingMetadata) -> Any:
        """As the model's own, but for what a sampler head ranks anew: that has no part here."""
        return sampling.read(self.logits(hidden, head))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._model, name)
        return record_function(MARKS[name])(found) if name in MARKS else found


def record(
    model: Any,
    vocabulary: Vocabulary,
    batches: Sequence[Sequence[Sequence[int]]],
    settings: DecodeSettings,
    num_steps: int,
    trace: Path,
) -> Recording:
    """Decode ``batches`` of prompts for ``num_steps`` steps in all, and write ``trace`` for
    Perfetto (ui.perfetto.dev). Prefill is in the trace and in no figure. Raises DecodeError."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it prints lines of its own
    device = model.device

    def ready(decoder: Any) -> Iterator[CursorBatch]:
        return islice(_ready(decoder, vocabulary, batches, settings), num_steps)

    _timed(islice(ready(model), 8), device)  # warm-up
    seconds, steps = _timed(ready(model), device)
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        profiled, _ = _timed(ready(Marked(model)), device)
    trace.parent.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(trace))
    rows = [row for step in steps for row in step.rows]
    if isinstance(model, NativeModel):  # no operation of PyTorch's stands for its parts
        parts = [_clocked(model, batch) for batch in ready(model)]
    else:
        parts = split(operations_of(profiler, is_cuda=device.type == "cuda"))
    return Recording(
        parts=parts,
        num_steps=len(steps),
        seconds=statistics.median(seconds),
        profiled_seconds=statistics.median(profiled),
        num_tokens=sum(map(_num_fed, steps)) / len(steps),
        num_logits=sum(len(row.proposals) for row in rows) / len(steps),
        device_seconds=kernel_seconds(profiler.events()) if device.type == "cuda" else None,
    )


def _num_fed(step: Step) -> int:
    """Tokens of a forward, with those that fill its rows up to one width."""
    return len(step.rows) * max((row.num_fed for row in step.rows), default=0)


def operations_of(profiler: Any, *, is_cuda: bool) -> list[Operation]:
    """The profiler's events, parents first. On CUDA an operation's time is that of its kernels."""
    events = [event for event in profiler.events() if str(event.device_type).endswith("CPU")]
    events.sort(key=lambda event: (event.thread, event.time_range.start, -event.time_range.end))
    indices = {id(event): index for index, event in enumerate(events)}
    found = []
    for event in events:
        parent = indices.get(id(event.cpu_parent)) if event.cpu_parent is not None else None
        micro = event.self_device_time_total if is_cuda else event.self_cpu_time_total
        found.append(Operation(event.name, parent, micro / 1e6))
    return found


def kernel_seconds(events: Iterable[Any]) -> float:
    """Mean seconds of kernels per step, those of captured graphs included, from the profiler's
    events. Kernels outside of steps (prefill) are left out."""
    events = list(events)
    steps = [
        event.time_range
        for event in events
        if event.name == STEP and str(event.device_type).endswith("CPU")
    ]
    kernels = [
        event.time_range
        for event in events
        if str(event.device_type).endswith("CUDA") and not event.name.startswith("mars::")
    ]
    micro: float = sum(
        kernel.elapsed_us()
        for step in steps
        for kernel in kernels
        if step.start <= kernel.start < step.end
    )
    return micro / 1e6 / len(steps)


def _timed(batches: Iterable[CursorBatch], device: torch.device) -> tuple[list[float], list[Step]]:
    """Seconds of a step of each, prefill apart, and the steps."""
    seconds, steps = [], []
    for batch in batches:
        start = now(device)
        with record_function(STEP):
            steps.append(batch.step())
        seconds.append(now(device) - start)
    return seconds, steps


def _clocked(model: NativeModel, batch: CursorBatch) -> dict[Part, float]:
    """The parts of a step by the model's own clock, which looks at one of its threads."""
    model.clock(is_on=True)
    batch.step()
    seconds = model.clock(is_on=False)
    return {part: seconds[name] for name, part in CLOCKED.items()}


def _ready(
    model: Any,
    vocabulary: Vocabulary,
    batches: Sequence[Sequence[Sequence[int]]],
    settings: DecodeSettings,
) -> Iterator[CursorBatch]:
    """A batch whose prompts are read before each step that it has to make; batches follow each
    other, again and again."""
    for prompts in cycle(batches):
        capacity = max(map(len, prompts)) + settings.max_new_tokens
        batch = CursorBatch(model, vocabulary, len(prompts), capacity)
        for row, prompt in enumerate(prompts):
            batch.add(row, prompt, lambda: settings)
        while batch.rows:
            yield batch


def split(operations: Sequence[Operation]) -> list[dict[Part, float]]:
    """For each step the seconds of its parts but overhead; what stands in no step is left out."""
    places: list[tuple[int, Part, bool] | None] = []  # step, part, whether it is in the head
    steps: list[dict[Part, float]] = []
    for one in operations:
        above = None if one.parent is None else places[one.parent]
        if one.name == STEP:
            steps.append({part: 0.0 for part in PARTS if part not in ("adapter", "overhead")})
            above = (len(steps) - 1, "acceptance", False)
        places.append(above)
        if above is None:
            continue
        step, around, is_head = above
        part = _part(one.name, around, is_head=is_head)
        places[-1] = (step, part, is_head or one.name == HEAD)
        if one.name not in (STEP, FORWARD, HEAD):  # their own is Python's
            steps[step][part] += one.seconds
    return steps


def typical(steps: Sequence[dict[Part, float]], wall_seconds: float) -> dict[Part, float]:
    """The median of each part over steps; ``overhead`` is what is left of ``wall_seconds``, never
    below nothing."""
    found: dict[Part, float] = {
        part: statistics.median(step[part] for step in steps) for part in steps[0]
    }
    return {**found, "overhead": max(0.0, wall_seconds - sum(found.values()))}


def _part(name: str, above: Part, *, is_head: bool) -> Part:
    if name in (FORWARD, HEAD):
        return "elementwise"
    if above != "elementwise":
        return above
    if _ATTENTION.search(name):
        return "attention"
    if _MATMUL.search(name):
        return "head" if is_head else "matmuls"
    return above


def lines_of(recording: Recording, work: ForwardWork, limits: MachineLimits) -> list[Line]:
    """Every part of a typical step, then the whole."""
    wall = recording.seconds
    parts = typical(recording.parts, wall)
    head_bytes = work.head_bytes
    reads: dict[Part, int] = {"matmuls": work.weight_bytes - head_bytes, "head": head_bytes}
    works: dict[Part, float] = {
        "matmuls": work.operations(recording.num_tokens, 0),
        "head": work.operations(0, recording.num_logits),
    }
    lines = [
        Line(
            part,
            parts[part],
            parts[part] / wall,
            limits.read_seconds(reads[part]) if part in reads else None,
            limits.compute_seconds(works[part]) if part in works else None,
        )
        for part in PARTS
        if part in parts
    ]
    read = limits.read_seconds(work.weight_bytes)
    return [*lines, Line("step", wall, 1.0, read, limits.compute_seconds(sum(works.values())))]


def split_table(name: str, recording: Recording, lines: list[Line]) -> Table:
    """A line a part: milliseconds, share, the two limits, and how near the slower one is."""
    rows = tuple(
        (
            line.part,
            f"{line.seconds * 1000:.3f}",
            f"{line.share:.0%}",
            _milliseconds(line.read_seconds),
            _milliseconds(line.compute_seconds),
            _reached(line),
        )
        for line in lines
    )
    slowdown = recording.profiled_seconds / recording.seconds
    title = (
        f"{name}: medians of {recording.num_steps} steps, {recording.num_tokens:.1f} tokens fed, "
        f"{recording.num_logits:.1f} logits read; {slowdown:.2f} times as long when profiled"
    )
    columns = ("part", "ms", "share", "least to read", "least to compute", "of the limit")
    return Table(title, columns, rows)


def _milliseconds(seconds: float | None) -> str:
    return NONE if seconds is None else f"{seconds * 1000:.3f}"


def _reached(line: Line) -> str:
    """What share of the speed that the slower limit allows is reached."""
    if line.read_seconds is None or not line.seconds:
        return NONE
    return f"{max(line.read_seconds, line.compute_seconds or 0.0) / line.seconds:.0%}"
