"""Several prompts decoded together by one method: what each row wrote, and the batch in figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from app.api.begin import begun, with_checkpoint
from app.batch.order import NOTHING, read_batch_order
from app.batch.start import start_side
from app.serving.engines import Engines
from app.serving.loads import Served
from app.stream import HEARTBEAT_SECONDS
from app.transcript import Transcript
from mars_runtime import batch_folds, folds
from mars_runtime.text import Tokenizer


def batch(engines: Engines, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """``results``, one per prompt, and ``totals``, about every second; ``values`` as in the tab."""
    posted = with_checkpoint(engines, {**values, "second": NOTHING})
    order = read_batch_order(posted, engines.limits(posted["checkpoint"]))

    def start(served: Served) -> tuple[Served, Transcript]:
        (method,) = order.methods
        return served, start_side(served, order, "a", method, engines.settings.max_seconds)

    served, side = begun(engines, order.checkpoint, start)
    try:
        while side.end is None:
            side.run.wait(HEARTBEAT_SECONDS)
            side.read()
            yield _so_far(side, len(order.prompts), served.checkpoint.tokenizer)
    finally:
        side.run.cancel()


def _so_far(side: Transcript, num_prompts: int, tokenizer: Tokenizer) -> dict[str, Any]:
    totals = batch_folds.totals(side.events)
    rates = {
        "tokens_per_second": round(totals.tokens_per_second, 1),
        "effective_tpf": round(totals.effective_tpf, 3),
        "idle_share": round(totals.idle_share, 4),
    }
    return {
        "results": [_result(side, row, tokenizer) for row in range(num_prompts)],
        "totals": {**asdict(totals), **rates},
        "ended": side.end.reason if side.end else "",
        "message": side.end.message if side.end else "",
    }


def _result(side: Transcript, row: int, tokenizer: Tokenizer) -> dict[str, Any]:
    """A row as plain values; its end is that of its own text."""
    stops = [step.stop for step, _ in folds.row_steps(side.events, row)]
    return {
        "text": tokenizer.decode(side.tokens[row]),
        "num_tokens": folds.num_tokens(side.events, row),
        "num_forwards": folds.num_forwards(side.events, row),
        "tokens_per_forward": round(folds.tpf(side.events, row), 3),
        "ended": stops[-1] if row in side.finished else "",
    }
