"""A backend without a model: each prompt is a script of forwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mars_runtime.engine import CustomDecoderRequest, Request, Run
from mars_runtime.engine.backend import Backend
from mars_runtime.runs.events import Event, Prefill, Proposal, RowStep, Step, Stop
from mars_runtime.settings import DecodeSettings

Settings = Callable[[], DecodeSettings]
FOREVER = 4096


class Clock:
    """The clock of an engine, moved ahead by a test; the fixture ``clock`` installs it."""

    ahead, num_reads = 0.0, 0

    def monotonic(self) -> float:
        self.num_reads += 1
        return time.monotonic() + self.ahead


def request(token: int = 1, num_tokens: int = 5, deadline: float = 600.0) -> Request:
    return Request((token,), DecodeSettings(max_new_tokens=num_tokens), deadline)


def steps(run: Run) -> list[Step]:
    return [event for event in run.events_since(0) if isinstance(event, Step)]


def last(run: Run) -> Event:
    return run.events_since(0)[-1]


def eventually(condition: Callable[[], bool], seconds: float = 120.0) -> bool:
    until = time.monotonic() + seconds
    while not (actual := condition()) and time.monotonic() < until:
        time.sleep(0.002)
    return actual


def prefilled(run: Run) -> bool:
    return len(run.events_since(0)) > 0


def scripted_step(start: int, token: int, settings: DecodeSettings, stop: Stop) -> Step:
    proposals = (Proposal(token, 1.0, ()),)
    return Step((RowStep(0, start, start, 1, 1, proposals, (token,), 0, settings, stop),))


@dataclass
class ScriptedRow:
    number: int
    token: int
    settings: Settings
    num_unread: int = 0
    num_emitted: int = 0

    def step(self) -> RowStep:
        settings = self.settings()
        stop: Stop = "limit" if self.num_emitted + 1 >= settings.max_new_tokens else "block"
        (row,) = scripted_step(self.num_emitted, self.token, settings, stop).rows
        self.num_emitted += 1
        return replace(row, row=self.number)


@dataclass
class Script(Backend):
    """The backend: prompt (token,) emits that token once per forward, until the limit.

    seconds: token -> how long a forward takes, of several the longest; fails_at: token -> the step
    that raises ``error``. start, gate: the worker waits for them before the first forward, before
    every forward. forwards: the tokens of each forward. parts: how much of a prompt was read.
    """

    capacity: int = FOREVER
    seconds: dict[int, float] = field(default_factory=dict)
    fails_at: dict[int, int] = field(default_factory=dict)
    error: BaseException | type[BaseException] = field(
        default_factory=lambda: RuntimeError("secret words of the prompt")
    )
    start: threading.Event | None = None
    gate: threading.Event | None = None
    num_parts: int = 1  # in which every prompt is read
    num_open: int = 0
    threads: set[int] = field(default_factory=set)
    forwards: list[tuple[int, ...]] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    rows: dict[int, ScriptedRow] = field(default_factory=dict)

    def reserve(self, num_rows: int) -> int:
        return num_rows

    def prepare(self) -> None:
        if self.start is not None:
            self.start.wait(20)
        self.threads.add(threading.get_ident())

    def check(self, request: Request | CustomDecoderRequest) -> None:
        pass

    def batch(self) -> Script:
        return self

    def synchronize(self) -> None:
        self.threads.add(threading.get_ident())

    def join(self, number: int, prompt: Sequence[int], settings: Settings) -> None:
        assert number not in self.rows
        (token,) = prompt
        self.rows[number] = ScriptedRow(number, token, settings, self.num_parts)
        self.num_open += 1

    def prefill(self, number: int, at_most: int) -> int:
        self.parts.append(at_most)
        self.rows[number].num_unread -= 1
        return self.rows[number].num_unread

    def gather(self, numbers: Sequence[int]) -> None:
        assert all(not self.rows[number].num_unread for number in numbers)

    def step(self, numbers: Sequence[int]) -> Step:
        step = self._forward([self.rows[number] for number in numbers])
        for row in step.rows:
            if row.stop == "limit":
                self.drop(row.row)
        return step

    def checked(self, step: Step, numbers: Collection[int]) -> Step:
        return step

    def num_reused(self, number: int) -> int:
        return 0

    def release_ended(self) -> None:
        pass

    def drop(self, number: int) -> None:
        del self.rows[number]
        self.num_open -= 1

    def decode(
        self, request: Request | CustomDecoderRequest, settings: Settings
    ) -> Iterator[Event]:
        if isinstance(request, CustomDecoderRequest):
            nothing: Any = None
            return request.decode(nothing, nothing, settings, None)
        (token,) = request.prompt_ids
        return self._events(ScriptedRow(0, token, settings))

    def _events(self, row: ScriptedRow) -> Iterator[Event]:
        self.num_open += 1
        try:
            yield Prefill(1)
            while True:
                yield (step := self._forward([row]))
                if step.rows[0].stop == "limit":
                    return
        finally:
            self.num_open -= 1

    def _forward(self, rows: list[ScriptedRow]) -> Step:
        """One token of each row; one that raises changes nothing."""
        self.threads.add(threading.get_ident())
        if self.gate is not None:
            self.gate.wait(20)
        seconds = max(self.seconds.get(row.token, 0.0) for row in rows)
        if seconds:
            time.sleep(seconds)
        for row in rows:
            if self.fails_at.get(row.token) == row.num_emitted:
                raise self.error
        self.forwards.append(tuple(row.token for row in rows))
        return Step(tuple(row.step() for row in rows))
