"""Starts the lanes of an order on an engine and words what they run on. Knows no gradio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from app.controls import TITLES, Order, RefusalError
from app.engines import Served
from app.runs import Lane
from mars_runtime.engine.engine import EngineError
from mars_runtime.engine.header import make_header
from mars_runtime.engine.request import Request, RequestError
from mars_runtime.machine import device_name, versions
from mars_runtime.settings import SettingsError
from mars_runtime.tasks import Task
from mars_runtime.text import TextError
from mars_runtime.trace import TraceWriter

USER_ERRORS = (EngineError, RequestError, SettingsError, TextError)  # each a sentence for people


def check_given(served: Served, given: Sequence[int]) -> None:
    """Raises RefusalError for tokens that no output of this checkpoint could go on from."""
    tokenizer = served.checkpoint.tokenizer
    if any(not 0 <= token < tokenizer.size for token in given):
        raise RefusalError("given", "The tokens to go on from are not of this checkpoint.")
    if tokenizer.eos_ids.intersection(given):
        raise RefusalError("given", "This token ends the text: nothing comes behind it.")
    if tokenizer.forbidden_ids.intersection(given):
        raise RefusalError("given", "A control token is no part of a text: choose another.")


def start_lanes(
    served: Served, order: Order, max_seconds: float, task: Task | None = None
) -> list[Lane]:
    """Submit the order's lanes together. Raises USER_ERRORS and RefusalError.

    max_seconds: the deadline of each lane by the wall clock, rests of slow motion included.
    """
    check_given(served, order.given)
    tokenizer = served.checkpoint.tokenizer
    prompt_ids = [*tokenizer.encode_prompt(order.prompt), *order.given]
    requests = {
        name: Request(prompt_ids, settings, max_seconds, is_checked=True)
        for name, settings in order.lanes.items()
    }
    writers = [
        writer_of(served, order.prompt, request, task, len(order.given))
        for request in requests.values()
    ]
    runs = served.engine.race(list(requests.values()), pace=order.pace)
    return list(map(Lane, requests, runs, writers))


def writer_of(
    served: Served, prompt: str, request: Request, task: Task | None, num_given: int = 0
) -> TraceWriter:
    """What writes down the trace of a request, under its header.

    task: what the prompt is, where that is known. num_given: tokens of the output in the prompt.
    """
    header = make_header(
        served.checkpoint,
        prompt,
        request,
        costs=served.engine.costs(),
        task=asdict(task) if task is not None else None,
        name=TITLES[request.settings.method],
        num_given=num_given,
    )
    return TraceWriter(header, served.checkpoint.tokenizer.token_bytes)


def dtype_name(served: Served) -> str:
    """The arithmetic of the weights, such as float32."""
    return served.checkpoint.model.arithmetic


def footer(served: Served) -> str:
    """One line: what decodes, with which versions, and under which licence the checkpoint is."""
    entry, found, threads = served.entry, versions(), served.threads
    machine = device_name(served.checkpoint.model.device)
    is_bitwise = served.checkpoint.model.is_bitwise
    parts = [
        f"{machine}, {threads} {'thread' if threads == 1 else 'threads'}",
        dtype_name(served),
        "lossless is bitwise" if is_bitwise else "lossless is exact up to near ties",
        " · ".join(f"{name} {found[name]}" for name in ("torch", "gradio") if name in found),
        "all figures measured by this process",
        f"{served.checkpoint.name}: " + (entry.licence or "licence not stated"),
        entry.note,
    ]
    return " · ".join(part for part in parts if part)
