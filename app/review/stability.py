"""Runs and handlers of the Stability tab: one prompt, decoded with several seeds in succession.

The first line of a value (``run_log.py``) has the prompt, method, temperature and seeds. Further
lines are the complete trace lines of an answer, so that any answer can be opened as a run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from app.engines.engines import Engines, Served
from app.review.stability_order import MAX_TOKENS, StabilityOrder, read_stability_order
from app.ui.examples import STABILITY, ExampleBook, ExamplePages
from app.ui.one_prompt import PromptRun
from app.ui.run_log import RunLog, RunLogs
from app.ui.stream import TabHandlers, Wait

FULL = "Waiting for a free slot to generate the next answer."


class StabilityRun(PromptRun[StabilityOrder]):
    full = FULL

    @property
    def num_done(self) -> int:
        """Number of complete answers."""
        return sum(answer.is_done for answer in self.transcripts)

    def decode(self, served: Served) -> Iterator[Wait]:
        until = time.monotonic() + self.max_seconds
        for name, settings in self.order.answers():
            answer = yield from self.started(served, name, settings, until)
            if answer is None:
                break
            self.begin(answer)
            yield from self.follow()
            if not answer.is_done:
                break
        self._say_how_it_ended()

    def advance(self) -> None:
        self.say_situation(f"Answer {self.num_done + 1} of {self.order.num_seeds}…")
        self.collect()

    def _say_how_it_ended(self) -> None:
        counted = f"{self.num_done} of {self.order.num_seeds} answers"
        end = self.transcripts[-1].end if self.transcripts else None
        if end is not None and end.reason == "error":
            self.log.say(end.message, "error")
        elif self.is_cancelled or (end is not None and end.reason == "cancelled"):
            self.log.say(f"Stopped after {counted}.", "stopped")
        elif self.num_done < self.order.num_seeds:
            self.log.say(f"{self.time_is_over}: {counted}.", "stopped")
        else:
            self.log.say(f"Finished: {counted}.", "finished")


class StabilityHandlers(TabHandlers[StabilityRun]):
    most_tokens = MAX_TOKENS

    def __init__(self, engines: Engines, logs: RunLogs, book: ExampleBook) -> None:
        super().__init__(engines, logs, book)
        self.examples = ExamplePages(engines, book, 1, STABILITY, "".join)

    def read(self, values: Mapping[str, Any]) -> StabilityRun:
        order = read_stability_order(values, self.limits(values))
        seconds = self.engines.settings.max_seconds
        return StabilityRun(RunLog(order.head()), order, self.book, seconds)

    def blank(self) -> RunLog:
        return RunLog({"prompt": "", "lane": "mars", "method": "", "temperature": 0, "seeds": []})
