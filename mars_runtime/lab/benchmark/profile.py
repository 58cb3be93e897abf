"""``python -m mars_runtime profile``: measure where the time of a decoding step is spent.

Four methods decode held-out prompts: AR, MARS, lossless MARS, and lossless MARS with prompt lookup
and masks after every draft. For each method the command writes the time of a step and a trace for
Perfetto (ui.perfetto.dev). On CUDA the result also has the time of the kernels in a step
(``device_seconds``); with the native model it has the time of each part of the model.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch.profiler import ProfilerActivity, profile, record_function

from mars_runtime.decoders import CursorBatch
from mars_runtime.decoders.base import Vocabulary
from mars_runtime.engine.backend import num_threads
from mars_runtime.lab.benchmark.forward import now
from mars_runtime.lab.commands import at_least_one, run_or_report
from mars_runtime.lab.evaluation.prompts import load_prompts
from mars_runtime.lab.tables import NONE, Table
from mars_runtime.model.load import load_checkpoint
from mars_runtime.model.native.model import NativeModel
from mars_runtime.outputs import check_folder, path_of, write_text
from mars_runtime.provenance import fingerprint, provenance
from mars_runtime.settings import DecodeSettings, describe
from mars_runtime.tasks import all_families

STEP = "mars::step"
"""Name of the span around each step in a trace."""
NUM_WARM_UP = 8

Prompts = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of one method.

    - trace: file name of the trace.
    - step_seconds: median time of a step, measured without the profiler.
    - device_seconds, host_seconds: mean time of the kernels of a step, and the remaining time of
      the step; None on a CPU.
    - parts: part of the native model -> its median seconds per step; empty for other models.
    """

    trace: str
    num_steps: int
    step_seconds: float
    device_seconds: float | None
    host_seconds: float | None
    parts: dict[str, float]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("profile", help="measure where the time of a step is spent")
    add = parser.add_argument
    add("--checkpoint", default="mars-tiny", help="name or folder (%(default)s)")
    add("--tau", type=float, default=0.95, help="τ of MARS (%(default)s)")
    add("--block-size", type=int, default=4, help="B of MARS (%(default)s)")
    add("--lossless-tau", type=float, default=0.0, help="τ of lossless MARS (%(default)s)")
    add("--lossless-block-size", type=int, default=8, help="B of lossless MARS (%(default)s)")
    add("--batch", type=int, default=1, help="prompts per batch (%(default)s)")
    add("--steps", type=int, default=100, help="steps to measure per method (%(default)s)")
    add("--threads", type=int, default=None, help="CPU threads (as many as an engine uses)")
    add("--seed", type=int, default=0, help="selects the prompts")
    add("--device", default="auto")
    add("--dtype", default="auto")
    add(
        "--out",
        type=path_of,
        default=Path("runs/profile"),
        help="folder for the results (%(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    return run_or_report(lambda: _run(args, Console()))


def _run(args: argparse.Namespace, console: Console) -> int:
    at_least_one(args, "batch", "steps", "threads")
    methods = _methods(args)
    sets = load_prompts(all_families(), args.seed, args.batch)
    check_folder(args.out)
    checkpoint = load_checkpoint(args.checkpoint, device=args.device, dtype=args.dtype)
    threads = args.threads or num_threads(checkpoint)
    torch.set_num_threads(threads)
    encode = checkpoint.tokenizer.encode_prompt
    batches = [[encode(task.prompt) for task in prompt_set.tasks] for prompt_set in sets]
    profiles = {
        name: record(
            *(checkpoint.model, checkpoint.tokenizer, batches, settings, args.steps),
            args.out / f"{_file_name(name)}.trace.json.gz",
        )
        for name, settings in methods.items()
    }
    subject = {
        "name": checkpoint.name,
        "fingerprint": fingerprint(checkpoint.weight_files),
        "device": str(checkpoint.model.device),
    }
    document = {"kind": "profile", "version": 2, **provenance(), "subject": subject}
    document |= {"batch": args.batch, "threads": threads}
    document["ways"] = {name: asdict(profile) for name, profile in profiles.items()}
    write_text(args.out / "profile.json", json.dumps(document, ensure_ascii=False, indent=1))
    console.print(table_of(profiles).to_rich(), crop=False)
    console.print(f"Traces for ui.perfetto.dev and profile.json are in {args.out}", markup=False)
    return 0


def _methods(args: argparse.Namespace) -> dict[str, DecodeSettings]:
    """Return the settings of the methods to profile, by name. Raises SettingsError."""
    lossless = DecodeSettings("mars", args.lossless_tau, args.lossless_block_size, lossless=True)
    methods = [
        DecodeSettings("ar", 1.0, 1),
        DecodeSettings("mars", args.tau, args.block_size),
        lossless,
        replace(lossless, mask_layout="every", lookup=True),
    ]
    return {describe(settings): settings for settings in methods}


def _file_name(method: str) -> str:
    """Return a method's name without special characters, such as ``lossless-tau-0-B-8``."""
    return method.replace("τ", "tau").replace("=", "-").replace(" ", "-")


def record(
    model: Any,
    vocabulary: Vocabulary,
    batches: Sequence[Prompts],
    settings: DecodeSettings,
    num_steps: int,
    trace: Path,
) -> Profile:
    """Profile ``num_steps`` steps of one method and write the trace to the file ``trace``.

    The trace includes prefill; the returned times do not. Raises DecodeError.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # suppresses log lines of the profiler

    def prepared(count: int) -> Iterator[CursorBatch]:
        return islice(_prefilled(model, vocabulary, batches, settings), count)

    _step_times(prepared(NUM_WARM_UP), model.device)
    seconds = _step_times(prepared(num_steps), model.device)
    is_cuda = model.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if is_cuda else [])]
    with profile(activities=activities) as profiler:
        _step_times(prepared(num_steps), model.device)
    trace.parent.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(trace))
    parts = {}
    if isinstance(model, NativeModel):
        clocked = [_native_parts(model, batch) for batch in prepared(num_steps)]
        parts = {name: statistics.median(times[name] for times in clocked) for name in clocked[0]}
    step = statistics.median(seconds)
    kernels = kernel_seconds(profiler.events()) if is_cuda else None
    host = None if kernels is None else step - kernels
    return Profile(trace.name, len(seconds), step, kernels, host, parts)


def _prefilled(
    model: Any, vocabulary: Vocabulary, batches: Sequence[Prompts], settings: DecodeSettings
) -> Iterator[CursorBatch]:
    """Yield a batch for each step to perform, without end.

    The same prefilled batch is yielded until all its rows finish; then the next batch follows.
    """
    for prompts in cycle(batches):
        capacity = max(map(len, prompts)) + settings.max_new_tokens
        batch = CursorBatch(model, vocabulary, len(prompts), capacity)
        for row, prompt in enumerate(prompts):
            batch.add(row, prompt, lambda: settings)
        while batch.rows:
            yield batch


def _step_times(batches: Iterable[CursorBatch], device: torch.device) -> list[float]:
    """Perform a step for each batch that ``batches`` yields; return the seconds of every step."""
    seconds = []
    for batch in batches:
        start = now(device)
        with record_function(STEP):
            batch.step()
        seconds.append(now(device) - start)
    return seconds


def _native_parts(model: NativeModel, batch: CursorBatch) -> dict[str, float]:
    """Perform a step and return the seconds of each part of the model, measured on one thread."""
    model.clock(is_on=True)
    batch.step()
    return model.clock(is_on=False)


def kernel_seconds(events: Iterable[Any]) -> float:
    """Return the mean seconds of GPU kernels per step, including kernels in CUDA graphs.

    Kernels outside of steps, such as those of prefill, are not counted.
    """
    events = list(events)
    steps = [
        event.time_range
        for event in events
        if event.name == STEP and str(event.device_type).endswith("CPU")
    ]
    kernels = [
        event.time_range
        for event in events
        if event.name != STEP and str(event.device_type).endswith("CUDA")
    ]
    micro: float = sum(
        kernel.elapsed_us()
        for step in steps
        for kernel in kernels
        if step.start <= kernel.start < step.end
    )
    return micro / 1e6 / len(steps)


def table_of(profiles: dict[str, Profile]) -> Table:
    """Return a table with one row per method: milliseconds of a step, its kernels and parts."""
    parts = list(next(iter(profiles.values())).parts)
    lines = tuple(
        (
            name,
            _ms(profile.step_seconds),
            _ms(profile.device_seconds),
            *(_ms(profile.parts[part]) for part in parts),
        )
        for name, profile in profiles.items()
    )
    return Table("Milliseconds of a median step", ("method", "step", "kernels", *parts), lines)


def _ms(seconds: float | None) -> str:
    return NONE if seconds is None else f"{seconds * 1000:.3f}"
