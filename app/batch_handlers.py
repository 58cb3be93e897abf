"""What each control of the Batch tab does: plain functions and generators over run handles.

Values come in raw and text goes out; knows no gradio type, no component and no drawing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from app.batch_launch import start_side
from app.batch_order import MAX_TOKENS, BatchOrder, prompts_as_text, read_batch_order
from app.batch_runs import BatchFeed, LiveBatch
from app.controls import RefusalError
from app.engines import Served
from app.handlers import POLL_SECONDS, Handlers, sentence_of
from app.runs import LiveRuns, situation
from app.waiting import clear, follow, until_loaded
from mars_runtime import tasks
from mars_runtime.batch_folds import totals

NUM_EXAMPLES = 8
SIDES = ("a", "b")


class BatchHandlers:
    """The tab's behaviour; one object serves every visitor, told apart by session."""

    def __init__(self, handlers: Handlers) -> None:
        """Shares engines, limits and examples with the rest of the page."""
        self._page = handlers
        self.live: LiveRuns[LiveBatch] = LiveRuns()

    @property
    def most_tokens(self) -> int:
        """The end of the slider of tokens per row."""
        return min(MAX_TOKENS, self._page.settings.max_new_tokens)

    def examples(self, turn: int, checkpoint: object) -> str:
        """Prompts for a checkpoint, one of each family and further ones; others at each turn."""
        chosen = self._page.examples_of(checkpoint)
        several = self._page.book.several(chosen, turn * NUM_EXAMPLES, NUM_EXAMPLES)
        return prompts_as_text(several)

    def kept(self, prompts: object, turn: int, checkpoint: object) -> object:
        """The prompts, or this checkpoint's examples where they are those of another."""
        others = [self.examples(turn, name) for name in self._page.engines.entries]
        return self.examples(turn, checkpoint) if prompts in others else prompts

    def check(self, values: Mapping[str, Any]) -> RefusalError | None:
        """What is wrong with these controls, if anything."""
        try:
            self._read(values)
        except RefusalError as refusal:
            return refusal
        return None

    def run(self, session: str, values: Mapping[str, Any]) -> Iterator[str]:
        """Decode the batch, method after method; yields the component's growing value.

        Several times a second, and only when there is news or a second has passed. Whatever goes
        wrong ends the batch with a sentence. Closing the generator cancels it.
        """
        feed, batch = BatchFeed([], []), None
        try:
            order = self._read(values)
            clear(self.live, session, POLL_SECONDS)
            sides = [
                (name, method, order.title(method))
                for name, method in zip(SIDES, order.methods, strict=False)
            ]
            feed = self._page.feeds.keep(BatchFeed(sides, order.prompts))
            batch = self.live.begin(session, lambda: LiveBatch(order, feed))
            served = yield from until_loaded(self._page.engines, order.checkpoint, batch)
            if served is None:
                feed.say("Stopped before anything ran.", "stopped")
            else:
                yield from self._decode(session, served, batch)
        except Exception as error:
            feed.say(sentence_of(error), "error")
        finally:
            if batch is not None:
                self.live.end(session, batch)
        if feed.has_news:
            yield feed.text()

    def stop(self, session: str) -> None:
        """End the visitor's batch within one forward; what was drawn stays."""
        self.live.stop(session)

    def _read(self, values: Mapping[str, Any]) -> BatchOrder:
        return read_batch_order(values, self._page.limits(values.get("checkpoint")))

    def _decode(self, session: str, served: Served, batch: LiveBatch) -> Iterator[str]:
        """Every method in turn, each with the device alone; the outputs are judged at the end."""
        order, feed = batch.order, batch.feed
        seconds = self._page.settings.max_seconds
        for name, method in zip(SIDES, order.methods, strict=False):
            batch.begin(start_side(served, order, name, method, seconds))
            yield from self._watch(session, batch)
            end = batch.sides[-1].end
            if end is None or end.reason not in ("eos", "limit"):
                break
        last = batch.sides[-1].end
        if last is None or last.reason == "cancelled":
            feed.say("Stopped; what is drawn was measured up to there.", "stopped")
        elif last.message:
            feed.say(last.message, "error")
        else:
            self._judge(served, batch)
            feed.say(_finished_sentence(batch), "finished")

    def _watch(self, session: str, batch: LiveBatch) -> Iterator[str]:
        """Yield the feed until the running side has ended or another batch was begun."""
        side = batch.sides[-1]

        def tell() -> None:
            waiting = situation([side.run])
            if waiting:
                batch.feed.say(waiting, "waiting")
            elif side.events:
                batch.feed.say(_running_sentence(batch), "running")

        return follow(self.live, session, batch, side, tell, POLL_SECONDS)

    def _judge(self, served: Served, batch: LiveBatch) -> None:
        """Say which outputs are right, where that can be judged, once nothing is timed any more."""
        for side in batch.sides:
            for row, prompt in enumerate(batch.order.prompts):
                task = self._page.book.task(prompt)
                if task is not None and tasks.is_checkable(task) and row in side.ended:
                    text = served.checkpoint.tokenizer.decode(side.tokens[row])
                    is_right = tasks.check(task, text)
                    batch.feed.add("verdict", {"side": side.name, "row": row, "right": is_right})


def _finished_sentence(batch: LiveBatch) -> str:
    if len(batch.sides) < 2:
        return "Finished."
    first, second = (totals(side.events).tokens_per_second for side in batch.sides)
    titles = [side.title for side in batch.sides]
    if first < second:
        first, second, titles = second, first, titles[::-1]
    ratio = first / second if second else 0.0
    return f"Finished: {titles[0]} wrote {ratio:.2f} times as fast as {titles[1]}."


def _running_sentence(batch: LiveBatch) -> str:
    order, side = batch.order, batch.sides[-1]
    running = f"Running {side.title}"
    if len(batch.sides) < len(order.methods):
        return f"{running}; then {order.title(order.methods[-1])} on the same prompts…"
    return f"{running}…"
