"""A run, from the button of a tab to the lines that the page draws: validate, start, load, follow,
check the answers. A tab implements its handlers and its run. A session cannot read or change the
run of another session.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

import gradio as gr

from app.engines.engines import Engines, LoadedModel, UnavailableError
from app.engines.limits import Limits, RefusalError
from app.ui.controls import title_of
from app.ui.examples import ExampleBook
from app.ui.wiring import AT_ONCE, STREAMED, Field, owner_of, run_queue, session_of
from mars_runtime import tasks
from mars_runtime.engine.backend import where
from mars_runtime.engine.engine import EngineError
from mars_runtime.engine.header import make_header
from mars_runtime.engine.request import Request, RequestError
from mars_runtime.engine.run import Run
from mars_runtime.files.json_values import json_line
from mars_runtime.runs.events import FINAL, End, Event, Step
from mars_runtime.runs.folds import visible_tokens
from mars_runtime.runs.trace import TraceWriter
from mars_runtime.settings import SettingsError
from mars_runtime.tasks import Task
from mars_runtime.text import ALONE, Context, TextError

# An update takes about 3 ms of Python time, which the decoding thread shares: at most 3 % of its
# time.
POLL_SECONDS = 1 / 8
HEARTBEAT_SECONDS = 1.0  # an idle generator yields this often, so that Gradio can close it
CHECK_SECONDS = 0.2  # time between two checks of whether the visitor still waits
CLEAR_SECONDS = 2.0
WHOLE_CHARS = 120_000
NUM_RESENDS = 6  # number of times that a line is sent again in later values
NUM_KEPT = 8  # number of finished logs that pages can still request
USER_ERRORS = (EngineError, RequestError, SettingsError, TextError)  # shown to the visitor
STOPPED = "Stopped. The results up to this point are shown."
HELD_UP = "Waiting: another run is being timed and needs the device to itself."
SHARING_WITH_ONE = "Sharing the device with 1 other run."
SHARING = "Sharing the device with {} other runs."
FAILED = "The run failed because of an error in the app. Press Run to try again."
WARMING_UP = "Warming up: measuring how long forward passes take on this machine…"
Decode = Callable[[str, Mapping[str, Any], str], Iterator[Any]]
"""Function that starts a run. It is called with a session, the values of the controls and an owner,
and yields growing values of the outputs.
"""
T = TypeVar("T")
log = logging.getLogger(__name__)


class RunLog:
    """The lines of one run, after a first line with its head. Thread-safe.

    head: ``run``, a unique random id, and what the tab's view reads, such as ``lanes``. A further
    line is a tag, a tab and JSON: a trace line with the name of its transcript, ``verdict``,
    ``pace`` or ``status``.
    """

    def __init__(self, head: Mapping[str, Any]) -> None:
        self._head = {"run": uuid.uuid4().hex, **head}
        self.run: str = self._head["run"]
        self._lines: list[str] = []
        self._num_chars = 0
        self._sent: deque[int] = deque(maxlen=NUM_RESENDS)  # numbers of lines when values were sent
        self._status = ""

    def add(self, tag: str, data: str | Mapping[str, Any]) -> None:
        """Append a line. data: a trace line, tagged with the name of its lane, or an object
        that is written as JSON.
        """
        text = data if isinstance(data, str) else json_line(data)
        self._lines.append(f"{tag}\t{text.rstrip()}\n")
        self._num_chars += len(self._lines[-1])

    def set_status(self, text: str, kind: str = "waiting") -> None:
        if text != self._status:
            self._status = text
            self.add("status", {"text": text, "kind": kind})

    def refuse(self, text: str) -> None:
        self.set_status(text, "error")

    def stop(self) -> None:
        self.set_status("Stopped before the first pass.", "stopped")

    @property
    def has_news(self) -> bool:
        return not self._sent or len(self._lines) > self._sent[-1]

    def latest(self) -> str:
        """Return the next value to send: the whole log while it is short, otherwise its latest
        lines. Call it exactly once for each value that is sent.

        Gradio converts the whole value to JSON several times per update (80 ms at 1.2 MB). Values
        overlap, so a page can miss a few; if it misses more, it requests the whole log.
        """
        is_whole = self._num_chars <= WHOLE_CHARS or not self._sent
        begin = 0 if is_whole else self._sent[0]
        self._sent.append(len(self._lines))
        return self._value(begin, self._sent[-1])

    def whole(self) -> str:
        return self._value(0, len(self._lines))

    def _value(self, begin: int, end: int) -> str:
        head = {**self._head, "from": begin} if begin else self._head
        return json_line(head) + "\n" + "".join(self._lines[begin:end])


class RunLogs:
    """Logs that a page can request completely: of active runs and the latest finished ones.

    The id of a run is random and only sent to its visitor, so it is enough to read the log, also
    after a reload with another session.
    """

    def __init__(self) -> None:
        self._by_run: WeakValueDictionary[str, RunLog] = WeakValueDictionary()
        self._latest: deque[RunLog] = deque(maxlen=NUM_KEPT)

    def store(self, log: RunLog) -> RunLog:
        self._by_run[log.run] = log
        self._latest.append(log)
        return log

    def missed(self, run: object) -> str:
        log = self._by_run.get(run) if isinstance(run, str) else None
        return log.whole() if log is not None else ""


class TabRun(ABC):
    def __init__(self, log: RunLog, checkpoint: str, book: ExampleBook, max_seconds: float) -> None:
        self.log = log
        self.checkpoint = checkpoint
        self.book = book
        self.max_seconds = max_seconds
        self.owner = ""  # the client's address
        self.transcripts: list[Transcript] = []
        self.is_cancelled = False

    @abstractmethod
    def decode(self, served: LoadedModel) -> Iterator[None]:
        """Start and ``follow`` the transcripts, then check the answers. Yields after each batch of
        new lines.
        """

    @property
    def running(self) -> list[Transcript]:
        """Transcripts that have not ended."""
        return [transcript for transcript in self.transcripts if transcript.end is None]

    def begin(self, *transcripts: Transcript) -> None:
        self.transcripts.extend(transcripts)
        if self.is_cancelled:
            self.cancel()

    def follow(self) -> Iterator[None]:
        self.advance()
        while self.running:
            yield
            self.running[0].run.wait(POLL_SECONDS)
            self.advance()

    def advance(self) -> None:
        self.collect()

    def collect(self) -> None:
        for transcript in self.transcripts:
            for line in transcript.new_lines():
                if transcript.is_drawn:
                    self.log.add(transcript.name, line)

    @property
    def drawn(self) -> list[Transcript]:
        return [transcript for transcript in self.transcripts if transcript.is_drawn]

    def say_situation(self, running: str) -> None:
        situation = waiting_sentence([self.transcripts[-1].run])
        if situation or running:
            self.log.set_status(situation or running, "waiting" if situation else "running")

    def log_verdicts(self, served: LoadedModel, kind: str, prompt: str) -> None:
        task = self.book.task(prompt)
        if task is None or not tasks.is_checkable(task):
            return
        for transcript in self.drawn:
            if transcript.is_done and (end := transcript.end):
                text = served.checkpoint.tokenizer.decode(transcript.tokens[0])
                is_right = tasks.check(task, text, is_cut=end.reason != "eos")
                self.log.add("verdict", {kind: transcript.name, "right": is_right})

    def cancel(self) -> None:
        self.is_cancelled = True
        for transcript in list(self.transcripts):
            transcript.run.cancel()

    def close(self) -> None:
        until = time.monotonic() + CLEAR_SECONDS
        while self.running and time.monotonic() < until:
            self.running[0].run.wait(CHECK_SECONDS)
            self.collect()


R = TypeVar("R", bound=TabRun)


class RunRegistry(Generic[R]):
    """The current run of each session. Thread-safe."""

    def __init__(self) -> None:
        self._runs: dict[str, R] = {}
        self._lock = threading.Lock()

    def begin(self, session: str, run: R) -> None:
        """Cancel the session's previous run, and make this its run once the last lines of the
        previous one have been sent. Otherwise these could replace the first lines of this run.
        """
        until = time.monotonic() + CLEAR_SECONDS
        if self.stop(session):
            while self.of(session) is not None and time.monotonic() < until:
                time.sleep(POLL_SECONDS / 4)
            time.sleep(POLL_SECONDS)
        with self._lock:
            previous = self._runs.get(session)
            self._runs[session] = run
        if previous is not None:
            previous.cancel()

    def of(self, session: str) -> R | None:
        with self._lock:
            return self._runs.get(session)

    def stop(self, session: str) -> bool:
        run = self.of(session)
        if run is not None:
            run.cancel()
        return run is not None

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
    def __init__(
        self,
        engines: Engines,
        logs: RunLogs,
        book: ExampleBook,
        settle: Callable[[str], None],
    ) -> None:
        """Create the handlers. settle: called with the session when a run starts; from then on the
        page does not replace this visitor's checkpoint when the default checkpoint is ready.
        """
        self.engines = engines
        self.logs = logs
        self.book = book
        self._settle = settle
        self.runs: RunRegistry[R] = RunRegistry()

    def wire(
        self,
        page: gr.Blocks,
        triggers: Sequence[Any],
        stop_button: gr.Button,
        inputs: Mapping[str, Field],
        outputs: Sequence[gr.components.Component],
        decode: Decode | None = None,
        js: str | None = None,
    ) -> None:
        """Wire the runs of the tab. Stop and a closed page cancel them.

        outputs: components whose values ``decode`` yields; for ``run``, only the tab's view. js:
        script that changes the posted values in the browser.

        An invalid control is reported by a value of the view, and the page keeps its run.
        """
        decode = decode or self.run

        def named(values: Sequence[Any]) -> dict[str, Any]:
            return dict(zip(inputs, values, strict=True))

        def run(request: gr.Request, *values: Any) -> Iterator[Any]:
            refusal = self.check(named(values))
            if refusal is None:
                yield from decode(session_of(request), named(values), owner_of(request))
            else:
                value = refused(refusal)
                yield (value, *[gr.skip()] * (len(outputs) - 1)) if outputs[1:] else value

        # async, so that it runs in the event loop. In a thread, a delayed Stop could end the next
        # run.
        async def stop(request: gr.Request) -> None:
            self.stop(session_of(request))

        gr.on(
            triggers,
            run,
            inputs=list(inputs.values()),
            outputs=list(outputs),
            js=js,
            **run_queue(self.engines.settings),
            trigger_mode="multiple",
            **STREAMED,
        )
        stop_button.click(stop, **AT_ONCE)
        page.unload(stop)

    def limits(self, values: Mapping[str, Any]) -> Limits:
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
        log, run, sent_at = self.blank(), None, -math.inf
        try:
            run = self.validate(values)
            run.owner = owner
            self._settle(session)
            log = self.logs.store(run.log)
            self.runs.begin(session, run)
            for _ in self._decoded(run):
                if self.runs.of(session) is not run:  # the visitor has started another run
                    break
                if run.is_cancelled and not run.transcripts:
                    log.stop()
                    break
                if log.has_news or time.monotonic() - sent_at >= HEARTBEAT_SECONDS:
                    sent_at = time.monotonic()
                    yield log.latest()
        except Exception as error:
            log.refuse(sentence_of(error))
        finally:
            has_news = log.has_news and (run is None or self.runs.of(session) is run)
            if run is not None:
                self.runs.end(session, run)
                run.close()
        if has_news:
            yield log.latest()

    def stop(self, session: str) -> None:
        self.runs.stop(session)

    def _decoded(self, run: R) -> Iterator[None]:
        """Load the checkpoint, then decode. If the visitor moves a control in the meantime, the run
        starts with the new value. Raises UnavailableError.
        """
        with self.engines.kept(run.checkpoint):
            served = yield from loaded(self.engines, run.checkpoint, run.log.set_status)
            yield from run.decode(served)


def loaded(
    engines: Engines, name: str, report: Callable[[str], T], until: float = math.inf
) -> Generator[T, None, LoadedModel]:
    load = engines.begin(name)
    while (served := load.wait(0.0)) is None:
        if time.monotonic() > until:
            sentence = f"The model did not load in time. {load.situation} Try again later."
            raise RefusalError("checkpoint", sentence)
        yield report(load.situation)
        load.wait(CHECK_SECONDS)
    while not served.engine.is_ready(0.0):
        yield report(WARMING_UP)
        served.engine.is_ready(CHECK_SECONDS)
    return served


def refused(refusal: RefusalError) -> str:
    said = {"field": refusal.field, "text": str(refusal)}
    return json_line({"run": uuid.uuid4().hex, "refused": said}) + "\n"


def waiting_sentence(runs: Iterable[Run]) -> str:
    runs = tuple(runs)
    num_ahead = max((run.num_ahead for run in runs), default=0)
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

    tokens: visible tokens by row. is_drawn: False if the run only repeats another to time it.
    """

    def __init__(
        self,
        name: str,
        run: Run,
        writer: TraceWriter | None = None,
        is_drawn: bool = True,
    ) -> None:
        self.name = name
        self.is_drawn = is_drawn
        self.run = run
        self.events: list[Event] = []
        self.tokens: dict[int, list[int]] = defaultdict(list)
        self.finished: set[int] = set()
        self._writer = writer

    @property
    def end(self) -> End | None:
        last = self.events[-1] if self.events else None
        return last if isinstance(last, End) else None

    @property
    def is_done(self) -> bool:
        return self.end is not None and self.end.reason in FINAL

    def new_events(self) -> tuple[Event, ...]:
        events = self.run.events_since(len(self.events))
        for event in events:
            if isinstance(event, Step):
                self._note(event)
        self.events.extend(events)
        return events

    def new_lines(self) -> list[str]:
        """Return the trace lines of events that arrived since the last call. The first call that
        returns lines also returns the header.
        """
        assert self._writer is not None, "this transcript has no writer"
        is_first, events = not self.events, self.new_events()
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
