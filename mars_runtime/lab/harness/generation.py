"""Many answers from one engine, several at a time, each cut at its stop strings.

Knows requests and events; knows no lm-eval and no files.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mars_runtime.engine import Engine, Request, Run
from mars_runtime.engine.request import MAX_DEADLINE
from mars_runtime.events import End
from mars_runtime.lab.evaluation.measure import RowOutput, read_rows
from mars_runtime.serving.answer import Answer
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Tokenizer

POLL_SECONDS = 0.05
WAITING = 8
"""Requests in line behind those that are served, so that none of their forwards has a free place.
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One request: ids of the prompt, settings, and strings that end its answer."""

    prompt: tuple[int, ...]
    settings: DecodeSettings
    stops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """Its answer: the text before the first stop string, and its forwards up to there."""

    text: str
    output: RowOutput


class GenerationError(RuntimeError):
    """An answer did not come to its end; the message is one sentence."""


def write_all(
    engine: Engine, tokenizer: Tokenizer, wanted: Sequence[Wanted]
) -> Iterator[tuple[int, Written]]:
    """Each request's number and answer, as they end. Raises what ``Engine.submit`` raises, and
    GenerationError."""
    todo = deque(enumerate(wanted))
    under_way: dict[int, _Writer] = {}
    while todo or under_way:
        while todo and len(under_way) < engine.max_running + WAITING:
            number, one = todo.popleft()
            request = Request(one.prompt, one.settings, MAX_DEADLINE)
            under_way[number] = _Writer(engine.submit(request), tokenizer, one.stops)
        for number in [n for n, writer in under_way.items() if writer.read()]:
            yield number, under_way.pop(number).written()
        time.sleep(POLL_SECONDS)


class _Writer:
    """One run as it is read."""

    def __init__(self, run: Run, tokenizer: Tokenizer, stops: Sequence[str]) -> None:
        self._run = run
        self._answer = Answer(tokenizer, stops)
        self._seen = 0
        self._text: list[str] = []

    def read(self) -> bool:
        """Read what is new; whether the answer is over."""
        events = self._run.events_since(self._seen)
        self._seen += len(events)
        self._text.append(self._answer.read(events).text)
        if self._answer.is_cut:
            self._run.cancel()
        return self._answer.is_over

    def written(self) -> Written:
        """The answer, once it is over. Raises GenerationError."""
        end = self._answer.end
        if end is not None and end.reason not in ("eos", "limit"):
            raise GenerationError(end.message or "An answer was cut short: run it again.")
        events = [event for event in self._answer.events if not isinstance(event, End)]
        (output,) = read_rows(events, 1)
        return Written("".join(self._text), output)
