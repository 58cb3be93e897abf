"""The typed endpoint's stream: text and figures of one run, without the page. Knows no gradio."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from app.controls import RefusalError, read_order
from app.handlers import POLL_SECONDS, Handlers, sentence_of
from app.launching import start_run
from mars_runtime import folds
from mars_runtime.engine.run import Run
from mars_runtime.events import End, Event
from mars_runtime.text import Detokenizer


def stream(handlers: Handlers, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Decode at full speed; an item whenever tokens came, at most twelve a second.

    Raises RefusalError for anything that cannot be run. Closing it cancels the run.
    """
    name = handlers.engines.default
    order = read_order({**values, "pace": 0, "checkpoint": name}, handlers.limits(name))
    try:
        served = handlers.engines.get(name)
        assert served is not None, "without a timeout it is loaded or refused"
        run = start_run(served, order, handlers.settings.max_seconds)
    except Exception as error:
        raise RefusalError("prompt", sentence_of(error)) from None
    try:
        yield from _items(run, Detokenizer(served.checkpoint.tokenizer.token_bytes))
    finally:
        run.cancel()


def _items(run: Run, detokenizer: Detokenizer) -> Iterator[dict[str, Any]]:
    """The run so far, whenever that has changed; the last item says how it ended."""
    events: list[Event] = []
    text = ""
    while not (events and isinstance(events[-1], End)):
        run.wait(POLL_SECONDS)
        news = run.events_since(len(events))
        if not news:
            continue
        for step, _ in folds.row_steps(news):
            text += detokenizer.push(folds.visible_tokens(step))
        events += news
        yield _item(text, events)


def _item(text: str, events: list[Event]) -> dict[str, Any]:
    end = folds.end(events)
    return {
        "text": text,
        "num_tokens": folds.num_tokens(events),
        "num_forwards": folds.num_forwards(events),
        "tokens_per_forward": round(folds.tpf(events), 3),
        "tokens_per_second": round(folds.tokens_per_second(events), 1),
        "seconds": round(folds.decode_seconds(events), 4),
        "ended": end.reason if end else "",
        "message": end.message if end else "",
    }
