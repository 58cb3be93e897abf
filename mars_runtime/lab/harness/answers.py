"""Decode and store the answers to the requests of lm-eval, and compute figures of each task.

An engine decodes several answers at once. Answers are cut at stop strings and stored on disk, so
that an interrupted benchmark can continue.
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
"""Number of requests that wait in the engine's queue, so that the batch is always full."""


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """A request of lm-eval. prompt: token ids. stops: strings that end the answer."""

    prompt: tuple[int, ...]
    settings: DecodeSettings
    stops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DecodedAnswer:
    """An answer, up to the first stop string. output: its tokens and forward passes."""

    text: str
    output: RowOutput


class AnswerError(RuntimeError):
    """An answer was aborted. The message contains the reason."""


def decode_all(
    engine: Engine, tokenizer: Tokenizer, requests: Sequence[AnswerRequest]
) -> Iterator[tuple[int, DecodedAnswer]]:
    """Decode all requests; yield the index and the answer of each request when it is complete.

    Raises AnswerError and the errors of ``Engine.submit``.
    """
    waiting = deque(enumerate(requests))
    in_flight: dict[int, _AnswerReader] = {}
    while waiting or in_flight:
        while waiting and len(in_flight) < engine.max_running + WAITING:
            number, next_request = waiting.popleft()
            request = Request(next_request.prompt, next_request.settings, MAX_DEADLINE)
            run = engine.submit(request)
            in_flight[number] = _AnswerReader(run, tokenizer, next_request.stops)
        for number in [n for n, reader in in_flight.items() if reader.read()]:
            yield number, in_flight.pop(number).answer()
        time.sleep(POLL_SECONDS)


class _AnswerReader:
    """Reads the answer of a run from its events."""

    def __init__(self, run: Run, tokenizer: Tokenizer, stops: Sequence[str]) -> None:
        self._run = run
        self._answer = StreamedAnswer(tokenizer, stops)
        self._num_read = 0
        self._text: list[str] = []

    def read(self) -> bool:
        """Read the new events of the run; return whether the answer is complete."""
        events = self._run.events_since(self._num_read)
        self._num_read += len(events)
        self._text.append(self._answer.read(events).text)
        if self._answer.is_cut:
            self._run.cancel()
        return self._answer.is_over

    def answer(self) -> DecodedAnswer:
        """Return the complete answer. Raises AnswerError."""
        end = self._answer.end
        if end is not None and end.reason not in FINAL:
            raise AnswerError(
                end.message or ("An answer was aborted. Run the command again to continue.")
            )
        events = [event for event in self._answer.events if not isinstance(event, End)]
        (output,) = read_rows(events, 1)
        return DecodedAnswer("".join(self._text), output)


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """An answer as it is stored.

    - document: number of the question in its task.
    - num_tokens, num_forwards: tokens, and forward passes without prefill.
    - kept_tokens, kept_forwards: tokens and forward passes before a repetition loop.
    - is_ended: whether the answer ended with EOS or a stop string, before the limit.
    - is_looped: whether the answer has a repetition loop.
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


def record(task: str, document: int, answer: DecodedAnswer, limit: int) -> AnswerRecord:
    """Build the record of an answer. limit: maximum number of tokens that the request allowed."""
    output, without_loop = answer.output, answer.output.without_loop()
    return AnswerRecord(
        task=task,
        document=document,
        text=answer.text,
        num_tokens=len(output.tokens),
        num_forwards=output.num_forwards,
        kept_tokens=len(without_loop.tokens),
        kept_forwards=without_loop.num_forwards,
        is_ended=output.is_ended or len(output.tokens) < limit,
        is_looped=without_loop.is_looped,
    )


class AnswerStore(LineStore[AnswerRecord]):
    """Stores answers under the keys of ``key_of``; if ``path`` is None, only in memory."""

    def __init__(self, path: Path | None) -> None:
        super().__init__(path, asdict, lambda values: AnswerRecord(**values))


def key_of(
    fingerprint: str, arithmetic: str, task: str, document: int, request: AnswerRequest
) -> str:
    """Return the key under which an answer is stored.

    It depends on everything that determines the answer: weights, arithmetic and request.
    """
    settings = asdict(request.settings)
    parts = [fingerprint, arithmetic, task, document, request.prompt, settings, request.stops]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def figures_of(records: Sequence[AnswerRecord]) -> dict[str, dict[str, Any]]:
    """Return the figures of each task as JSON values.

    ``tpf``, ``tpf_whole``: mean tokens per forward pass of an answer, without and with repetition
    loops. ``ended``, ``looped``: shares of answers that ended before the limit, and with a loop.
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
