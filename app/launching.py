"""Starts the lanes of an order on an engine and words what they run on. Knows no gradio."""

from __future__ import annotations

import datetime
import functools
from dataclasses import asdict
from importlib import metadata

from app.controls import TITLES, Order
from app.engines import Served
from app.feed import RunFeed
from app.runs import Lane, LiveRace
from mars_runtime.engine.engine import EngineError
from mars_runtime.engine.request import Request, RequestError
from mars_runtime.engine.run import Run
from mars_runtime.evaluation.provenance import hardware, versions
from mars_runtime.settings import DecodeSettings, SettingsError
from mars_runtime.tasks import Task
from mars_runtime.text import TextError
from mars_runtime.trace import Header, TraceWriter

USER_ERRORS = (EngineError, RequestError, SettingsError, TextError)  # each a sentence for people


def start_run(served: Served, order: Order, max_seconds: float) -> Run:
    """Submit the order's first lane alone, at its pace. Raises USER_ERRORS."""
    settings = next(iter(order.lanes.values()))
    prompt_ids = served.checkpoint.tokenizer.encode_prompt(order.prompt, served.entry.system)
    return served.engine.submit(Request(prompt_ids, settings, max_seconds), order.pace)


def start_race(
    served: Served, order: Order, feed: RunFeed, max_seconds: float, task: Task | None = None
) -> LiveRace:
    """Submit the order's lanes together. Raises USER_ERRORS.

    max_seconds: the deadline of each lane by the wall clock, rests of slow motion included.
    """
    tokenizer = served.checkpoint.tokenizer
    prompt_ids = tokenizer.encode_prompt(order.prompt, served.entry.system)
    lanes = order.lanes
    requests = [Request(prompt_ids, settings, max_seconds) for settings in lanes.values()]
    runs = served.engine.race(requests, pace=order.pace)
    return LiveRace(
        order,
        [
            Lane(
                name,
                run,
                TraceWriter(_header(served, order, prompt_ids, name, task), tokenizer.token_bytes),
            )
            for name, run in zip(lanes, runs, strict=True)
        ],
        feed,
    )


def _header(
    served: Served, order: Order, prompt_ids: list[int], lane: str, task: Task | None
) -> Header:
    settings: DecodeSettings = order.lanes[lane]
    return Header(
        checkpoint=served.checkpoint.name,
        prompt=order.prompt,
        prompt_ids=tuple(prompt_ids),
        settings=settings,
        hardware=device_name(served),
        dtype=dtype_name(served),
        versions=_versions(),
        threads=served.threads,
        date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        task=asdict(task) if task is not None else None,
        name=TITLES[lane],
    )


def device_name(served: Served) -> str:
    """The processor or GPU that decodes, in words."""
    found = _hardware()
    device = served.checkpoint.model.device
    if device.type == "cuda":
        return str(found["gpus"][device.index or 0])
    return f"{found['processor']}, {found['cores']} cores"


def dtype_name(served: Served) -> str:
    """The arithmetic of the weights, such as float32."""
    return str(served.checkpoint.model.dtype).removeprefix("torch.")


def footer(served: Served) -> str:
    """One line: what decodes, with which versions, and under which licence the checkpoint is."""
    entry, found, threads = served.entry, _versions(), served.threads
    parts = [
        f"{device_name(served)}, {threads} {'thread' if threads == 1 else 'threads'}",
        dtype_name(served),
        " · ".join(f"{name} {found[name]}" for name in ("torch", "gradio") if name in found),
        "all figures measured by this process",
        f"{served.checkpoint.name}: " + (entry.licence or "licence not stated"),
        entry.note,
    ]
    return " · ".join(part for part in parts if part)


@functools.cache
def _versions() -> dict[str, str]:
    return {**versions(), "gradio": metadata.version("gradio")}


@functools.cache
def _hardware() -> dict[str, object]:
    return hardware()
