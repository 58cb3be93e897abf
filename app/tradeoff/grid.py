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
from dataclasses import replace
from typing import Annotated, Any

from app.engines.engines import LoadedModel
from app.engines.limits import Limits, RefusalError
from app.ui.controls import DEFAULTS, Order, Prompt, control, read_controls, settings_for
from app.ui.examples import ExampleBook
from app.ui.rounds import in_turn, rounds_text
from app.ui.stream import HEARTBEAT_SECONDS, RunLog, TabHandlers, TabRun, Transcript, writer_of
from mars_runtime.decoders.methods import LOOKUP
from mars_runtime.engine.engine import EngineBusy
from mars_runtime.engine.request import Request
from mars_runtime.runs.speedup import Rounds
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Context

LOSSLESS = "lossless"
"""The row whose cells write AR's text; the other rows are values of τ without verification."""
ROWS = (LOSSLESS, 0.95, 0.9, 0.8, 0.7, 0.5, 0.3)
COLUMNS = (2, 3, 4, 6, 8)
CONTROLS = ("rows", "columns")
GRID = (*CONTROLS, "prompt", "max_new_tokens", "checkpoint", "system")
MAX_TOKENS = 96
NUM_ROUNDS = 3
REFERENCE = "ar"
"""Name of the cell with plain AR, with which all other cells are compared."""
ONE_TOKEN = (
    "This model predicts one token per pass, so there is nothing to compare. Choose another."
)
Cells = list[tuple[str, DecodeSettings]]
REFERENCES = {REFERENCE, LOOKUP}
TIME_LIMIT = "The time limit of {:g} s was reached"
FULL = "Waiting for a free slot to run the next cell."


def _chosen(name: str, value: object, choices: tuple[Any, ...], what: str) -> tuple[Any, ...]:
    chosen = value if isinstance(value, (list, tuple)) else ()
    if not chosen or not all(item in choices for item in chosen):
        raise RefusalError(name, f"Choose at least one {what}.")
    return tuple(choice for choice in choices if choice in chosen)


def _rows(value: object, limits: Limits) -> tuple[Any, ...]:
    return _chosen("rows", value, ROWS, "row")


def _columns(value: object, limits: Limits) -> tuple[int, ...]:
    if limits.block_size < min(COLUMNS):
        raise RefusalError("checkpoint", ONE_TOKEN)
    chosen = _chosen("columns", value, COLUMNS, "B")
    return tuple(size for size in chosen if size <= limits.block_size) or (limits.block_size,)


class GridOrder(Order):
    prompt: Prompt
    rows: Annotated[tuple[Any, ...], control(_rows)]
    columns: Annotated[tuple[int, ...], control(_columns)]

    @property
    def num_cells(self) -> int:
        return len(self.rows) * len(self.columns)

    @property
    def start(self) -> DecodeSettings:
        tokens = min(self.settings.max_new_tokens, MAX_TOKENS)
        return replace(self.settings, max_new_tokens=tokens)

    def groups(self) -> Iterator[Cells]:
        yield [(LOOKUP, settings_for(LOOKUP, self.start))]
        for row, kind in enumerate(self.rows):
            chosen = {} if kind == LOSSLESS else {"lossless": False, "tau": kind}
            of_row = replace(self.start, **chosen)
            yield [
                (f"r{row}c{column}", settings_for("mars", replace(of_row, block_size=block_size)))
                for column, block_size in enumerate(self.columns)
            ]

    def turns(self, number: int) -> list[Cells]:
        reference = (REFERENCE, settings_for(REFERENCE, self.start))
        return [in_turn([reference, *group], number) for group in in_turn([*self.groups()], number)]

    def head(self) -> dict[str, Any]:
        rows = [
            {"tau": self.start.tau if row == LOSSLESS else row, "lossless": row == LOSSLESS}
            for row in self.rows
        ]
        return {"prompt": self.prompt, "rows": rows, "columns": list(self.columns)}


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
        self._timed: defaultdict[str, Rounds] = defaultdict(Rounds)

    @property
    def num_done(self) -> int:
        return sum(cell.is_done for cell in self.drawn if cell.name not in REFERENCES)

    def decode(self, served: LoadedModel) -> Iterator[None]:
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
            cell = yield from self._started(served, name, settings, until)
            if cell is None:
                return False
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
        self, served: LoadedModel, name: str, settings: DecodeSettings, until: float
    ) -> Generator[None, None, Transcript | None]:
        """Submit the prompt with these settings and return the transcript, or None if the run is
        stopped or out of time.

        until: the deadline, as a value of ``time.monotonic``. If all slots are in use, the first
        request of the run raises EngineBusy; its later requests wait for a slot.
        """
        while (left := until - time.monotonic()) > 0 and not self.is_cancelled:
            try:
                return self._submit(served, name, settings, left)
            except EngineBusy:
                if not self.transcripts:
                    raise
            self.log.set_status(FULL)
            yield
            time.sleep(HEARTBEAT_SECONDS)
        return None

    def _submit(
        self, served: LoadedModel, name: str, settings: DecodeSettings, seconds: float
    ) -> Transcript:
        prompt, tokenizer = self.order.prompt, served.checkpoint.tokenizer
        prompt_ids = tokenizer.encode_prompt(prompt, system=self.order.system)
        context = Context(system=tokenizer.system_in_force(self.order.system))
        request = Request(prompt_ids, settings, seconds, is_checked=True, owner=self.owner)
        writer = writer_of(served, prompt, request, self.book.task(prompt), context)
        run = served.engine.submit(request, is_alone=True)
        is_repeated = any(cell.name == name for cell in self.transcripts)
        return Transcript(name, run, writer, is_drawn=not is_repeated)

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
            self.log.set_status(f"{TIME_LIMIT.format(self.max_seconds)}: {counted}.", "stopped")
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
        order = read_controls(GridOrder, values, self.limits(values), DEFAULTS)
        return GridRun(RunLog(order.head()), order, self.book, self.engines.settings.max_seconds)

    def blank(self) -> RunLog:
        return RunLog({"prompt": "", "rows": [], "columns": []})
