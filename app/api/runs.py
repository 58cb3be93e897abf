"""One prompt by one method or by two: text and figures, the comparison with AR, the trace."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from app.api.begin import begun, checkpoint_of
from app.controls import RACE, TITLES, RefusalError, read_order
from app.engines import Served
from app.handlers import POLL_SECONDS, Handlers
from app.launching import start_lanes
from app.runs import Lane
from app.waiting import HEARTBEAT_SECONDS
from mars_runtime import folds
from mars_runtime.events import End, Event
from mars_runtime.text import Detokenizer


def generate(handlers: Handlers, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Text and figures of one run; ``values`` are controls, ``method`` among them."""
    with _lanes(handlers, values, _method(values)) as (told,):
        for _ in _news([told], POLL_SECONDS):
            yield told.item()


def compare(handlers: Handlers, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """MARS against plain AR on a fair clock: what each wrote, and where they first differ."""
    with _lanes(handlers, values, RACE) as (mars, ar):
        for _ in _news([mars, ar], POLL_SECONDS):
            one, other = mars.item(), ar.item()
            place = folds.first_divergence(mars.events, ar.events)
            is_whole = mars.is_over and ar.is_over and one["num_tokens"] == other["num_tokens"]
            speedup = folds.speedup(mars.events, ar.events)
            yield {
                "mars": one,
                "ar": other,
                "speedup": None if speedup is None else round(speedup, 3),
                "first_divergence": place,
                "is_same_text": is_whole and place is None,
            }


def traces(handlers: Handlers, values: Mapping[str, Any]) -> Iterator[list[str]]:
    """The trace of one run: header, events and end, a line of JSON each."""
    with _lanes(handlers, values, _method(values)) as (told,):
        for _ in _news([told], HEARTBEAT_SECONDS):
            yield list(told.lines)


class Told:
    """A lane, and what was read of it so far."""

    def __init__(self, lane: Lane, token_bytes: Callable[[int], bytes]) -> None:
        self.lines: list[str] = []
        self.events: list[Event] = []
        self._lane = lane
        self._text = ""
        self._detokenizer = Detokenizer(token_bytes)

    @property
    def is_over(self) -> bool:
        """Whether the end was read."""
        return bool(self.events) and isinstance(self.events[-1], End)

    def wait(self, seconds: float) -> None:
        """Wait that long, or until the run has ended."""
        self._lane.run.wait(seconds)

    def read(self) -> bool:
        """Read what came since the last call; says whether anything did."""
        news = self._lane.run.events_since(len(self.events))
        if news and not self.events:
            self.lines.append(self._lane.writer.header_line())
        self.lines += map(self._lane.writer.line, news)
        for step, _ in folds.row_steps(news):
            self._text += self._detokenizer.push(folds.visible_tokens(step))
        self.events += news
        if news and self.is_over:  # an answer may end in the middle of a character
            self._text += self._detokenizer.flush()
        return bool(news)

    def item(self) -> dict[str, Any]:
        """Text, figures and end, as far as they are known."""
        events, end = self.events, folds.end(self.events)
        return {
            "text": self._text,
            "num_tokens": folds.num_tokens(events),
            "num_forwards": folds.num_forwards(events),
            "tokens_per_forward": round(folds.tpf(events), 3),
            "tokens_per_second": round(folds.tokens_per_second(events), 1),
            "seconds": round(folds.decode_seconds(events), 4),
            "ended": end.reason if end else "",
            "message": end.message if end else "",
        }


def _method(values: Mapping[str, Any]) -> str:
    """The one lane that is asked for. Raises RefusalError."""
    method = values.get("method")
    if not isinstance(method, str) or method not in TITLES:
        raise RefusalError("method", f"Choose the method: {' or '.join(TITLES)}.")
    return method


@contextmanager
def _lanes(handlers: Handlers, values: Mapping[str, Any], view: object) -> Iterator[list[Told]]:
    """The lanes of what is asked, begun; cancelled at the end. Raises RefusalError."""
    name = checkpoint_of(handlers, values)
    asked = {**values, "view": view, "pace": 0, "checkpoint": name}
    order = read_order(asked, handlers.limits(name))

    def start(served: Served) -> tuple[Served, Sequence[Lane]]:
        task = handlers.book.task(order.prompt)
        return served, start_lanes(served, order, handlers.settings.max_seconds, task)

    served, lanes = begun(handlers, name, start)
    try:
        yield [Told(lane, served.checkpoint.tokenizer.token_bytes) for lane in lanes]
    finally:
        for lane in lanes:
            lane.run.cancel()


def _news(lanes: Sequence[Told], seconds: float) -> Iterator[None]:
    """Whenever something came, at most once in ``seconds``, and now and then without: a quiet
    generator would not be closed."""
    shown = time.monotonic()
    while running := [lane for lane in lanes if not lane.is_over]:
        running[0].wait(seconds)
        num_read = sum(lane.read() for lane in running)
        if num_read or time.monotonic() - shown > HEARTBEAT_SECONDS:
            shown = time.monotonic()
            yield
