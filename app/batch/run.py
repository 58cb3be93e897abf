"""Batches: what the tab does, the run of a visitor with its methods in turn, each a side with the
device alone, and the start of one side, which the endpoint uses too.

The first line of a value (``components/race_value.py``) names the sides and the prompts; further
lines are a side's trace lines without its proposals, which nobody draws here, and under ``totals``
and ``figures`` what is folded from the events. Knows no gradio, drawing or model.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from app.batch.charts import Side, forwards_figure, time_figure
from app.batch.order import MAX_TOKENS, BatchOrder, prompts_as_text, read_batch_order
from app.examples.book import BATCH, ExampleBook, ExamplePages
from app.run_log import RunLog, RunLogs
from app.serving.engines import Engines, Served
from app.stream import TabHandlers, TabRun, Transcript, Wait, waiting_sentence
from mars_runtime.batch_folds import totals
from mars_runtime.engine.header import make_header
from mars_runtime.engine.request import Request
from mars_runtime.events import Event
from mars_runtime.trace import TraceWriter

if TYPE_CHECKING:
    from mars_runtime.decoders.base import CausalModel, SettingsSource, Vocabulary
    from mars_runtime.decoders.baselines import BatchMethod

NUM_EXAMPLES = 8
SIDES = ("a", "b")
TOTALS_SECONDS = 0.5  # folding a batch takes a millisecond or two beside the decoding thread


def new_log(methods: Mapping[str, str], titles: Sequence[str], prompts: Sequence[str]) -> RunLog:
    """A log of a batch. ``methods``: side -> method."""
    sides = [
        {"side": name, "method": method, "title": title}
        for (name, method), title in zip(methods.items(), titles, strict=True)
    ]
    return RunLog({"sides": sides, "prompts": list(prompts)})


class BatchRun(TabRun):
    """All prompts by one method after the other."""

    def __init__(self, order: BatchOrder, book: ExampleBook, max_seconds: float) -> None:
        """max_seconds: the deadline of each side."""
        self._methods = dict(zip(SIDES, order.methods, strict=False))
        titles = list(map(order.title, order.methods))
        super().__init__(new_log(self._methods, titles, order.prompts), order.checkpoint)
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
            self.log.say("Stopped; what is drawn was measured up to there.", "stopped")
        elif end.message:
            self.log.say(end.message, "error")
        else:
            self._judge(served)
            self.log.say(self._finished_sentence(), "finished")

    def advance(self) -> None:
        """What goes on, then new lines, the totals twice per second."""
        side = self.transcripts[-1]
        situation = waiting_sentence([side.run])
        if situation:
            self.log.say(situation, "waiting")
        elif side.events:
            self.log.say(self._running_sentence(), "running")
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
        self.log.add("totals", {"side": side.name, **asdict(found), **figures})
        if side.end is not None and found.num_forwards:
            drawn = [
                Side(self._title(each), self._methods[each.name] == "ar", each.events)
                for each in self.transcripts
            ]
            both = {"time": time_figure(drawn), "forwards": forwards_figure(drawn)}
            self.log.add("figures", both)

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


class BatchHandlers(TabHandlers[BatchRun]):
    """The tab's behaviour; one object serves every visitor, told apart by session."""

    def __init__(self, engines: Engines, logs: RunLogs, book: ExampleBook) -> None:
        super().__init__(engines, logs)
        self._book = book
        self.examples = ExamplePages(engines, book, NUM_EXAMPLES, BATCH, prompts_as_text)

    @property
    def max_tokens(self) -> int:
        """The end of the slider of tokens per row."""
        return min(MAX_TOKENS, self._engines.settings.max_new_tokens)

    def read(self, values: Mapping[str, Any]) -> BatchRun:
        """What these controls ask for, not begun yet. Raises RefusalError."""
        order = read_batch_order(values, self._engines.limits(values.get("checkpoint")))
        return BatchRun(order, self._book, self._engines.settings.max_seconds)

    def blank(self) -> RunLog:
        """The log of what cannot be begun."""
        return new_log({}, [], [])


def start_side(
    served: Served, order: BatchOrder, name: str, method: str, max_seconds: float, owner: str = ""
) -> Transcript:
    """Submit all prompts by one method, alone on the device. Raises USER_ERRORS."""
    tokenizer = served.checkpoint.tokenizer
    prompts = [tokenizer.encode_prompt(prompt) for prompt in order.prompts]
    settings = replace(order.settings, method="ar" if method == "ar" else "mars")
    decode = partial(_decode, prompts, method, order.batch_size, order.cache_block)
    run = served.engine.solo(decode, settings, deadline=max_seconds, owner=owner)
    every_id = tuple(token for prompt in prompts for token in prompt)
    header = make_header(
        served.about,
        prompts_as_text(order.prompts),
        Request(every_id, settings),
        name=order.title(method),
    )
    writer = TraceWriter(header, tokenizer.token_bytes)
    return Transcript(name, run, writer, keeps_proposals=False)


def _decode(
    prompts: Sequence[Sequence[int]],
    method: str,
    batch_size: int,
    cache_block: int,
    model: CausalModel,
    vocabulary: Vocabulary,
    settings: SettingsSource,
) -> Iterator[Event]:
    """``decode_batch``, imported where torch is loaded anyway."""
    from mars_runtime.decoders.baselines import decode_batch

    chosen = cast("BatchMethod", method)
    return decode_batch(model, vocabulary, prompts, chosen, settings, batch_size, cache_block)
