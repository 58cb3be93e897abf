"""The batch that a visitor is running: its methods in turn, each a side with the device alone.

The first line of a value (``components/race_value.py``) names the sides and the prompts; further
lines are a side's trace lines without its proposals, which nobody draws here, and under ``totals``
and ``figures`` what is folded from the events. Knows no gradio, drawing or model.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from app.batch.charts import Side, forwards_figure, time_figure
from app.batch.order import BatchOrder
from app.batch.start import start_side
from app.examples.book import ExampleBook
from app.feed import Feed
from app.serving.loads import Served
from app.stream import TabRun, Wait, company
from app.transcript import Transcript
from mars_runtime.batch_folds import totals

SIDES = ("a", "b")
TOTALS_SECONDS = 0.5  # folding a batch takes a millisecond or two beside the decoding thread


def new_feed(methods: Mapping[str, str], titles: Sequence[str], prompts: Sequence[str]) -> Feed:
    """A feed for a batch. ``methods``: side -> method."""
    sides = [
        {"side": name, "method": method, "title": title}
        for (name, method), title in zip(methods.items(), titles, strict=True)
    ]
    return Feed({"sides": sides, "prompts": list(prompts)})


class BatchRun(TabRun):
    """All prompts by one method after the other."""

    def __init__(self, order: BatchOrder, book: ExampleBook, max_seconds: float) -> None:
        """max_seconds: the deadline of each side."""
        self._methods = dict(zip(SIDES, order.methods, strict=False))
        titles = list(map(order.title, order.methods))
        super().__init__(new_feed(self._methods, titles, order.prompts), order.checkpoint)
        self._order = order
        self._book = book
        self._max_seconds = max_seconds
        self._folded = 0.0

    def decode(self, served: Served) -> Iterator[Wait]:
        """Every method in turn; the outputs are judged at the end."""
        for name, method in self._methods.items():
            seconds = self._max_seconds
            self.begin(start_side(served, self._order, name, method, seconds, self.owner))
            yield from self.follow()
            if not self.transcripts[-1].is_done:
                break
        end = self.transcripts[-1].end
        if end is None or end.reason == "cancelled":
            self.feed.say("Stopped; what is drawn was measured up to there.", "stopped")
        elif end.message:
            self.feed.say(end.message, "error")
        else:
            self._judge(served)
            self.feed.say(self._finished_sentence(), "finished")

    def advance(self) -> None:
        """What goes on, then new lines, the totals twice per second."""
        side = self.transcripts[-1]
        situation = company([side.run])
        if situation:
            self.feed.say(situation, "waiting")
        elif side.events:
            self.feed.say(self._running_sentence(), "running")
        has_news = self.collect()
        now = time.monotonic()
        if side.end is not None or (has_news and now - self._folded > TOTALS_SECONDS):
            self._folded = now
            self._fold(side)

    def _fold(self, side: Transcript) -> None:
        found = totals(side.events)
        figures = {
            "tokens_per_second": found.tokens_per_second,
            "effective_tpf": found.effective_tpf,
            "idle_share": found.idle_share,
        }
        self.feed.add("totals", {"side": side.name, **asdict(found), **figures})
        if side.end is not None and found.num_forwards:
            drawn = [
                Side(self._title(each), self._methods[each.name] == "ar", each.events)
                for each in self.transcripts
            ]
            both = {"time": time_figure(drawn), "forwards": forwards_figure(drawn)}
            self.feed.add("figures", both)

    def _judge(self, served: Served) -> None:
        """Say which outputs are right, where that can be judged, once nothing is timed any more."""
        for side in self.transcripts:
            for row, prompt in enumerate(self._order.prompts):
                if row in side.finished:
                    about = {"side": side.name, "row": row}
                    self.judge(served, self._book.task(prompt), side.tokens[row], about)

    def _title(self, side: Transcript) -> str:
        return self._order.title(self._methods[side.name])

    def _running_sentence(self) -> str:
        running = f"Running {self._title(self.transcripts[-1])}"
        if len(self.transcripts) < len(self._methods):
            last = self._order.title(self._order.methods[-1])
            return f"{running}; then {last} on the same prompts…"
        return f"{running}…"

    def _finished_sentence(self) -> str:
        if len(self.transcripts) < 2:
            return "Finished."
        taken = [
            f"{self._title(side)} took {totals(side.events).num_forwards:,} forward passes"
            for side in self.transcripts
        ]
        return f"Finished: {', '.join(taken)}."
