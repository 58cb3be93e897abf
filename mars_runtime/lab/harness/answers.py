"""Answers to a benchmark's requests: decoded several at a time by one engine, cut at stop strings,
stored on disk so that an interrupted benchmark can continue, and counted by task.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mars_runtime import statistics
from mars_runtime.engine import Engine, Request, Run
from mars_runtime.engine.request import MAX_DEADLINE
from mars_runtime.events import FINAL, End
from mars_runtime.lab.evaluation.measure import RowOutput, read_rows
from mars_runtime.lab.evaluation.store import LineStore
from mars_runtime.serving.answer import StreamedAnswer
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Tokenizer

POLL_SECONDS = 0.05
WAITING = 8
"""Requests that wait in the engine, so that its batch is always full."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request: ids of the prompt, settings, and strings that end its answer."""

    prompt: tuple[int, ...]
    settings: DecodeSettings
    stops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """An answer: the text before the first stop string, and its forward passes up to there."""

    text: str
    output: RowOutput


class AnswerError(RuntimeError):
    """An answer was aborted; the message is one sentence."""


def write_all(
    engine: Engine, tokenizer: Tokenizer, wanted: Sequence[Wanted]
) -> Iterator[tuple[int, Written]]:
    """Yield the number and answer of each request when it ends.

    Raises AnswerError and what ``Engine.submit`` raises.
    """
    todo = deque(enumerate(wanted))
    under_way: dict[int, _Writer] = {}
    while todo or under_way:
        while todo and len(under_way) < engine.max_running + WAITING:
            number, next_request = todo.popleft()
            request = Request(next_request.prompt, next_request.settings, MAX_DEADLINE)
            under_way[number] = _Writer(engine.submit(request), tokenizer, next_request.stops)
        for number in [n for n, writer in under_way.items() if writer.read()]:
            yield number, under_way.pop(number).written()
        time.sleep(POLL_SECONDS)


class _Writer:
    """Reads the answer of one run."""

    def __init__(self, run: Run, tokenizer: Tokenizer, stops: Sequence[str]) -> None:
        self._run = run
        self._answer = StreamedAnswer(tokenizer, stops)
        self._seen = 0
        self._text: list[str] = []

    def read(self) -> bool:
        """Read new events; return whether the answer is complete."""
        events = self._run.events_since(self._seen)
        self._seen += len(events)
        self._text.append(self._answer.read(events).text)
        if self._answer.is_cut:
            self._run.cancel()
        return self._answer.is_over

    def written(self) -> Written:
        """Return the complete answer. Raises AnswerError."""
        end = self._answer.end
        if end is not None and end.reason not in FINAL:
            raise AnswerError(
                end.message or ("An answer was aborted. Run the command again to continue.")
            )
        events = [event for event in self._answer.events if not isinstance(event, End)]
        (output,) = read_rows(events, 1)
        return Written("".join(self._text), output)


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """A stored answer.

    num_tokens, num_forwards: without prefill. kept_tokens, kept_forwards: before a repetition loop.
    is_ended: by EOS or a stop string, not by the limit.
    """

    task: str
    document: int
    text: str
    num_tokens: int
    num_forwards: int
    kept_tokens: int
    kept_forwards: int
    is_ended: bool
    is_looped: bool


def record(task: str, document: int, written: Written, limit: int) -> AnswerRecord:
    """Return the record of an answer of at most ``limit`` tokens."""
    whole, without_loop = written.output, written.output.without_loop()
    return AnswerRecord(
        task=task,
        document=document,
        text=written.text,
        num_tokens=len(whole.tokens),
        num_forwards=whole.num_forwards,
        kept_tokens=len(without_loop.tokens),
        kept_forwards=without_loop.num_forwards,
        is_ended=whole.is_ended or len(whole.tokens) < limit,
        is_looped=without_loop.is_looped,
    )


class AnswerStore(LineStore[AnswerRecord]):
    """Answers by ``key_of``."""

    def __init__(self, path: Path | None) -> None:
        super().__init__(path, asdict, lambda values: AnswerRecord(**values))


def key_of(fingerprint: str, arithmetic: str, task: str, document: int, wanted: Wanted) -> str:
    """Equal for two answers exactly when one can replace the other."""
    settings = asdict(wanted.settings)
    parts = [fingerprint, arithmetic, task, document, wanted.prompt, settings, wanted.stops]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def figures_of(records: Sequence[AnswerRecord]) -> dict[str, dict[str, Any]]:
    """Return the figures of each task.

    tpf, tpf_whole: mean tokens per forward pass over answers, without and with repetition loops.
    ended, looped: shares of answers that ended before the limit, and that have a loop.
    """
    tasks = dict.fromkeys(answer.task for answer in records)
    return {task: _figures([answer for answer in records if answer.task == task]) for task in tasks}


def _figures(records: Sequence[AnswerRecord]) -> dict[str, Any]:
    tpf = [answer.kept_tokens / answer.kept_forwards for answer in records]
    whole = [answer.num_tokens / answer.num_forwards for answer in records]
    return {
        "answers": len(records),
        "tokens": sum(answer.num_tokens for answer in records),
        "forwards": sum(answer.num_forwards for answer in records),
        "tpf": asdict(statistics.mean(tpf)),
        "tpf_whole": asdict(statistics.mean(whole)),
        "ended": sum(answer.is_ended for answer in records) / len(records),
        "looped": sum(answer.is_looped for answer in records) / len(records),
        "by_answer": [
            [
                answer.document,
                answer.kept_tokens,
                answer.kept_forwards,
                answer.num_tokens,
                answer.num_forwards,
            ]
            for answer in records
        ],
    }
