"""Runs decoding under torch's profiler and turns what it saw into plain operations.

The profiler makes every operation a little slower, so wall-clock time comes from the same decoding
without it. Steps are plain ones: captured graphs would show kernels without the operations they
came from. Knows the decoder; knows no figures.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from mars_runtime.acceptance import read
from mars_runtime.decoders import CursorBatch
from mars_runtime.decoders.base import Vocabulary
from mars_runtime.events import Step
from mars_runtime.lab.profiling.split import FORWARD, HEAD, STEP, Operation, Part, split
from mars_runtime.model.native.model import NativeModel
from mars_runtime.settings import DecodeSettings

CLOCKED: dict[str, Part] = {
    "products": "matmuls",
    "adapter": "adapter",
    "attention": "attention",
    "norms": "elementwise",
    "head": "head",
}
"""Parts by the names that the native clock gives them."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What ``num_steps`` steps did. parts: seconds of each step's parts, as a profiler saw them or
    the model's own clock. seconds: of the median step without the profiler; profiled_seconds: with
    it. num_tokens, num_slots: fed to the model and given logits, over all rows of a mean step."""

    parts: list[dict[Part, float]]
    num_steps: int
    seconds: float
    profiled_seconds: float
    num_tokens: float
    num_slots: float


class Marked:
    """A model whose forwards carry a mark that the profiler sees."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def hidden(self, *given: Any) -> Any:
        with record_function(FORWARD):
            return self._model.hidden(*given)

    def logits(self, *given: Any) -> Any:
        with record_function(HEAD):
            return self._model.logits(*given)

    def read(
        self, hidden: Any, head: Any, forbidden: Any, metrics: Any, draws: Any, groups: Any
    ) -> Any:
        """As the model's own, but for what a sampler head ranks anew: that has no part here."""
        return read(self.logits(hidden, head), forbidden, metrics, draws)

    def forward(self, *given: Any) -> Any:
        with record_function(FORWARD):
            return self._model.forward(*given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


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
    _timed(model, vocabulary, batches, settings, min(num_steps, 8))  # warm-up
    seconds, steps = _timed(model, vocabulary, batches, settings, num_steps)
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        profiled, _ = _timed(Marked(model), vocabulary, batches, settings, num_steps)
    trace.parent.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(trace))
    rows = [row for step in steps for row in step.rows]
    if isinstance(model, NativeModel):  # no operation of PyTorch's stands for its parts
        parts = _clocked(model, vocabulary, batches, settings, num_steps)
    else:
        parts = split(operations_of(profiler, is_cuda=device.type == "cuda"))
    return Recording(
        parts=parts,
        num_steps=len(steps),
        seconds=statistics.median(seconds),
        profiled_seconds=statistics.median(profiled),
        num_tokens=sum(row.num_fed for row in rows) / len(steps),
        num_slots=sum(len(row.proposals) for row in rows) / len(steps),
    )


def operations_of(profiler: Any, *, is_cuda: bool) -> list[Operation]:
    """The profiler's events, parents first. On CUDA an operation's time is that of its kernels."""
    events = [event for event in profiler.events() if str(event.device_type).endswith("CPU")]
    events.sort(key=lambda event: (event.thread, event.time_range.start, -event.time_range.end))
    places = {id(event): place for place, event in enumerate(events)}
    found = []
    for event in events:
        parent = places.get(id(event.cpu_parent)) if event.cpu_parent is not None else None
        micro = event.self_device_time_total if is_cuda else event.self_cpu_time_total
        found.append(Operation(event.name, parent, micro / 1e6))
    return found


def _timed(
    model: Any,
    vocabulary: Vocabulary,
    batches: Sequence[Sequence[Sequence[int]]],
    settings: DecodeSettings,
    num_steps: int,
) -> tuple[list[float], list[Step]]:
    """Seconds of each step, prefill apart, and the steps."""
    seconds: list[float] = []
    steps: list[Step] = []
    for batch in _prefilled(model, vocabulary, batches, settings):
        while batch.rows and len(steps) < num_steps:
            start = _now(model.device)
            with record_function(STEP):
                steps.append(batch.step())
            seconds.append(_now(model.device) - start)
        if len(steps) >= num_steps:
            break
    return seconds, steps


def _clocked(
    model: NativeModel,
    vocabulary: Vocabulary,
    batches: Sequence[Sequence[Sequence[int]]],
    settings: DecodeSettings,
    num_steps: int,
) -> list[dict[Part, float]]:
    """The parts of each step by the model's own clock, which looks at one of its threads."""
    found: list[dict[Part, float]] = []
    for batch in _prefilled(model, vocabulary, batches, settings):
        while batch.rows and len(found) < num_steps:
            model.clock(is_on=True)
            batch.step()
            seconds = model.clock(is_on=False)
            found.append({part: seconds[name] for name, part in CLOCKED.items()})
        if len(found) >= num_steps:
            break
    return found


def _prefilled(
    model: Any,
    vocabulary: Vocabulary,
    batches: Sequence[Sequence[Sequence[int]]],
    settings: DecodeSettings,
) -> Iterator[CursorBatch]:
    """Batches with their prompts read, in turn, again and again."""
    while True:
        for prompts in batches:
            capacity = max(map(len, prompts)) + settings.max_new_tokens
            batch = CursorBatch(model, vocabulary, len(prompts), capacity)
            for row, prompt in enumerate(prompts):
                batch.add(row, prompt, lambda: settings)
            yield batch


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
