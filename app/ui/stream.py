"""The steps of a streamed run, which all tabs share: validate, start, load, follow, check the
answers.

A tab implements two classes: its handlers, which validate the controls, and its run, which decodes
and writes the log. A visitor is identified by a session. A session cannot read or change the run of
another session.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from app.engines.engines import Engines, LoadedModel, UnavailableError
from app.engines.limits import Limits, RefusalError
from app.ui.controls import title_of
from app.ui.examples import ExampleBook
from app.ui.run_log import RunLog, RunLogs
from mars_runtime import tasks
from mars_runtime.engine.backend import where
from mars_runtime.engine.engine import EngineError
from mars_runtime.engine.header import make_header
from mars_runtime.engine.request import Request, RequestError
from mars_runtime.engine.run import Run
from mars_runtime.runs.events import FINAL, End, Event, Step
from mars_runtime.runs.folds import visible_tokens
from mars_runtime.runs.trace import TraceWriter
from mars_runtime.settings import SettingsError
from mars_runtime.tasks import Task
from mars_runtime.text import ALONE, Context, TextError

# An update takes about 3 ms of Python time, which the decoding thread shares: at most 3 % of its
# time at full speed. In slow motion decoding pauses anyway, so updates can be more frequent.
POLL_SECONDS, SLOW_POLL_SECONDS = 1 / 7, 1 / 12
HEARTBEAT_SECONDS = 1.0  # an idle generator yields this often, so that Gradio can close it
CHECK_SECONDS = 0.2  # time between two checks of whether the visitor still waits
CLEAR_SECONDS = 2.0
USER_ERRORS = (EngineError, RequestError, SettingsError, TextError)  # shown to the visitor
STOPPED = "Stopped. The results up to this point are shown."
HELD_UP = "Waiting: another run is being timed and needs the device to itself."
TIME_LIMIT = "The time limit of {:g} s was reached"
SHARING_WITH_ONE = "Sharing the device with 1 other run."
SHARING = "Sharing the device with {} other runs."
FAILED = "The run failed because of an error in the app. Press Run to try again."
WARMING_UP = "Warming up: measuring how long forward passes take on this machine…"
Wait = Callable[[], object]
"""Blocks for a short time, until there may be new events."""
log = logging.getLogger(__name__)


class TabOrder(Protocol):
    """Validated values of a tab's controls."""

    @property
    def checkpoint(self) -> str: ...


OrderT = TypeVar("OrderT", bound=TabOrder)


class TabRun(ABC, Generic[OrderT]):
    """A visitor's run in a tab. It has no transcripts until its checkpoint is loaded."""

    def __init__(self, log: RunLog, order: OrderT, book: ExampleBook, max_seconds: float) -> None:
        """Create a run without starting it. book: knows which answers can be checked. max_seconds:
        the time limit.
        """
        self.log = log
        self.order = order
        self.book = book
        self.max_seconds = max_seconds
        self.owner = ""  # the client's address
        self.transcripts: list[Transcript] = []
        self.is_cancelled = False

    @abstractmethod
    def decode(self, served: LoadedModel) -> Iterator[Wait]:
        """Start and ``follow`` the transcripts, then check the answers. Yields functions that block
        until there may be new events.
        """

    @property
    def pause(self) -> float:
        """Seconds between two updates of the page."""
        return POLL_SECONDS

    @property
    def running(self) -> list[Transcript]:
        """Transcripts that have not ended."""
        return [transcript for transcript in self.transcripts if transcript.end is None]

    def begin(self, *transcripts: Transcript) -> None:
        """Add transcripts. If the visitor has pressed Stop, cancel them at once."""
        self.transcripts.extend(transcripts)
        if self.is_cancelled:
            self.cancel()

    def follow(self) -> Iterator[Wait]:
        """Log events until all transcripts have ended. Yields functions that block until there may
        be new events.
        """
        self.advance()
        while self.running:
            yield partial(self.running[0].run.wait, self.pause)
            self.advance()

    def advance(self) -> None:
        """Log events that arrived since the last call."""
        self.collect()

    def collect(self) -> bool:
        """Append new events to the log. Return whether there were any."""
        lines = [
            (transcript, line) for transcript in self.transcripts for line in transcript.read()
        ]
        for transcript, line in lines:
            if transcript.is_drawn:
                self.log.add(transcript.name, line)
        return bool(lines)

    @property
    def drawn(self) -> list[Transcript]:
        """Transcripts that the page shows. The others repeat a run only to time it."""
        return [transcript for transcript in self.transcripts if transcript.is_drawn]

    def say_situation(self, running: str) -> None:
        """Log what the latest transcript waits for, or how many runs share the device. If neither
        applies, log the text ``running``.
        """
        situation = waiting_sentence([self.transcripts[-1].run])
        if situation or running:
            self.log.say(situation or running, "waiting" if situation else "running")

    def log_verdicts(self, served: LoadedModel, kind: str, prompt: str) -> None:
        """Log whether the answers of all complete transcripts are correct, if the prompt is a task
        that can be checked. kind: the key for the transcript's name in the log.

        Call it only after all timing is done.
        """
        task = self.book.task(prompt)
        if task is None or not tasks.is_checkable(task):
            return
        for transcript in self.drawn:
            if transcript.is_done and (end := transcript.end):
                text = served.checkpoint.tokenizer.decode(transcript.tokens[0])
                is_right = tasks.check(task, text, is_cut=end.reason != "eos")
                self.log.add("verdict", {kind: transcript.name, "right": is_right})

    @property
    def time_is_over(self) -> str:
        """Start of the message that is logged at the time limit."""
        return TIME_LIMIT.format(self.max_seconds)

    def cancel(self) -> None:
        """End within one forward pass, and start nothing else. Repeated calls have no effect."""
        self.is_cancelled = True
        for transcript in list(self.transcripts):
            transcript.run.cancel()

    def close(self) -> None:
        """Log the end of a cancelled run, for a page that reads the log after it lost its
        stream.
        """
        until = time.monotonic() + CLEAR_SECONDS
        while self.running and time.monotonic() < until:
            self.running[0].run.wait(CHECK_SECONDS)
            self.collect()


R = TypeVar("R", bound=TabRun[Any])


class RunRegistry(Generic[R]):
    """The current run of each session. Thread-safe."""

    def __init__(self) -> None:
        self._runs: dict[str, R] = {}
        self._lock = threading.Lock()

    def begin(self, session: str, run: R) -> None:
        """Make this the session's run, and cancel the previous one."""
        with self._lock:
            previous = self._runs.get(session)
            self._runs[session] = run
        if previous is not None:
            previous.cancel()

    def of(self, session: str) -> R | None:
        with self._lock:
            return self._runs.get(session)

    def stop(self, session: str) -> bool:
        """Cancel the session's run. Return whether there was one."""
        run = self.of(session)
        if run is not None:
            run.cancel()
        return run is not None

    def clear(self, session: str, pause: float) -> None:
        """Cancel the session's run and wait until its last lines have been sent.

        Otherwise the old stream could write to the component after the new one. pause: seconds
        between two updates of the page.
        """
        if not self.stop(session):
            return
        until = time.monotonic() + CLEAR_SECONDS
        while self.of(session) is not None and time.monotonic() < until:
            time.sleep(pause / 4)
        time.sleep(pause)

    def end(self, session: str, run: R) -> None:
        """Cancel this run and remove it, unless the session has started another run in the
        meantime.
        """
        run.cancel()
        with self._lock:
            if self._runs.get(session) is run:
                del self._runs[session]

    def __len__(self) -> int:
        with self._lock:
            return len(self._runs)


class TabHandlers(ABC, Generic[R]):
    """Handlers of a tab whose runs are streamed. One object serves all visitors and identifies them
    by session.
    """

    pause: ClassVar[float] = POLL_SECONDS

    def __init__(self, engines: Engines, logs: RunLogs, book: ExampleBook) -> None:
        self.engines = engines
        self.logs = logs
        self.book = book
        self.runs: RunRegistry[R] = RunRegistry()

    def limits(self, values: Mapping[str, Any]) -> Limits:
        """Return the limits of the chosen checkpoint. Raises RefusalError if it is not listed."""
        return self.engines.limits(values.get("checkpoint"))

    @abstractmethod
    def validate(self, values: Mapping[str, Any]) -> R:
        """Validate the controls and return the requested run without starting it. Raises
        RefusalError.
        """

    @abstractmethod
    def blank(self) -> RunLog:
        """Return an empty log, for a run that cannot start."""

    def check(self, values: Mapping[str, Any]) -> RefusalError | None:
        """Return the error of the first invalid control, or None if all are valid."""
        try:
            self.validate(values)
        except RefusalError as refusal:
            return refusal
        return None

    def run(self, session: str, values: Mapping[str, Any], owner: str = "") -> Iterator[str]:
        """Decode what the controls request, and yield the growing value of the tab's view.

        Yields several times per second while there is news, and otherwise once per second. An error
        ends the run with a message. Closing the generator cancels the run. owner: the client's
        address, which the engine uses to share its slots fairly.
        """
        log_value, run = self.blank(), None
        try:
            run = self.validate(values)
            run.owner = owner
            self.runs.clear(session, self.pause)
            log_value = self.logs.keep(run.log)
            self.runs.begin(session, run)
            yield from self._values(session, run)
        except Exception as error:
            log_value.refuse(sentence_of(error))
        finally:
            has_news = log_value.has_news
            if run is not None:
                self.runs.end(session, run)
                run.close()
        if has_news:
            yield log_value.latest()

    def stop(self, session: str) -> None:
        """End the visitor's run within one forward pass. Its output stays on the page."""
        self.runs.stop(session)

    def _values(self, session: str, run: R) -> Iterator[str]:
        """Yield values of the log until the run ends or the visitor starts another run."""
        shown = -math.inf
        for wait in self._decoded(run):
            if run.log.has_news or time.monotonic() - shown >= HEARTBEAT_SECONDS:
                shown = time.monotonic()
                yield run.log.latest()
            wait()
            if self.runs.of(session) is not run:
                return

    def _decoded(self, run: R) -> Iterator[Wait]:
        """Wait until the checkpoint is loaded and warmed up, then decode. Raises
        UnavailableError.
        """
        with self.engines.kept(run.order.checkpoint):
            load = self.engines.begin(run.order.checkpoint)
            while (served := load.wait(0.0)) is None and not run.is_cancelled:
                run.log.say(load.situation)
                yield partial(load.wait, CHECK_SECONDS)
            # If the visitor moves a control during this wait, the run starts with the new value.
            while served is not None and not run.is_cancelled and not served.engine.is_ready(0.0):
                run.log.say(WARMING_UP)
                yield partial(served.engine.is_ready, CHECK_SECONDS)
            if served is None or run.is_cancelled:
                run.log.stop()
            else:
                yield from run.decode(served)


def waiting_sentence(runs: Iterable[Run]) -> str:
    """Return a sentence about what the runs wait for, or how many runs share the device; empty if
    neither applies.
    """
    runs = tuple(runs)
    num_ahead = max((run.place for run in runs), default=0)
    if num_ahead:
        return f"Waiting: {num_ahead} {'run is' if num_ahead == 1 else 'runs are'} ahead of yours."
    if any(run.is_awaiting_device for run in runs):
        return "Waiting for a GPU."
    if any(run.is_held_up for run in runs):
        return HELD_UP
    if any(run.is_hurried for run in runs):
        return "Slow motion is off while other visitors wait for a slot."
    others = max((run.num_sharing for run in runs), default=0)
    if not others:
        return ""
    return SHARING_WITH_ONE if others == 1 else SHARING.format(others)


def sentence_of(error: Exception) -> str:
    """Return the error message for the visitor. An unexpected error is logged, without the
    prompt.
    """
    if isinstance(error, (UnavailableError, RefusalError, *USER_ERRORS)):
        return str(error)
    log.error("a run failed: %s", where(error))
    return FAILED


class Transcript:
    """A run, its name in the log, and the events that were read from it.

    tokens: visible tokens by row. finished: rows whose text is complete. is_drawn: False if the run
    only repeats another one to time it.
    """

    def __init__(
        self,
        name: str,
        run: Run,
        writer: TraceWriter | None = None,
        is_drawn: bool = True,
    ) -> None:
        """Create a transcript. writer: required for ``read``."""
        self.name = name
        self.is_drawn = is_drawn
        self.run = run
        self.events: list[Event] = []
        self.tokens: dict[int, list[int]] = defaultdict(list)
        self.finished: set[int] = set()
        self._writer = writer

    @property
    def end(self) -> End | None:
        """The event that ended the run, or None while it is running."""
        last = self.events[-1] if self.events else None
        return last if isinstance(last, End) else None

    @property
    def is_done(self) -> bool:
        """Whether the run is complete: it was not ended by an error, the time limit or a
        cancellation.
        """
        return self.end is not None and self.end.reason in FINAL

    def take(self) -> tuple[Event, ...]:
        """Return the events that arrived since the last call."""
        events = self.run.events_since(len(self.events))
        for event in events:
            if isinstance(event, Step):
                self._note(event)
        self.events.extend(events)
        return events

    def read(self) -> list[str]:
        """Return the trace lines of events that arrived since the last call. The first call that
        returns lines also returns the header.
        """
        assert self._writer is not None, "this transcript has no writer"
        is_first, events = not self.events, self.take()
        lines = [self._writer.header_line()] if events and is_first else []
        return [*lines, *map(self._writer.line, events)]

    def _note(self, step: Step) -> None:
        for row in step.rows:
            self.tokens[row.row].extend(visible_tokens(row))
            if row.stop in FINAL:
                self.finished.add(row.row)


def writer_of(
    served: LoadedModel, prompt: str, request: Request, task: Task | None, context: Context = ALONE
) -> TraceWriter:
    """Return the trace writer of a request.

    task: the prompt's task, if it is known. context: the earlier turns and the system prompt.
    """
    header = make_header(
        served.checkpoint,
        prompt,
        request,
        costs=served.engine.costs(),
        task=asdict(task) if task is not None else None,
        name=title_of(request.settings),
        context=context,
        room=served.engine.capacity,
    )
    return TraceWriter(header, served.checkpoint.tokenizer.token_bytes)
