"""A backend without a model: each prompt is a script of forwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mars_runtime.engine import Request, Run, Solo
from mars_runtime.events import Event, Prefill, Proposal, RowStep, Step, Stop
from mars_runtime.settings import DecodeSettings

Settings = Callable[[], DecodeSettings]
FOREVER = 4096


def request(token: int = 1, num_tokens: int = 5, deadline: float = 600.0) -> Request:
    return Request((token,), DecodeSettings(max_new_tokens=num_tokens), deadline)


def steps(run: Run) -> list[Step]:
    return [event for event in run.events_since(0) if isinstance(event, Step)]


def last(run: Run) -> Event:
    return run.events_since(0)[-1]


def eventually(condition: Callable[[], bool], seconds: float = 120.0) -> bool:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.002)
    return condition()


def scripted_step(start: int, token: int, settings: DecodeSettings, stop: Stop) -> Step:
    """A step that emits one token."""
    proposals = (Proposal(token, 1.0, ()),)
    return Step((RowStep(0, start, start, 1, 1, proposals, (token,), 0, settings, stop),))


@dataclass
class Script:
    """The backend: prompt (token,) emits that token once a forward, until the limit.

    seconds: token -> how long a forward takes; fails_at: token -> the step that raises ``error``.
    gate: where given, every forward waits for it.
    """

    seconds: dict[int, float] = field(default_factory=dict)
    fails_at: dict[int, int] = field(default_factory=dict)
    error: Exception | type[Exception] = field(
        default_factory=lambda: RuntimeError("secret words of the prompt")
    )
    gate: threading.Event | None = None
    num_open: int = 0
    num_started: int = 0
    threads: set[int] = field(default_factory=set)

    def prepare(self) -> None:
        self.threads.add(threading.get_ident())

    def check(self, asked: Request | Solo) -> None:
        pass

    def synchronize(self) -> None:
        self.threads.add(threading.get_ident())

    def decode(self, asked: Request | Solo, settings: Settings) -> Iterator[Event]:
        if isinstance(asked, Solo):
            nothing: Any = None
            return asked.decode(nothing, nothing, settings)
        (token,) = asked.prompt_ids
        return self._events(token, settings)

    def _events(self, token: int, settings: Settings) -> Iterator[Event]:
        self.num_open += 1
        self.num_started += 1
        self.threads.add(threading.get_ident())
        try:
            yield Prefill(1)
            for start in range(settings().max_new_tokens):
                if self.gate is not None:
                    self.gate.wait()
                if self.seconds.get(token):
                    time.sleep(self.seconds[token])
                if self.fails_at.get(token) == start:
                    raise self.error
                now = settings()
                is_last = start + 1 == now.max_new_tokens
                yield scripted_step(start, token, now, "limit" if is_last else "block")
        finally:
            self.num_open -= 1
