"""Runs and handlers of the Trade-off tab: one prompt with plain AR, AR + lookup and every
combination of τ and B, one cell at a time.

The first line of a value (``RunLog``) has the rows and columns. Further lines are the complete
trace lines of a cell, so that any cell can be opened as a run. Lines tagged ``rounds`` have the
number of times that a cell was timed, and its speed relative to AR.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from app.engines.engines import LoadedModel
from app.engines.limits import RefusalError
from app.tradeoff.grid_order import (
    CONTROLS,
    LOSSLESS,
    NUM_ROUNDS,
    REFERENCE,
    GridOrder,
    read_grid_order,
)
from app.ui.examples import ExampleBook
from app.ui.rounds import rounds_text
from app.ui.stream import HEARTBEAT_SECONDS, RunLog, TabHandlers, TabRun, Transcript, writer_of
from mars_runtime.decoders.methods import LOOKUP
from mars_runtime.engine.engine import EngineBusy
from mars_runtime.engine.request import Request
from mars_runtime.runs.speedup import Rounds
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Context

REFERENCES = {REFERENCE, LOOKUP}
FULL = "Waiting for a free slot to run the next cell."


class GridRun(TabRun):
    """Runs plain AR and all cells in several rounds. One run at a time has the device to itself,
    and all runs have a common deadline.

    The page shows the first run of a cell; the other runs are only timed.
    """

    _running = ""

    def __init__(
        self, log: RunLog, order: GridOrder, book: ExampleBook, max_seconds: float
    ) -> None:
        super().__init__(log, order.checkpoint, book, max_seconds)
        self.order = order
        self._num_rounds = 0  # number of complete rounds
        self._drawn: set[str] = set()
        self._timed: defaultdict[str, Rounds] = defaultdict(Rounds)

    @property
    def num_done(self) -> int:
        """Number of finished cells, without the two references."""
        return sum(cell.is_done for cell in self.drawn if cell.name not in REFERENCES)

    def decode(self, served: LoadedModel) -> Iterator[None]:
        """Run all rounds, then check the answers."""
        until = time.monotonic() + self.max_seconds
        for number in range(NUM_ROUNDS):
            for turn in self.order.turns(number):
                if not (yield from self._run_group(served, turn, until)):
                    break
            else:
                self._num_rounds += 1
                continue
            break
        self._say_how_it_ended()
        self.log_verdicts(served, "cell", self.order.prompt)

    def _run_group(
        self, served: LoadedModel, turn: Sequence[tuple[str, DecodeSettings]], until: float
    ) -> Generator[None, None, bool]:
        """Run AR and one group of cells, then log how they compare. Return False if one of them
        did not finish.
        """
        done: dict[str, Transcript] = {}
        for name, settings in turn:
            self._running = self._running_sentence(name, settings)
            is_drawn = name not in self._drawn
            cell = yield from self._started(served, name, settings, until, is_drawn)
            if cell is None:
                return False
            self._drawn.add(name)
            self.begin(cell)
            yield from self.follow()
            if not cell.is_done:
                return False
            done[name] = cell
        for name, cell in done.items():
            reference = None if name == REFERENCE else done[REFERENCE].events
            self._timed[name].add(cell.events, reference)
            self.log.add("rounds", {"cell": name, **self._timed[name].plain()})
        return True

    def _started(
        self, served: LoadedModel, name: str, settings: DecodeSettings, until: float, is_drawn: bool
    ) -> Generator[None, None, Transcript | None]:
        """Submit the prompt with these settings and return the transcript, or None if the run is
        stopped or out of time.

        until: the deadline, as a value of ``time.monotonic``. If all slots are in use, the first
        request of the run raises EngineBusy; its later requests wait for a slot.
        """
        while (left := until - time.monotonic()) > 0 and not self.is_cancelled:
            try:
                return self._submit(served, name, settings, left, is_drawn)
            except EngineBusy:
                if not self.transcripts:
                    raise
            self.log.set_status(FULL)
            yield
            time.sleep(HEARTBEAT_SECONDS)
        return None

    def _submit(
        self,
        served: LoadedModel,
        name: str,
        settings: DecodeSettings,
        seconds: float,
        is_drawn: bool,
    ) -> Transcript:
        prompt, tokenizer = self.order.prompt, served.checkpoint.tokenizer
        prompt_ids = tokenizer.encode_prompt(prompt, system=self.order.system)
        context = Context(system=tokenizer.system_in_force(self.order.system))
        request = Request(prompt_ids, settings, seconds, is_checked=True, owner=self.owner)
        writer = writer_of(served, prompt, request, self.book.task(prompt), context)
        run = served.engine.submit(request, is_alone=True)
        return Transcript(name, run, writer, is_drawn=is_drawn)

    def advance(self) -> None:
        self.say_situation(self._running)
        self.collect()

    def _say_how_it_ended(self) -> None:
        counted = f"{self.num_done} of {self.order.num_cells} cells done"
        end = self.transcripts[-1].end if self.transcripts else None
        if end is not None and end.reason == "error":
            self.log.set_status(end.message, "error")
        elif self.is_cancelled or (end is not None and end.reason == "cancelled"):
            self.log.set_status(f"Stopped: {counted}.", "stopped")
        elif self.num_done < self.order.num_cells:
            self.log.set_status(f"{self.time_is_over}: {counted}.", "stopped")
        else:
            timed = rounds_text(self._num_rounds, NUM_ROUNDS)
            self.log.set_status(f"Finished: {counted}, {timed}.", "finished")

    def _running_sentence(self, name: str, settings: DecodeSettings) -> str:
        if name == REFERENCE:
            cell = "plain AR, with which the others are compared"
        elif name == LOOKUP:
            cell = "AR + lookup"
        else:
            row = LOSSLESS if settings.lossless else f"τ {settings.tau:g}"
            cell = f"{row}, B {settings.block_size}"
        if self._num_rounds:
            return f"Timing round {self._num_rounds + 1} of {NUM_ROUNDS}: {cell}…"
        return f"{self.num_done} of {self.order.num_cells} cells done. Running {cell}…"


class GridHandlers(TabHandlers[GridRun]):
    def check(self, values: Mapping[str, Any]) -> RefusalError | None:
        """Return the error of a control of this tab. The run itself reports errors of the prompt
        and other controls of the Live tab, because they are not visible here.
        """
        refusal = super().check(values)
        is_here = refusal is not None and refusal.field in CONTROLS
        return refusal if is_here else None

    def validate(self, values: Mapping[str, Any]) -> GridRun:
        order = read_grid_order(values, self.limits(values))
        return GridRun(RunLog(order.head()), order, self.book, self.engines.settings.max_seconds)

    def blank(self) -> RunLog:
        return RunLog({"prompt": "", "rows": [], "columns": []})
