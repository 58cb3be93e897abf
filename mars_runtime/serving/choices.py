"""Requests with several answers: ``n`` answers per prompt, or a list of prompts.

Each answer is a separate run, and the runs share forward passes. The limit of the client's address
determines how many runs are active at the same time; further runs start when others end.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mars_runtime.engine.engine import EngineBusy
from mars_runtime.engine.request import Request
from mars_runtime.engine.run import Run
from mars_runtime.serving.answer import POLL_SECONDS, Envelope, Json, Piece, StreamedAnswer, check

SHARED = ("id", "object", "created", "model", "choices", "usage")
"""Top-level fields of a response with several choices. All other fields move into the choices."""


@dataclass(slots=True)
class Choice:
    """One answer to a request, and the run that generates it.

    echo: the prompt if the answer must begin with it, else empty. run: None until it starts.
    num_read: number of events of the run that were read.
    """

    request: Request
    envelope: Envelope
    answer: StreamedAnswer
    echo: str = ""
    run: Run | None = None
    num_read: int = 0

    def new_piece(self) -> tuple[Piece, bool]:
        """Return the new text and tokens, and whether there are new events.

        Raises ApiError if the run has failed.
        """
        assert self.run is not None
        events = self.run.events_since(self.num_read)
        self.num_read += len(events)
        piece = self.answer.read(events)
        self.run.report(self.answer.num_tokens, self.answer.is_cut)
        if self.answer.is_over:
            check(self.answer.end)
        return piece, bool(events)


class Choices:
    """All answers to one request.

    submit: starts a run.
    at_once: maximum number of runs at the same time.
    seconds: how long to retry if the engine's queue is full and none of the runs is active.
    """

    def __init__(
        self,
        choices: Sequence[Choice],
        submit: Callable[[Request], Awaitable[Run]],
        at_once: int,
        seconds: float,
    ) -> None:
        self.all = tuple(choices)
        self._submit = submit
        self._at_once = at_once
        self._seconds = seconds
        self._waiting = deque(choices)
        self._active: list[Choice] = []
        self._until = 0.0

    async def begin(self) -> None:
        """Start the next answer. Raises the exceptions of ``submit``."""
        choice = self._waiting[0]
        choice.run = await self._submit(choice.request)
        self._waiting.popleft()
        self._active.append(choice)
        self._until = time.monotonic() + self._seconds

    def cancel(self) -> None:
        """Cancel all runs; they end within one forward pass."""
        self._waiting.clear()
        for choice in self._active:
            if choice.run is not None:
                choice.run.cancel()

    async def pieces(self) -> AsyncIterator[tuple[Choice, Piece | None]]:
        """Yield (choice, piece) for each new piece, and (choice, None) when a choice is complete.

        Raises ApiError, or the exceptions of ``submit``.
        """
        while self._waiting or self._active:
            await self._begin_more()
            is_idle = True
            for choice in list(self._active):
                piece, is_new = choice.new_piece()
                is_idle = is_idle and not is_new
                if piece:
                    yield choice, piece
                if choice.answer.is_over:
                    assert choice.run is not None
                    choice.run.cancel()  # after a stop string the run would continue
                    self._active.remove(choice)
                    yield choice, None
            if is_idle:
                await asyncio.sleep(POLL_SECONDS)

    async def _begin_more(self) -> None:
        while self._waiting and len(self._active) < self._at_once:
            try:
                await self.begin()
            except EngineBusy:
                if not self._active and time.monotonic() > self._until:
                    raise
                return

    async def complete(self) -> Json:
        """Wait until all answers are complete and return the response.

        Raises the exceptions of ``pieces``.
        """
        collected: dict[int, list[Piece]] = {
            id(choice): [Piece(choice.echo)] for choice in self.all
        }
        async for choice, piece in self.pieces():
            if piece is not None:
                collected[id(choice)].append(piece)
        return joined(
            [
                choice.envelope.complete(choice.answer, _merged(collected[id(choice)]))
                for choice in self.all
            ]
        )

    async def chunks(self) -> AsyncIterator[Json]:
        """Yield the chunks of a stream. Raises the exceptions of ``pieces``."""
        for choice in self.all:
            if choice.envelope.is_chat:
                yield choice.envelope.first()
            if choice.echo:
                yield choice.envelope.chunk(Piece(choice.echo))
        used: list[Json] = []
        async for choice, piece in self.pieces():
            if piece is not None:
                yield choice.envelope.chunk(piece)
                continue
            ended, *rest = choice.envelope.last(choice.answer)
            if len(self.all) > 1:
                ended = _with_own(ended, (rest or [ended])[-1])
            yield ended
            used += rest
        if used:
            yield joined(used)


def joined(answers: Sequence[Json]) -> Json:
    """Join several answers into one response.

    Their ``usage`` objects are added up. Fields that are not in SHARED, such as ``mars``, move into
    the choices.
    """
    if len(answers) == 1:
        return answers[0]
    first, moved = answers[0], [_with_own(answer, answer) for answer in answers]
    return {
        **{name: first[name] for name in SHARED if name in first},
        "choices": [choice for answer in moved for choice in answer["choices"]],
        "usage": total([answer["usage"] for answer in answers]),
    }


def _with_own(answer: Json, source: Json) -> Json:
    """Return ``answer`` with only its fields in SHARED at the top level.

    The other fields of ``source`` are added to each choice.
    """
    moved = {name: value for name, value in source.items() if name not in SHARED}
    shared = {name: value for name, value in answer.items() if name in SHARED}
    return {**shared, "choices": [{**choice, **moved} for choice in answer["choices"]]}


def total(usages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Add up several ``usage`` objects, field by field."""
    return {
        name: total([usage[name] for usage in usages])
        if isinstance(value, dict)
        else sum(usage[name] for usage in usages)
        for name, value in usages[0].items()
    }


def _merged(pieces: Iterable[Piece]) -> Piece:
    collected = list(pieces)
    tokens = tuple(token for piece in collected for token in piece.tokens)
    return Piece("".join(piece.text for piece in collected), tokens)
