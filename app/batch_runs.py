"""The batch that a visitor is running: its methods in turn, and the lines the page reads of them.

The first line of a value (``components/race_value.py``) names the sides and the prompts; further
lines are a side's trace lines without its proposals, which nobody draws here, and under ``totals``
and ``figures`` what is folded from the events. Knows no gradio, drawing or model.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from app.batch_charts import Side, forwards_figure, time_figure
from app.batch_order import BatchOrder
from app.feed import Feed
from mars_runtime.batch_folds import totals
from mars_runtime.events import End, Event, Step
from mars_runtime.folds import visible_tokens

if TYPE_CHECKING:
    from mars_runtime.engine.run import Run
    from mars_runtime.trace import TraceWriter

TOTALS_SECONDS = 0.5  # folding a batch takes a millisecond or two beside the decoding thread


class BatchFeed(Feed):
    """The lines of one batch. Its statuses are of the kinds ``waiting``, ``running``, ``stopped``,
    ``finished`` and ``error``."""

    def __init__(self, sides: Sequence[tuple[str, str, str]], prompts: Sequence[str]) -> None:
        """``sides``: (name, method, title) of each."""
        heads = [{"side": name, "method": method, "title": title} for name, method, title in sides]
        super().__init__({"run": uuid.uuid4().hex, "sides": heads, "prompts": list(prompts)})


@dataclass
class BatchSide:
    """One method's run, and what was seen of it."""

    name: str
    method: str
    title: str
    run: Run
    writer: TraceWriter
    events: list[Event] = field(default_factory=list)
    tokens: dict[int, list[int]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)

    @property
    def end(self) -> End | None:
        """How the run ended, None while it goes on."""
        last = self.events[-1] if self.events else None
        return last if isinstance(last, End) else None

    def collect(self) -> list[str]:
        """Lines of the events that came since the last call, the header first."""
        events = self.run.events_since(len(self.events))
        lines = [self.writer.header_line()] if events and not self.events else []
        for event in events:
            if isinstance(event, Step):
                self._note(event)
            lines.append(self.writer.line(_slim(event)))
        self.events.extend(events)
        return lines

    def _note(self, step: Step) -> None:
        for row in step.rows:
            self.tokens.setdefault(row.row, []).extend(visible_tokens(row))
            if row.stop in ("eos", "limit"):
                self.ended.add(row.row)


class LiveBatch:
    """What one visitor is running in the Batch tab."""

    def __init__(self, order: BatchOrder, feed: BatchFeed) -> None:
        self.order = order
        self.feed = feed
        self.sides: list[BatchSide] = []
        self.is_cancelled = False
        self._folded = 0.0

    def begin(self, side: BatchSide) -> None:
        """Go on with another method; one that comes after Stop ends at once."""
        self.sides.append(side)
        if self.is_cancelled:
            side.run.cancel()

    def collect(self) -> None:
        """Move new events of the running side into the feed, its totals twice a second."""
        side = self.sides[-1]
        lines = side.collect()
        for line in lines:
            self.feed.add(side.name, line)
        now = time.monotonic()
        if side.end is not None or (lines and now - self._folded > TOTALS_SECONDS):
            self._folded = now
            self._fold(side)

    def cancel(self) -> None:
        """End the running side within one forward, and begin no other; a second call is nothing."""
        self.is_cancelled = True
        for side in list(self.sides):
            side.run.cancel()

    def _fold(self, side: BatchSide) -> None:
        found = totals(side.events)
        figures = {
            "tokens_per_second": found.tokens_per_second,
            "effective_tpf": found.effective_tpf,
            "idle_share": found.idle_share,
        }
        self.feed.add("totals", {"side": side.name, **asdict(found), **figures})
        if side.end is not None and found.num_forwards:
            drawn = [Side(each.title, each.method == "ar", each.events) for each in self.sides]
            both = {"time": time_figure(drawn), "forwards": forwards_figure(drawn)}
            self.feed.add("figures", both)


def _slim(event: Event) -> Event:
    """The event without proposals."""
    if not isinstance(event, Step):
        return event
    return replace(event, rows=tuple(replace(row, proposals=()) for row in event.rows))
