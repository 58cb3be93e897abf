"""How every tab streams a run: validate, start, load, follow, judge.

A tab implements two classes: its handlers, which read its controls, and its run, which decodes and
writes the log. A visitor is a session; one session cannot see or change another's run.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from app.engines.engines import Engines, Served, UnavailableError
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
from mars_runtime.events import FINAL, End, Event, Step
from mars_runtime.folds import visible_tokens
from mars_runtime.settings import SettingsError
from mars_runtime.tasks import Task
from mars_runtime.text import ALONE, Context, TextError
from mars_runtime.trace import TraceWriter

# An update takes some 3 ms of Python next to the decoding thread: at most 3 % of its time at full
# speed. In slow motion the device pauses anyway, so updates can be more frequent.
POLL_SECONDS, SLOW_POLL_SECONDS = 1 / 7, 1 / 12
HEARTBEAT_SECONDS = 1.0  # an idle generator still yields, to detect a closed tab
LOOK_SECONDS = 0.2  # between two checks whether a visitor still waits
CLEAR_SECONDS = 2.0
USER_ERRORS = (EngineError, RequestError, SettingsError, TextError)  # shown to the user
STOPPED = "Stopped. The results up to this point are shown."
HELD_UP = "Waiting: another run is being timed and has the device to itself."
FAILED = "The run failed because of an error in the app. Run it again."
WARMING_UP = "Warming up: measuring how long forward passes take on this machine…"
Wait = Callable[[], object]
"""Blocks until there may be news, for a short time at most."""
log = logging.getLogger(__name__)


class TabOrder(Protocol):
    """Validated values of a tab's controls."""

    @property
    def checkpoint(self) -> str: ...


OrderT = TypeVar("OrderT", bound=TabOrder)


class TabRun(ABC, Generic[OrderT]):
    """A visitor's run in a tab. It has no transcripts before its checkpoint is loaded."""

    def __init__(self, log: RunLog, order: OrderT, book: ExampleBook, max_seconds: float) -> None:
        """Create a run that has not begun. book: knows which answers can be judged. max_seconds:
        the deadline.
        """
        self.log = log
        self.order = order
        self.book = book
        self.max_seconds = max_seconds
        self.owner = ""  # the client's address
        self.transcripts: list[Transcript] = []
        self.is_cancelled = False

    @abstractmethod
    def decode(self, served: Served) -> Iterator[Wait]:
        """Start and ``follow`` the runs one after the other, then judge the answers."""

    @property
    def pause(self) -> float:
        """Seconds between two values of the stream."""
        return POLL_SECONDS

    @property
    def running(self) -> list[Transcript]:
        """Transcripts that have not ended."""
        return [transcript for transcript in self.transcripts if transcript.end is None]

    def begin(self, *transcripts: Transcript) -> None:
        """Add transcripts. After Stop they are cancelled at once."""
        self.transcripts.extend(transcripts)
        if self.is_cancelled:
            self.cancel()

    def follow(self) -> Iterator[Wait]:
        """Wait until all transcripts have ended."""
        self.advance()
        while self.running:
            yield partial(self.running[0].run.wait, self.pause)
            self.advance()

    def advance(self) -> None:
        """Log what is new since the last call."""
        self.collect()

    def collect(self) -> bool:
        """Move new events into the log; return whether there were any."""
        lines = [
            (transcript, line) for transcript in self.transcripts for line in transcript.read()
        ]
        for transcript, line in lines:
            if transcript.is_drawn:
                self.log.add(transcript.name, line)
        return bool(lines)

    @property
    def drawn(self) -> list[Transcript]:
        """Transcripts that the page shows; the others are only timed repetitions."""
        return [transcript for transcript in self.transcripts if transcript.is_drawn]

    def say_situation(self, running: str) -> None:
        """Log what the latest transcript waits for or how many share its device; otherwise
        ``running``.
        """
        situation = waiting_sentence([self.transcripts[-1].run])
        if situation or running:
            self.log.say(situation or running, "waiting" if situation else "running")

    def judge_all(self, served: Served, kind: str, prompt: str) -> None:
        """Judge all finished transcripts of the prompt. ``kind``: the key of their names in the
        verdict.
        """
        for transcript in self.drawn:
            if transcript.is_done:
                self.judge(served, prompt, transcript.tokens[0], {kind: transcript.name})

    def judge(
        self, served: Served, prompt: str, tokens: Sequence[int], about: Mapping[str, Any]
    ) -> None:
        """Log whether a complete answer is right, if that can be judged. ``about`` identifies the
        answer.

        Call it only after all timing is done.
        """
        task = self.book.task(prompt)
        if task is not None and tasks.is_checkable(task):
            is_right = tasks.check(task, served.checkpoint.tokenizer.decode(tokens))
            self.log.add("verdict", {**about, "right": is_right})

    @property
    def time_is_over(self) -> str:
        """Start of the message at the deadline."""
        return f"The time limit of {self.max_seconds:g} s is over"

    def cancel(self) -> None:
        """End within one forward and start nothing else. A second call does nothing."""
        self.is_cancelled = True
        for transcript in list(self.transcripts):
            transcript.run.cancel()

    def close(self) -> None:
        """Log how a cancelled run ended; a page that lost its stream reads the log later."""
        until = time.monotonic() + CLEAR_SECONDS
        while self.running and time.monotonic() < until:
            self.running[0].run.wait(LOOK_SECONDS)
            self.collect()


R = TypeVar("R", bound=TabRun[Any])


class RunRegistry(Generic[R]):
    """The run of each session, at most one. Thread-safe."""

    def __init__(self) -> None:
        self._runs: dict[str, R] = {}
        self._lock = threading.Lock()

    def begin(self, session: str, run: R) -> None:
        """Set the session's run and cancel its previous one."""
        with self._lock:
            previous = self._runs.get(session)
            self._runs[session] = run
        if previous is not None:
            previous.cancel()

    def of(self, session: str) -> R | None:
        """Return the session's run, if any."""
        with self._lock:
            return self._runs.get(session)

    def stop(self, session: str) -> bool:
        """Cancel the session's run; return whether there was one."""
        run = self.of(session)
        if run is not None:
            run.cancel()
        return run is not None

    def clear(self, session: str, pause: float) -> None:
        """Stop the session's run and wait until its last lines have been sent.

        Both streams write to the same component, and the older one must not come last. ``pause``:
        seconds between two values of a stream.
        """
        if not self.stop(session):
            return
        until = time.monotonic() + CLEAR_SECONDS
        while self.of(session) is not None and time.monotonic() < until:
            time.sleep(pause / 4)
        time.sleep(pause)

    def end(self, session: str, run: R) -> None:
        """Cancel this run and forget it, unless the session has started another since."""
        run.cancel()
        with self._lock:
            if self._runs.get(session) is run:
                del self._runs[session]

    def __len__(self) -> int:
        with self._lock:
            return len(self._runs)


class TabHandlers(ABC, Generic[R]):
    """Handlers of a tab with streaming runs; one object serves every visitor."""

    pause: ClassVar[float] = POLL_SECONDS
    most_tokens: ClassVar[int]
    """Maximum of the tab's token slider, unless the app allows fewer."""

    def __init__(self, engines: Engines, logs: RunLogs, book: ExampleBook) -> None:
        self.engines = engines
        self.logs = logs
        self.book = book
        self.runs: RunRegistry[R] = RunRegistry()

    @property
    def max_tokens(self) -> int:
        """Maximum of the token slider."""
        return min(self.most_tokens, self.engines.settings.max_new_tokens)

    def limits(self, values: Mapping[str, Any]) -> Limits:
        """Return the limits of the chosen checkpoint. Raises RefusalError."""
        return self.engines.limits(values.get("checkpoint"))

    @abstractmethod
    def read(self, values: Mapping[str, Any]) -> R:
        """Validate the controls and return the run that they request, not started. Raises
        RefusalError.
        """

    @abstractmethod
    def blank(self) -> RunLog:
        """Return an empty log for a run that cannot start."""

    def check(self, values: Mapping[str, Any]) -> RefusalError | None:
        """Return what is wrong with these controls, or None."""
        try:
            self.read(values)
        except RefusalError as refusal:
            return refusal
        return None

    def run(self, session: str, values: Mapping[str, Any], owner: str = "") -> Iterator[str]:
        """Decode what the controls request; yield the component's growing value.

        Yields several times a second if there is news, and otherwise once a second. An error ends
        the run with a message. Closing the generator cancels the run. owner: of the engine's
        requests (``engine.request.Request``).
        """
        log_value, run = self.blank(), None
        try:
            run = self.read(values)
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
        """End the visitor's run within one forward; its output stays on the page."""
        self.runs.stop(session)

    def _values(self, session: str, run: R) -> Iterator[str]:
        """Yield values of the log until the run is over or the visitor has started another."""
        shown = -math.inf
        for wait in self._decoded(run):
            if run.log.has_news or time.monotonic() - shown >= HEARTBEAT_SECONDS:
                shown = time.monotonic()
                yield run.log.latest()
            wait()
            if self.runs.of(session) is not run:
                return

    def _decoded(self, run: R) -> Iterator[Wait]:
        """Wait until the checkpoint is loaded and warm, then run. Raises UnavailableError."""
        with self.engines.kept(run.order.checkpoint):
            load = self.engines.begin(run.order.checkpoint)
            while (served := load.wait(0.0)) is None and not run.is_cancelled:
                run.log.say(load.situation)
                yield partial(load.wait, LOOK_SECONDS)
            # A control that is moved while waiting changes the order before its lanes are built.
            while served is not None and not run.is_cancelled and not served.engine.is_ready(0.0):
                run.log.say(WARMING_UP)
                yield partial(served.engine.is_ready, LOOK_SECONDS)
            if served is None or run.is_cancelled:
                run.log.stop()
            else:
                yield from run.decode(served)


def waiting_sentence(runs: Iterable[Run]) -> str:
    """Return what the runs wait for or share, for the visitor; empty if neither."""
    runs = tuple(runs)
    place = max((run.place for run in runs), default=0)
    if place:
        return f"Waiting: {place} {'run is' if place == 1 else 'runs are'} ahead of yours."
    if any(run.is_awaiting_device for run in runs):
        return "Waiting for a GPU, which is lent for this run."
    if any(run.is_held_up for run in runs):
        return HELD_UP
    if any(run.is_hurried for run in runs):
        return "Slow motion is off while other visitors wait for a slot."
    others = max((run.num_sharing for run in runs), default=0)
    return f"Shared with {others} {'other' if others == 1 else 'others'}." if others else ""


def sentence_of(error: Exception) -> str:
    """Return the error message for the visitor. Unexpected errors are logged, without the
    prompt.
    """
    if isinstance(error, (UnavailableError, RefusalError, *USER_ERRORS)):
        return str(error)
    log.error("a run failed: %s", where(error))
    return FAILED


class Transcript:
    """A run with a name for its lines, and what was read of it so far.

    tokens: the visible ones by row. finished: rows with complete text. is_drawn: False for a timed
    repetition.
    """

    def __init__(
        self,
        name: str,
        run: Run,
        writer: TraceWriter,
        keeps_proposals: bool = True,
        is_drawn: bool = True,
    ) -> None:
        self.name = name
        self.is_drawn = is_drawn
        self.run = run
        self.events: list[Event] = []
        self.tokens: dict[int, list[int]] = defaultdict(list)
        self.finished: set[int] = set()
        self._writer = writer
        self._keeps_proposals = keeps_proposals

    @property
    def end(self) -> End | None:
        """How the run ended; None while it is running."""
        last = self.events[-1] if self.events else None
        return last if isinstance(last, End) else None

    @property
    def is_done(self) -> bool:
        """Whether the run completed, without an error, a deadline or a cancellation."""
        return self.end is not None and self.end.reason in FINAL

    def read(self) -> list[str]:
        """Return the trace lines of events since the last call, starting with the header."""
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
            if row.stop in FINAL:
                self.finished.add(row.row)


def _slim(event: Event) -> Event:
    """Return the event without its proposals."""
    if not isinstance(event, Step):
        return event
    return replace(event, rows=tuple(replace(row, proposals=()) for row in event.rows))


def writer_of(
    served: Served, prompt: str, request: Request, task: Task | None, context: Context = ALONE
) -> TraceWriter:
    """Return the trace writer of a request, with its header.

    task: the prompt's task, if known. context: what precedes and follows the prompt.
    """
    header = make_header(
        served.about,
        prompt,
        request,
        costs=served.engine.costs(),
        task=asdict(task) if task is not None else None,
        name=title_of(request.settings),
        context=context,
        room=served.engine.capacity,
    )
    return TraceWriter(header, served.checkpoint.tokenizer.token_bytes)
