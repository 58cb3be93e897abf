"""Several prompts decoded together by one method: what each row wrote, and the batch in figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from app.api.begin import awaited, refused, with_checkpoint
from app.batch.order import NOTHING, read_batch_order
from app.batch.run import start_side
from app.serving.engines import Engines
from app.stream import HEARTBEAT_SECONDS, Transcript
from mars_runtime import batch_folds, folds
from mars_runtime.events import End, Event
from mars_runtime.text import Tokenizer


def batch(engines: Engines, values: Mapping[str, Any], owner: str = "") -> Iterator[dict[str, Any]]:
    """``results``, one per prompt, and ``totals``, about every second; ``values`` as in the tab.
    ``owner``: the address that asks."""
    posted = with_checkpoint(engines, {**values, "second": NOTHING})
    order = read_batch_order(posted, engines.limits(posted["checkpoint"]))

    results = [_figures("", ())] * len(order.prompts)
    served = yield from awaited(engines, order.checkpoint, partial(_item, results, ()))
    (method,) = order.methods
    with refused():
        side = start_side(served, order, "a", method, engines.settings.max_seconds, owner)
    try:
        while side.end is None:
            side.run.wait(HEARTBEAT_SECONDS)
            side.read()
            yield _so_far(side, len(order.prompts), served.checkpoint.tokenizer)
    finally:
        side.run.cancel()


def _so_far(side: Transcript, num_prompts: int, tokenizer: Tokenizer) -> dict[str, Any]:
    results = [_result(side, row, tokenizer) for row in range(num_prompts)]
    return _item(results, side.events, end=side.end)


def _item(
    results: list[dict[str, Any]],
    events: Sequence[Event],
    message: str = "",
    end: End | None = None,
) -> dict[str, Any]:
    """A batch in figures; message: unless it has ended with one of its own."""
    totals = batch_folds.totals(events)
    rates = {
        "tokens_per_second": round(totals.tokens_per_second, 1),
        "effective_tpf": round(totals.effective_tpf, 3),
        "idle_share": round(totals.idle_share, 4),
    }
    return {
        "results": results,
        "totals": {**asdict(totals), **rates},
        "ended": end.reason if end else "",
        "message": end.message if end else message,
    }


def _result(side: Transcript, row: int, tokenizer: Tokenizer) -> dict[str, Any]:
    """A row as plain values; its end is that of its own text."""
    stops = [step.stop for step, _ in folds.row_steps(side.events, row)]
    ended = stops[-1] if row in side.finished else ""
    return _figures(tokenizer.decode(side.tokens[row]), side.events, row, ended)


def _figures(text: str, events: Sequence[Event], row: int = 0, ended: str = "") -> dict[str, Any]:
    return {
        "text": text,
        "num_tokens": folds.num_tokens(events, row),
        "num_forwards": folds.num_forwards(events, row),
        "tokens_per_forward": round(folds.tpf(events, row), 3),
        "ended": ended,
    }
