"""All answers to one request: several per prompt (``n``), or one for each prompt of a list.

Each answer is a run of its own, so they share forwards. As many run at once as the client's address
is allowed; the others start as these end.
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
"""Fields of an answer that are common to its choices."""


@dataclass(slots=True)
class Choice:
    """One answer. echo: the prompt, if the answer begins with it. run: None until it starts."""

    request: Request
    envelope: Envelope
    answer: StreamedAnswer
    echo: str = ""
    run: Run | None = None
    num_read: int = 0

    def news(self) -> tuple[Piece, bool]:
        """Return the new text, and whether there were any new events. Raises ApiError if the run
        failed.
        """
        assert self.run is not None
        events = self.run.events_since(self.num_read)
        self.num_read += len(events)
        piece = self.answer.read(events)
        if self.answer.is_over:
            check(self.answer.end)
        return piece, bool(events)


class Choices:
    """All answers to a request, followed as one.

    submit: starts a run. at_once: maximum number of runs at the same time. seconds: how long to
    wait for a slot while the engine is busy. register: called with all started runs whenever one
    starts.
    """

    def __init__(
        self,
        choices: Sequence[Choice],
        submit: Callable[[Request], Awaitable[Run]],
        at_once: int,
        seconds: float,
        register: Callable[[list[Run]], None],
    ) -> None:
        self.all = tuple(choices)
        self._submit = submit
        self._at_once = at_once
        self._seconds = seconds
        self._register = register
        self._waiting = deque(choices)
        self._going: list[Choice] = []
        self._until = 0.0

    async def begin(self) -> None:
        """Start the next queued answer. Raises what ``Model.submit`` raises."""
        choice = self._waiting[0]
        choice.run = await self._submit(choice.request)
        self._waiting.popleft()
        self._going.append(choice)
        self._until = time.monotonic() + self._seconds
        self._register([choice.run for choice in self.all if choice.run is not None])

    def cancel(self) -> None:
        """End all runs within one forward."""
        self._waiting.clear()
        for choice in self._going:
            if choice.run is not None:
                choice.run.cancel()

    async def pieces(self) -> AsyncIterator[tuple[Choice, Piece | None]]:
        """Yield new pieces by choice, and None when a choice is complete. Raises ApiError, or what
        ``submit`` raises.
        """
        while self._waiting or self._going:
            await self._begin_more()
            is_idle = True
            for choice in list(self._going):
                piece, is_new = choice.news()
                is_idle = is_idle and not is_new
                if piece:
                    yield choice, piece
                if choice.answer.is_over:
                    assert choice.run is not None
                    choice.run.cancel()  # it may continue after a stop string
                    self._going.remove(choice)
                    yield choice, None
            if is_idle:
                await asyncio.sleep(POLL_SECONDS)

    async def _begin_more(self) -> None:
        while self._waiting and len(self._going) < self._at_once:
            try:
                await self.begin()
            except EngineBusy:
                if not self._going and time.monotonic() > self._until:
                    raise
                return

    async def whole(self) -> Json:
        """Return the answers once all are complete. Raises what ``pieces`` raises."""
        collected: dict[int, list[Piece]] = {
            id(choice): [Piece(choice.echo)] for choice in self.all
        }
        async for choice, piece in self.pieces():
            if piece is not None:
                collected[id(choice)].append(piece)
        return joined(
            [
                choice.envelope.whole(choice.answer, _one(collected[id(choice)]))
                for choice in self.all
            ]
        )

    async def chunks(self) -> AsyncIterator[Json]:
        """Yield the chunks of a stream. Raises what ``pieces`` raises."""
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
    """Join several answers into one: usage is added up; other fields of an answer, such as
    ``mars``, move into its choice.
    """
    if len(answers) == 1:
        return answers[0]
    first, both = answers[0], [_with_own(answer, answer) for answer in answers]
    return {
        **{name: first[name] for name in SHARED if name in first},
        "choices": [choice for answer in both for choice in answer["choices"]],
        "usage": total([answer["usage"] for answer in answers]),
    }


def _with_own(answer: Json, source: Json) -> Json:
    """Return the answer with the fields of ``source`` that are not common to all moved into its
    choice.
    """
    moved = {name: value for name, value in source.items() if name not in SHARED}
    shared = {name: value for name, value in answer.items() if name in SHARED}
    return {**shared, "choices": [{**choice, **moved} for choice in answer["choices"]]}


def total(usages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Add up several usages field by field."""
    return {
        name: total([usage[name] for usage in usages])
        if isinstance(value, dict)
        else sum(usage[name] for usage in usages)
        for name, value in usages[0].items()
    }


def _one(pieces: Iterable[Piece]) -> Piece:
    known = list(pieces)
    tokens = tuple(token for piece in known for token in piece.tokens)
    return Piece("".join(piece.text for piece in known), tokens)
