"""What each control of the Grid tab does: plain functions and generators over run handles.

Values come in raw and text goes out; knows no gradio type, no component and no drawing.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any

from app.controls import RefusalError
from app.engines import Served
from app.grid_order import BLOCK_SIZES, MAX_TOKENS, GridOrder, read_grid_order
from app.grid_runs import EMPTY, LiveGrid, is_done, new_feed
from app.handlers import POLL_SECONDS, Handlers, sentence_of
from app.launching import writer_of
from app.runs import Lane, LiveRuns, situation
from app.waiting import HEARTBEAT_SECONDS, clear, follow, until_loaded
from mars_runtime import tasks
from mars_runtime.engine.engine import EngineBusy
from mars_runtime.engine.request import Request
from mars_runtime.settings import DecodeSettings

FULL = "Waiting: all places are taken; the next cell runs when one is free."


class GridHandlers:
    """The tab's behaviour; one object serves every visitor, told apart by session."""

    def __init__(self, handlers: Handlers) -> None:
        """Shares engines, limits and examples with the rest of the page."""
        self._page = handlers
        self.live: LiveRuns[LiveGrid] = LiveRuns()

    @property
    def most_tokens(self) -> int:
        """The end of the slider of tokens a cell."""
        return min(MAX_TOKENS, self._page.settings.max_new_tokens)

    def example(self, turn: int, checkpoint: object) -> str:
        """A prompt for a checkpoint, of another family at each turn."""
        (prompt,) = self._page.book.several(self._page.examples_of(checkpoint), turn, 1)
        return prompt

    def kept(self, prompt: object, turn: int, checkpoint: object) -> object:
        """The prompt, or this checkpoint's example where it is that of another."""
        others = [self.example(turn, name) for name in self._page.engines.entries]
        return self.example(turn, checkpoint) if prompt in others else prompt

    def block_sizes(self, checkpoint: object) -> list[int]:
        """The values of B that a checkpoint was trained for."""
        try:
            depth = self._page.limits(checkpoint).block_size
        except RefusalError:
            return list(BLOCK_SIZES)
        return [block_size for block_size in BLOCK_SIZES if block_size <= depth] or [depth]

    def check(self, values: Mapping[str, Any]) -> RefusalError | None:
        """What is wrong with these controls, if anything."""
        try:
            self._read(values)
        except RefusalError as refusal:
            return refusal
        return None

    def run(self, session: str, values: Mapping[str, Any]) -> Iterator[str]:
        """Decode plain AR, then cell after cell; yields the component's growing value.

        Several times a second, and only when there is news or a second has passed. Whatever goes
        wrong ends the grid with a sentence. Closing the generator cancels it.
        """
        feed, grid = new_feed(EMPTY), None
        try:
            order = self._read(values)
            clear(self.live, session, POLL_SECONDS)
            grid = self.live.begin(session, lambda: LiveGrid(order))
            feed = self._page.feeds.keep(grid.feed)
            served = yield from until_loaded(self._page.engines, order.checkpoint, grid)
            if served is None:
                feed.say("Stopped before anything ran.", "stopped")
            else:
                yield from self._decode(session, served, grid)
                self._judge(served, grid)
        except Exception as error:
            feed.say(sentence_of(error), "error")
        finally:
            if grid is not None:
                self.live.end(session, grid)
        if feed.has_news:
            yield feed.text()

    def stop(self, session: str) -> None:
        """End the visitor's grid within one forward; what was drawn stays."""
        self.live.stop(session)

    def _read(self, values: Mapping[str, Any]) -> GridOrder:
        return read_grid_order(values, self._page.limits(values.get("checkpoint")))

    def _decode(self, session: str, served: Served, grid: LiveGrid) -> Iterator[str]:
        """The reference and every cell in turn, each with the device alone."""
        order, seconds = grid.order, self._page.settings.max_seconds
        until = time.monotonic() + seconds
        for number, (name, settings) in enumerate(order.lanes()):
            running = _running_sentence(order, number, settings)
            lane = yield from self._started(session, served, grid, (name, settings, until))
            if lane is None:
                break
            grid.begin(lane)
            yield from self._watch(session, grid, running)
            if not is_done(lane):
                break
        counted = f"{grid.num_done} of {order.num_cells} cells ran"
        end = grid.lanes[-1].end if grid.lanes else None
        if end is not None and end.reason == "error":
            grid.feed.say(end.message, "error")
        elif grid.is_cancelled or (end is not None and end.reason == "cancelled"):
            grid.feed.say(f"Stopped: {counted}.", "stopped")
        elif grid.num_done < order.num_cells:
            grid.feed.say(f"The time limit of {seconds:g} s is over: {counted}.", "stopped")
        else:
            grid.feed.say(f"Finished: {counted}.", "finished")

    def _started(
        self, session: str, served: Served, grid: LiveGrid, cell: tuple[str, DecodeSettings, float]
    ) -> Generator[str, None, Lane | None]:
        """Submit a cell (lane, settings, end of the grid's time). The first is refused where there
        is no place; the others wait for one. None once the grid is stopped or out of time."""
        name, settings, until = cell
        while (left := until - time.monotonic()) > 0 and self.live.of(session) is grid:
            if grid.is_cancelled:
                return None
            try:
                return self._submit(served, grid.order, name, settings, left)
            except EngineBusy:
                if not grid.lanes:
                    raise
            grid.feed.say(FULL)
            yield grid.feed.text()
            time.sleep(HEARTBEAT_SECONDS)
        return None

    def _submit(
        self, served: Served, order: GridOrder, name: str, settings: DecodeSettings, seconds: float
    ) -> Lane:
        tokenizer, task = served.checkpoint.tokenizer, self._page.book.task(order.prompt)
        prompt_ids = tokenizer.encode_prompt(order.prompt)
        request = Request(prompt_ids, settings, seconds, is_checked=True)
        writer = writer_of(served, order.prompt, request, task)
        return Lane(name, served.engine.submit(request, is_alone=True), writer)

    def _watch(self, session: str, grid: LiveGrid, running: str) -> Iterator[str]:
        """Yield the feed until the running cell has ended or another grid was begun."""
        lane = grid.lanes[-1]

        def tell() -> None:
            waiting = situation([lane.run])
            grid.feed.say(waiting or running, "waiting" if waiting else "running")

        return follow(self.live, session, grid, lane, tell, POLL_SECONDS)

    def _judge(self, served: Served, grid: LiveGrid) -> None:
        """Say which texts are right, where that can be judged, once nothing is timed any more."""
        task = self._page.book.task(grid.order.prompt)
        if task is None or not tasks.is_checkable(task):
            return
        for lane in filter(is_done, grid.lanes):
            is_right = tasks.check(task, served.checkpoint.tokenizer.decode(lane.tokens))
            grid.feed.add("verdict", {"cell": lane.name, "right": is_right})


def _running_sentence(order: GridOrder, number: int, settings: DecodeSettings) -> str:
    if not number:
        return f"Plain AR first, which the {order.num_cells} cells are held against…"
    way = "lossless" if settings.lossless else f"τ {f'{settings.tau:g}'.removeprefix('0') or 0}"
    return f"Cell {number} of {order.num_cells}: {way}, B {settings.block_size}…"
