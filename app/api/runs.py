"""The functions behind the typed endpoints: one prompt with one method, a comparison with AR, a
trace, or a batch of prompts.

Each function is a generator of growing results as plain values; the last result is complete. Raises
RefusalError with one sentence if the request is invalid or cannot run. Closing a generator cancels
its runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from app.engines.engines import Engines, LoadedModel
from app.engines.limits import Limits, RefusalError
from app.live.lanes import start_lanes
from app.live.order import LiveOrder
from app.throughput.run import start_batch
from app.ui.controls import (
    PLAIN,
    RACE,
    TITLES,
    Order,
    Whole,
    control,
    read_controls,
    read_prompt,
    settings_for,
)
from app.ui.examples import ExampleBook
from app.ui.stream import HEARTBEAT_SECONDS, POLL_SECONDS, Transcript, loaded, sentence_of
from mars_runtime.runs import folds
from mars_runtime.runs.events import End, Event
from mars_runtime.runs.speedup import run_speedup
from mars_runtime.text import Detokenizer, Tokenizer

T = TypeVar("T")


def generate(
    engines: Engines, book: ExampleBook, values: Mapping[str, Any], owner: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield the text of one run and figures such as tokens per second. values: the values of the
    controls, and the name of the ``method``. owner: the client's address.
    """
    order = _order(engines, values, [values.get("method")])
    served = yield from awaited(engines, order.checkpoint, partial(_item, "", ()))
    with _lanes(engines, book, served, order, owner) as (answer,):
        for _ in _news([answer], POLL_SECONDS):
            yield answer.item()


def compare(
    engines: Engines, book: ExampleBook, values: Mapping[str, Any], owner: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield a comparison of MARS with plain AR: both texts with figures such as tokens per second,
    the speedup, and where the texts first differ.
    """
    order = _order(engines, values, RACE)

    def nothing(situation: str) -> dict[str, Any]:
        item = _item("", (), situation)
        return _comparison(item, item)

    served = yield from awaited(engines, order.checkpoint, nothing)
    with _lanes(engines, book, served, order, owner) as (mars, ar):
        for _ in _news([mars, ar], POLL_SECONDS):
            yield _comparison(mars.item(), ar.item(), mars.transcript.events, ar.transcript.events)


def traces(
    engines: Engines, book: ExampleBook, values: Mapping[str, Any], owner: str = ""
) -> Iterator[list[str]]:
    """Yield the lines of a run's trace so far: a header, events and an end, as JSON."""
    order = _order(engines, values, [values.get("method")])
    served = yield from awaited(engines, order.checkpoint, lambda _: [])
    with _lanes(engines, book, served, order, owner) as (answer,):
        for _ in _news([answer], HEARTBEAT_SECONDS):
            yield list(answer.lines)


def batch(engines: Engines, values: Mapping[str, Any], owner: str = "") -> Iterator[dict[str, Any]]:
    """Yield ``results``, one per prompt, and ``totals``, about once per second.

    values: the fields of BatchOrder and settings. owner: the client's address.
    """
    posted = with_checkpoint(engines, values)
    order = read_controls(BatchOrder, posted, engines.limits(posted["checkpoint"]), PLAIN)
    prompts, settings = order.prompts, settings_for(order.method, order.settings)

    results = [{**_figures("", ()), "ended": ""}] * len(prompts)
    served = yield from awaited(engines, order.checkpoint, partial(_batch_item, results, ()))
    with refused():
        rest = order.system, engines.settings.max_seconds, owner
        run = start_batch(served, prompts, settings, order.batch_size, *rest)
    try:
        while run.end is None:
            run.run.wait(HEARTBEAT_SECONDS)
            run.new_events()
            tokenizer = served.checkpoint.tokenizer
            results = [_result(run, row, tokenizer) for row in range(len(prompts))]
            yield _batch_item(results, run.events, end=run.end)
    finally:
        run.run.cancel()


def _read_prompts(value: object, limits: Limits) -> list[str]:
    """Validate a list of prompts. Raises RefusalError."""
    texts = list(value) if isinstance(value, (list, tuple)) else []
    if not 1 <= len(texts) <= MAX_PROMPTS:
        raise RefusalError("prompts", f"Give 1 to {MAX_PROMPTS} prompts, got {len(texts)}.")
    prompts = []
    for number, text in enumerate(texts, 1):
        try:
            prompts.append(read_prompt(text, limits))
        except RefusalError as refusal:
            raise RefusalError("prompts", f"Prompt {number}: {refusal}") from None
    return prompts


MAX_PROMPTS = MAX_BATCH = 16


class BatchOrder(Order):
    """A validated request to decode prompts together."""

    prompts: Annotated[list[str], control(_read_prompts)]
    method: Literal["mars", "ar", "lookup"]
    batch_size: Annotated[int, Field(ge=1, le=MAX_BATCH), Whole]


def with_checkpoint(engines: Engines, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values. If they name no checkpoint, add the page's default."""
    return {**values, "checkpoint": values.get("checkpoint") or engines.default}


def awaited(
    engines: Engines, name: str, so_far: Callable[[str], T]
) -> Generator[T, None, LoadedModel]:
    """Wait until the checkpoint is loaded and warmed up, and return it.

    In the meantime, yields ``so_far(status)``, because Gradio can stop the generator of a
    disconnected client only when it yields. Raises RefusalError.
    """
    until = time.monotonic() + engines.settings.max_seconds
    with refused(), engines.kept(name):
        return (yield from loaded(engines, name, so_far, until))


@contextmanager
def refused() -> Iterator[None]:
    """Turn any exception into a RefusalError."""
    try:
        yield
    except Exception as error:
        raise RefusalError("prompt", sentence_of(error)) from None


class ReadLane:
    """The text and trace lines that have been read from a lane so far."""

    def __init__(self, transcript: Transcript, token_bytes: Callable[[int], bytes]) -> None:
        self.transcript = transcript
        self.lines: list[str] = []
        self._text = ""
        self._detokenizer = Detokenizer(token_bytes)

    def read_new_events(self) -> bool:
        """Read new events. Return whether there were any."""
        num_read = len(self.transcript.events)
        lines = self.transcript.new_lines()
        self.lines += lines
        for step, _ in folds.row_steps(self.transcript.events[num_read:]):
            self._text += self._detokenizer.push(folds.visible_tokens(step))
        if lines and self.transcript.end:  # the last token may end inside a character
            self._text += self._detokenizer.flush()
        return bool(lines)

    def item(self) -> dict[str, Any]:
        """Return the text, figures and end of the lane, from the events read so far."""
        return _item(self._text, self.transcript.events, end=self.transcript.end)


def _item(
    text: str, events: Sequence[Event], message: str = "", end: End | None = None
) -> dict[str, Any]:
    """Return the result for a lane. message: the message to return while ``end`` is None."""
    return {
        **_figures(text, events),
        "tokens_per_second": round(folds.tokens_per_second(events), 1),
        "seconds": round(folds.decode_seconds(events), 4),
        **_ending(end, message),
    }


def _batch_item(
    results: list[dict[str, Any]],
    events: Sequence[Event],
    message: str = "",
    end: End | None = None,
) -> dict[str, Any]:
    """Return the result for a batch. message: the message to return while ``end`` is None."""
    totals = folds.totals(events)
    rates = {
        "tokens_per_second": round(totals.tokens_per_second, 1),
        "effective_tpf": round(totals.effective_tpf, 3),
    }
    return {"results": results, "totals": {**asdict(totals), **rates}, **_ending(end, message)}


def _result(run: Transcript, row: int, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the result for one row of a batch. ``ended`` is the reason why this row's text
    ended.
    """
    stops = [step.stop for step, _ in folds.row_steps(run.events, row)]
    ended = stops[-1] if row in run.finished else ""
    return {**_figures(tokenizer.decode(run.tokens[row]), run.events, row), "ended": ended}


def _figures(text: str, events: Sequence[Event], row: int = 0) -> dict[str, Any]:
    return {
        "text": text,
        "num_tokens": folds.num_tokens(events, row),
        "num_forwards": folds.num_forwards(events, row),
        "tokens_per_forward": round(folds.tpf(events, row), 3),
        "loops_at": folds.loops_at(events, row),
    }


def _ending(end: End | None, message: str) -> dict[str, str]:
    return {"ended": end.reason if end else "", "message": end.message if end else message}


def _comparison(
    one: dict[str, Any],
    other: dict[str, Any],
    mars: Sequence[Event] = (),
    ar: Sequence[Event] = (),
) -> dict[str, Any]:
    """Return the result of comparing MARS with plain AR.

    one, other: the results (``_item``) of the MARS lane and of the AR lane. mars, ar: the events of
    these lanes.
    """
    first_divergence = folds.first_divergence(mars, ar)
    is_whole = one["ended"] and other["ended"] and one["num_tokens"] == other["num_tokens"]
    speedup = run_speedup(mars, ar)
    return {
        "mars": one,
        "ar": other,
        "speedup": None if speedup.reported is None else round(speedup.reported, 3),
        "speedup_note": speedup.note,
        "first_divergence": first_divergence,
        "is_same_text": bool(is_whole) and first_divergence is None,
    }


def _order(engines: Engines, values: Mapping[str, Any], lanes: Sequence[object]) -> LiveOrder:
    """Return the validated request to run these methods. Raises RefusalError."""
    posted = with_checkpoint(engines, values)
    for lane in lanes:
        if not isinstance(lane, str) or lane not in TITLES:
            raise RefusalError("method", f"method must be one of {', '.join(TITLES)}.")
    limits = engines.limits(posted["checkpoint"])
    return read_controls(LiveOrder, {**posted, "view": lanes}, limits)


@contextmanager
def _lanes(
    engines: Engines, book: ExampleBook, served: LoadedModel, order: LiveOrder, owner: str
) -> Iterator[list[ReadLane]]:
    """Start the lanes of the request inside the ``with`` block, and cancel them at its end. Raises
    RefusalError.
    """
    with refused():
        task = book.task(order.prompt)
        lanes = start_lanes(served, order, engines.settings.max_seconds, task, owner)
    try:
        yield [ReadLane(lane, served.checkpoint.tokenizer.token_bytes) for lane in lanes]
    finally:
        for lane in lanes:
            lane.run.cancel()


def _news(lanes: Sequence[ReadLane], seconds: float) -> Iterator[None]:
    """Yield when there are new events, at most once per ``seconds``. Without new events, yield
    every HEARTBEAT_SECONDS, so that Gradio can close the generator.
    """
    shown = time.monotonic()
    while running := [lane for lane in lanes if lane.transcript.end is None]:
        running[0].transcript.run.wait(seconds)
        num_news = sum(lane.read_new_events() for lane in running)
        if num_news or time.monotonic() - shown > HEARTBEAT_SECONDS:
            shown = time.monotonic()
            yield
