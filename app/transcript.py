"""What is read of a run of the engine: its events, its tokens row by row, the lines of its trace.

Knows no gradio, no visitor and no drawing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, replace

from app.methods import TITLES
from app.serving.loads import Served
from mars_runtime.engine.header import make_header
from mars_runtime.engine.request import Request
from mars_runtime.engine.run import Run
from mars_runtime.events import End, Event, Step
from mars_runtime.folds import visible_tokens
from mars_runtime.lab.tasks import Task
from mars_runtime.trace import TraceWriter
from mars_runtime.turns import ALONE, Context


class Transcript:
    """A run under the name that its lines get, and what was read of it so far.

    tokens: the visible ones of each row. finished: rows whose text has come to an end of its own.
    """

    def __init__(
        self, name: str, run: Run, writer: TraceWriter, keeps_proposals: bool = True
    ) -> None:
        self.name = name
        self.run = run
        self.events: list[Event] = []
        self.tokens: dict[int, list[int]] = defaultdict(list)
        self.finished: set[int] = set()
        self._writer = writer
        self._keeps_proposals = keeps_proposals

    @property
    def end(self) -> End | None:
        """How the run ended, None while it goes on."""
        last = self.events[-1] if self.events else None
        return last if isinstance(last, End) else None

    @property
    def is_done(self) -> bool:
        """Whether the run came to an end of its own."""
        return self.end is not None and self.end.reason in ("eos", "limit")

    def read(self) -> list[str]:
        """Trace lines of the events that came since the last call, the header first."""
        events = self.run.events_since(len(self.events))
        lines = [self._writer.header_line()] if events and not self.events else []
        for event in events:
            if isinstance(event, Step):
                self._note(event)
            lines.append(self._writer.line(event if self._keeps_proposals else _slim(event)))
        self.events.extend(events)
        return lines

    def _note(self, step: Step) -> None:
        for row in step.rows:
            self.tokens[row.row].extend(visible_tokens(row))
            if row.stop in ("eos", "limit"):
                self.finished.add(row.row)


def _slim(event: Event) -> Event:
    """The event without proposals."""
    if not isinstance(event, Step):
        return event
    return replace(event, rows=tuple(replace(row, proposals=()) for row in event.rows))


def writer_of(
    served: Served, prompt: str, request: Request, task: Task | None, context: Context = ALONE
) -> TraceWriter:
    """What writes down the trace of a request, under its header.

    task: what the prompt is, where that is known. context: what stands before it, and after it.
    """
    header = make_header(
        served.about,
        prompt,
        request,
        costs=served.engine.costs(),
        task=asdict(task) if task is not None else None,
        name=TITLES[request.settings.method],
        context=context,
        room=served.engine.capacity,
    )
    return TraceWriter(header, served.checkpoint.tokenizer.token_bytes)
