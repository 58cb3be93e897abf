"""An engine for a model on another machine.

Every job is one HTTP request, and a thread per job reads the response stream to its end. If the
connection is lost, the runs of the job end with an error message. Later runs send new requests.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import httpx
from pydantic import TypeAdapter

from mars_runtime.engine.backend import where
from mars_runtime.engine.base import BaseEngine
from mars_runtime.engine.engine import EngineBusy, EngineError
from mars_runtime.engine.request import AnyRequest, Request, RequestError, Solo
from mars_runtime.engine.run import Run, WakeCondition, check_pace
from mars_runtime.engine.scheduler import Job, Scheduler
from mars_runtime.events import End, Event, Prefill, Step
from mars_runtime.serving.models import ModelDescription, read_about
from mars_runtime.serving.runs import QueueState, wire_header
from mars_runtime.text import TextError
from mars_runtime.trace import TraceError, TraceReader, TraceWriter

if TYPE_CHECKING:
    from mars_runtime.decoders.forward_costs import ForwardCosts

CLOSED = "The page was closed. Start the program again."
NO_BATCH = "Batches need a model on the same machine as the page. This model is on another machine."
_log = logging.getLogger(__name__)
CONNECT_SECONDS = 5.0
SILENT_SECONDS = 15.0  # without a message for this time, the connection counts as lost
AWAY = "The machine that decodes for this page does not answer. Run it again in a moment."
LOST = "The connection to the machine that decoded this was lost. Run it again in a moment."
STRANGE = (
    "The page and the machine that decodes for it have different versions of the protocol. Update "
    "both."
)
ServerEvent = tuple[str, str]
"""The name and the data of a server-sent event."""
_STATE = TypeAdapter(QueueState)


class RemoteEngine(BaseEngine):
    """An engine for one checkpoint on another machine.

    capacity: maximum number of tokens of a prompt and its answer together, as reported by the
    machine.
    """

    def __init__(self, machine: Machine, checkpoint: str, capacity: int) -> None:
        self._machine = machine
        self._checkpoint = checkpoint
        self._capacity = capacity
        self._is_closed = False
        self._runs: set[RemoteRun] = set()

    @property
    def is_alive(self) -> bool:
        """Whether the engine is open.

        A lost connection does not close it, so that later runs are possible.
        """
        return not self._is_closed

    @property
    def max_running(self) -> int:
        """Always 0, because the other machine divides its slots among all its clients."""
        return 0

    @property
    def capacity(self) -> int:
        return self._capacity

    def costs(self) -> ForwardCosts | None:
        """Return None; the costs are in the ``facts`` of the model's description instead."""
        return None

    def close(self) -> None:
        self._is_closed = True
        for run in list(self._runs):
            run.cancel()

    def _serve(self, jobs: Sequence[AnyRequest], pace: float, is_shared: bool = False) -> list[Run]:
        if self._is_closed:
            raise EngineError(CLOSED)
        posted = self._posted(jobs, check_pace(pace), is_shared)
        session = uuid.uuid4().hex
        with ExitStack() as stack:
            stream = stack.enter_context(self._machine.begin(posted, session))
            condition = WakeCondition()
            runs = _new_runs(jobs, pace, condition)
            self._runs.update(runs)
            follow = threading.Thread(
                target=self._follow, args=(stack.pop_all(), stream, session, runs), daemon=True
            )
            follow.start()
        return list(runs)

    def _posted(
        self, jobs: Sequence[AnyRequest], pace: float, is_shared: bool
    ) -> Mapping[str, Any]:
        """Return the JSON body of the HTTP request that starts ``jobs``.

        Raises RequestError for a ``Solo`` job, because its decoder is a function that cannot be
        sent.
        """
        if any(isinstance(job, Solo) for job in jobs):
            raise RequestError(NO_BATCH)
        return {
            "model": self._checkpoint,
            "lanes": [_lane(job) for job in jobs if isinstance(job, Request)],
            "pace": pace,
            "is_alone": not is_shared,
        }

    def _follow(
        self, stack: ExitStack, stream: Stream, session: str, runs: Sequence[RemoteRun]
    ) -> None:
        """Read the stream of one job to its end and finish its runs."""
        steering = RemoteSteering(self._machine, stream.name, session, runs)
        for run in runs:
            run.steering = steering
        steering.wake()  # to send changes that were made before the stream began
        end = End("error", LOST)
        try:
            with stack:
                _read(stream, runs)
        except EngineError as error:
            end = End("error", str(error))
        except Exception as error:
            _log.error("a run on another machine failed\n%s", where(error))
        finally:
            steering.close()
            for run in runs:
                _finish(run, End("cancelled") if run.is_cancelled else end)
            self._runs.difference_update(runs)


def _new_runs(jobs: Sequence[AnyRequest], pace: float, condition: WakeCondition) -> list[RemoteRun]:
    scheduler: Scheduler[Run] = Scheduler(1, 0)
    runs = [RemoteRun(job, time.monotonic(), condition, scheduler) for job in jobs]
    job: Job[Run] = Job(runs, check_pace(pace))
    for run in runs:
        run.join_job(job)
    scheduler.add(job)
    return runs


def _lane(request: Request) -> dict[str, Any]:
    return {
        **asdict(request.settings),
        "prompt_ids": request.prompt_ids,
        "seconds": math.ceil(request.deadline),
        "is_checked": request.is_checked,
        "reuses": request.reuses,
    }


def _read(stream: Stream, runs: Sequence[RemoteRun]) -> None:
    """Add the events of the stream to the runs until all runs have ended. Raises EngineError."""
    lanes = [_reader(run) for run in runs]
    try:
        for name, data in stream:
            if name == "state":
                state = _STATE.validate_json(data)
                for run in runs:
                    run.update(state)
            elif name:
                lanes[int(name)].feed(data)
                for event in lanes[int(name)].new():
                    _add(runs[int(name)], event)
            if all(run.is_finished or run.is_cancelled for run in runs):
                return
    except (ValueError, LookupError, RecursionError) as error:
        raise EngineError(STRANGE) from error


class LaneReader:
    """Parses the trace lines of one lane.

    head: the header line of the trace, which the stream does not contain.
    """

    def __init__(self, head: str) -> None:
        self._reader = TraceReader()
        self._reader.feed(head)
        self._num_read = 0

    def feed(self, line: str) -> None:
        """Parse the next line. Raises TraceError."""
        self._reader.feed(line)

    def new(self) -> Sequence[Event]:
        """Return the events that were parsed since the last call of this method."""
        events = self._reader.trace().events[self._num_read :]
        self._num_read += len(events)
        return events


def _reader(run: RemoteRun) -> LaneReader:
    return LaneReader(TraceWriter(wire_header(run.request.settings), _no_bytes).header_line())


def _no_bytes(token: int) -> bytes:
    raise TraceError("the header of a lane has no such token")


def _add(run: RemoteRun, event: Event) -> None:
    if isinstance(event, End):
        # If the other machine cancels a run, as when it shuts down, that is an error here.
        is_expected = event.reason != "cancelled" or run.is_cancelled
        _finish(run, event if is_expected else End("error", LOST))
        return
    if isinstance(event, (Prefill, Step)):
        run.clock += event.seconds
    run.add(event)


def _finish(run: RemoteRun, end: End) -> None:
    if not run.is_finished:
        run.add(end)
        run.is_finished = True
        run.announce_end()


class RemoteRun(Run):
    """A run on another machine.

    steering: sends changes of the run's settings to the machine; None before the job has begun.
    """

    steering: RemoteSteering | None = None
    _place = 0
    _is_held_up = _is_hurried = False

    @property
    def place(self) -> int:
        """Number of jobs on the other machine that must end before this run's job is served."""
        return 0 if self.is_finished else self._place

    @property
    def is_held_up(self) -> bool:
        """Whether the run waits for a job that has exclusive use of the other machine's device."""
        return self._is_held_up and not self.is_finished

    @property
    def is_hurried(self) -> bool:
        """Whether slow motion is suspended, because jobs on the other machine wait for a slot."""
        return self._is_hurried and not self.is_finished

    def update(self, state: QueueState) -> None:
        self._place = state.place
        self._is_held_up = state.is_held_up
        self._is_hurried = state.is_hurried
        self.num_sharing = state.num_sharing

    def _on_change(self) -> None:
        if self.steering is not None:
            self.steering.wake()


class RemoteSteering:
    """Sends changed settings of a job's runs to the other machine, one request at a time.

    A thread sends them, so callers never wait. Only the latest value of a setting is sent. If the
    run has already ended on the other machine, the change is only logged.
    """

    def __init__(
        self, machine: Machine, name: str, session: str, runs: Sequence[RemoteRun]
    ) -> None:
        """Start the sending thread.

        name: identifies the runs on the other machine. session: the session id that started them.
        """
        self._machine, self._name, self._session = machine, name, session
        self._runs = tuple(runs)
        self._sent = [run.settings for run in runs]
        self._pace = runs[0].pace
        self._stopped: set[int] = set()
        self._has_changes = self._is_over = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="mars-steering", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Signal that a setting has changed."""
        with self._wake:
            self._has_changes = True
            self._wake.notify()

    def close(self) -> None:
        """Stop the thread. Later changes are not sent."""
        with self._wake:
            self._is_over = True
            self._wake.notify()

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._has_changes or self._is_over)
                if self._is_over:
                    return
                self._has_changes = False
            for lane, run in enumerate(self._runs):
                self._send_changes(lane, run)
            if self._runs[0].pace != self._pace:
                self._pace = self._runs[0].pace
                self._steer({"pace": self._pace})

    def _send_changes(self, lane: int, run: RemoteRun) -> None:
        if run.is_finished:
            return
        if run.is_cancelled and lane not in self._stopped:
            self._stopped.add(lane)
            self._send(lambda: self._machine.stop(self._name, self._session, lane))
        elif run.settings != self._sent[lane]:
            self._sent[lane] = run.settings
            self._steer({**asdict(run.settings), "lane": lane})

    def _steer(self, changes: Mapping[str, Any]) -> None:
        self._send(lambda: self._machine.steer(self._name, self._session, changes))

    def _send(self, request: Callable[[], None]) -> None:
        try:
            request()
        except (EngineError, RequestError) as error:
            _log.info("A change of settings was not applied to a run: %s", error)


class Machine:
    """HTTP client of an endpoint on another machine.

    address: its URL, such as http://host:8000. key: its API key; empty for none.
    """

    def __init__(self, address: str, key: str = "") -> None:
        headers = {b"authorization": f"Bearer {key}".encode()} if key else {}
        timeout = httpx.Timeout(SILENT_SECONDS, connect=CONNECT_SECONDS)
        limits = httpx.Limits(max_connections=None)
        self._http = httpx.Client(
            base_url=address, headers=headers, timeout=timeout, limits=limits, trust_env=False
        )

    def about(self, name: str, seconds: float) -> ModelDescription:
        """Request the description of a model. Raises EngineError.

        seconds: maximum time to wait; the machine may be measuring the costs of forward passes.
        """
        with _sentences():
            answer = self._http.get(f"/v1/models/{name}/about", timeout=seconds)
            _check(answer)
            try:
                return read_about(answer.json())
            except (ValueError, KeyError, TypeError, TextError) as error:
                raise EngineError(STRANGE) from error

    def trouble(self, seconds: float) -> str:
        """Return why the machine cannot serve requests now, as a sentence; empty if it can.

        seconds: maximum time to wait for its response.
        """
        try:
            answer = self._http.get("/health", timeout=seconds)
        except httpx.HTTPError:
            return AWAY
        return (_sentence(answer.text) or AWAY) if answer.is_error else ""

    @contextmanager
    def begin(self, body: Mapping[str, Any], session: str) -> Iterator[Stream]:
        """Start runs and yield their stream. Raises EngineBusy, EngineError or RequestError."""
        headers = {"x-session-id": session}
        with (
            _sentences(),
            self._http.stream("POST", "/v1/runs", json=dict(body), headers=headers) as answer,
        ):
            if answer.is_error:
                answer.read()
            _check(answer)
            yield Stream(answer)

    def steer(self, run: str, session: str, changes: Mapping[str, Any]) -> None:
        """Change the settings of runs. Raises EngineError or RequestError."""
        path, headers = f"/v1/runs/{run}/settings", {"x-session-id": session}
        with _sentences():
            _check(self._http.post(path, json=dict(changes), headers=headers))

    def stop(self, run: str, session: str, lane: int) -> None:
        """Stop one of several runs that began together. Raises EngineError or RequestError."""
        headers = {"x-session-id": session}
        with _sentences():
            _check(self._http.delete(f"/v1/runs/{run}", params={"lane": lane}, headers=headers))

    def close(self) -> None:
        self._http.close()


class Stream:
    """The server-sent events of runs that began together.

    name: identifies the runs in requests that change or stop them.
    """

    def __init__(self, answer: httpx.Response) -> None:
        self.name = answer.headers.get("x-run-id", "")
        self._answer = answer

    def __iter__(self) -> Iterator[ServerEvent]:
        """Yield all events.

        Raises EngineError if the connection is lost or the machine reports an error.
        """
        name, data = "", ""
        with _sentences(LOST):
            for line in self._answer.iter_lines():
                kind, _, value = line.partition(": ")
                if kind == "event":
                    name = value
                elif kind == "data":
                    data = value
                elif not line and data:
                    yield _checked(name, data)
                    name = data = ""


def _checked(name: str, data: str) -> ServerEvent:
    """Return the event, or raise EngineError if it is an error.

    An event without a name is an error unless its data is the end marker, [DONE].
    """
    if not name and data != "[DONE]":
        raise EngineError(_sentence(data) or AWAY)
    return name, data


@contextmanager
def _sentences(sentence: str = AWAY) -> Iterator[None]:
    try:
        yield
    except (httpx.HTTPError, httpx.StreamError) as error:
        raise EngineError(sentence) from error


def _check(answer: httpx.Response) -> None:
    """If the response is an error, raise the exception that a local engine would raise."""
    if not answer.is_error:
        return
    answer.read()
    kinds: dict[int, Callable[[str], Exception]] = {400: RequestError, 429: EngineBusy}
    sentence = _sentence(answer.text) or AWAY
    raise kinds.get(answer.status_code, EngineError)(sentence)


def _sentence(body: str) -> str:
    """Return the error message in a response body, or an empty string if it has no message."""
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return message if isinstance(message, str) else ""
