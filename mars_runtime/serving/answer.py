"""What a client is told of a run: a fold over its events, token by token, as OpenAI's JSON.

The number of tokens per forward changes neither the text, nor where a stop string cuts it, nor the
number of tokens that are counted. Our figures stand beside OpenAI's fields under one key, ``mars``:
in a whole answer, or in the last chunk of a stream.

A run is followed by looking at its events some fifty times a second, which costs the decoding
thread nothing; when its client leaves, it ends within one forward.
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from mars_runtime import folds
from mars_runtime.events import FINAL, End, Event, Proposal, Step
from mars_runtime.folds import visible_tokens
from mars_runtime.serving.errors import ApiError
from mars_runtime.serving.models import Answering
from mars_runtime.serving.requests import Completion
from mars_runtime.serving.speculation import metrics
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Detokenizer, Tokenizer

OBJECTS = {"chat": "chat.completion", "text": "text_completion"}
Json = dict[str, Any]
POLL_SECONDS = 0.02
SHUTTING_DOWN = "The server is shutting down: please send the request again in a moment."
LOWERED = "The limit of {} tokens was lowered to {}, the most that this server allows here."
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Told:
    """A token of the answer: ``start`` and ``end`` are the places in the text, in characters, that
    it fills; nothing for one that leaves a character incomplete. ``proposal``: as it was predicted.
    """

    token: int
    start: int
    end: int
    proposal: Proposal


@dataclass(frozen=True, slots=True)
class Piece:
    """What is new: text, and the tokens that it is made of."""

    text: str = ""
    tokens: tuple[Told, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.tokens)


class Answer:
    """One run, as far as it was read.

    stops: texts at which it ends. stop_ids: tokens at which it ends; these count, as EOS does, but
    their text is not shown. min_tokens: neither ends it before so many tokens have been read, and
    texts count only from there. EOS tokens that are ignored have no text. ``is_over``: the answer
    is complete, though its run may continue behind a stop.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: Iterable[str],
        stop_ids: frozenset[int] = frozenset(),
        min_tokens: int = 0,
    ) -> None:
        self.events: list[Event] = []
        self.end: End | None = None
        self.num_tokens = 0
        self._detokenizer = Detokenizer(tokenizer.token_bytes)
        self._cutter = StopCutter(tuple(stops))
        self._stop_ids = stop_ids
        self._eos_ids = tokenizer.eos_ids
        self._min_tokens = min_tokens
        self._has_stop_token = False
        self._length = self._num_shown = 0  # characters written, and told
        self._waiting: deque[Told] = deque()

    @property
    def is_cut(self) -> bool:
        """Whether a stop string or a stop token ended it."""
        return self._cutter.is_cut or self._has_stop_token

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be told."""
        return self.is_cut or self.end is not None

    @property
    def finish_reason(self) -> str:
        """``stop`` or ``length`` in OpenAI's words; empty while it goes on."""
        if not self.is_over:
            return ""
        is_whole = self.is_cut or (self.end is not None and self.end.reason == "eos")
        return "stop" if is_whole else "length"

    def read(self, events: Iterable[Event]) -> Piece:
        """What these events add."""
        text, tokens = "", []
        for event in events:
            if self.is_over:
                break
            before = self.num_tokens
            if isinstance(event, End):
                self.end = event
                text += self._flush()
            elif isinstance(event, Step):
                text += self._read_step(event)
                event = _up_to(event, self.num_tokens - before)
            self.events.append(event)
        self._num_shown += len(text)
        while self._waiting and self._is_told(self._waiting[0]):
            tokens.append(self._waiting.popleft())
        return Piece(text, tuple(tokens))

    def _flush(self) -> str:
        """The text that was held back, once no more comes."""
        return self._cutter.push(self._detokenizer.flush()) + self._cutter.flush()

    def _read_step(self, step: Step) -> str:
        (row,) = step.rows
        text = ""
        for token, proposal in zip(visible_tokens(row), row.proposals, strict=False):
            self.num_tokens += 1
            can_stop = self.num_tokens > self._min_tokens
            if can_stop and token in self._stop_ids:
                self._has_stop_token = True
                return text + self._flush()
            written = "" if token in self._eos_ids else self._detokenizer.push([token])
            start, self._length = self._length, self._length + len(written)
            self._waiting.append(Told(token, start, self._length, proposal))
            text += self._cutter.push(written) if can_stop else written
            if self.is_cut:
                return text
        self.num_tokens += row.stop == "eos"
        return text

    def _is_told(self, token: Told) -> bool:
        """Whether its text was shown: all of it, or its beginning where a stop string cut it."""
        if self.is_over and not self._cutter.is_cut:
            return True
        is_begun = token.start < self._num_shown
        return is_begun and (self.is_cut or token.end <= self._num_shown)


def _up_to(step: Step, num_tokens: int) -> Step:
    """A forward without the tokens that a stop string cut off, so that no figure counts them."""
    (row,) = step.rows
    if num_tokens == len(row.accepted):
        return step
    stop = "limit" if row.stop in FINAL else row.stop
    return replace(step, rows=(replace(row, accepted=row.accepted[:num_tokens], stop=stop),))


class StopCutter:
    """Text in, text out. The stop string that is complete first counts, of several that are
    complete at the same character the longest, so that the pieces make no difference."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(sorted(stops))
        self._longest = max(map(len, stops), default=1)
        self._held = ""
        self.is_cut = False

    def push(self, text: str) -> str:
        """What may be shown now; nothing any more once it ``is_cut``."""
        if self.is_cut:
            return ""
        held = self._held + text
        ends = [(at + len(stop), at) for stop in self._stops if (at := held.find(stop)) >= 0]
        if ends:
            self.is_cut, self._held = True, ""
            return held[: min(ends)[1]]
        num_shown = len(held) - self._num_open(held)
        self._held = held[num_shown:]
        return held[:num_shown]

    def flush(self) -> str:
        """What was held back, once no more text comes."""
        left, self._held = self._held, ""
        return left

    def _num_open(self, text: str) -> int:
        """How many of the last characters begin a stop string."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            tail = text[len(text) - length :]
            place = bisect_left(self._stops, tail)  # stops that begin with it come first from here
            if place < len(self._stops) and self._stops[place].startswith(tail):
                return length
        return 0


class Envelope:
    """What the chunks of one answer have in common, and the answer as a whole."""

    def __init__(
        self,
        asked: Completion,
        tokenizer: Tokenizer,
        num_prompt_tokens: int,
        settings: DecodeSettings,
    ) -> None:
        self._asked = asked
        self._tokenizer = tokenizer
        self._num_prompt_tokens = num_prompt_tokens
        self._settings = settings
        self._index = 0
        self.is_chat = asked.kind == "chat"
        self.name = f"{'chatcmpl' if self.is_chat else 'cmpl'}-{uuid.uuid4().hex}"
        self.created = int(time.time())

    def sibling(self, index: int, num_prompt_tokens: int, settings: DecodeSettings) -> Envelope:
        """The envelope of another choice of the same answer."""
        other = copy(self)
        other._index, other._num_prompt_tokens = index, num_prompt_tokens
        other._settings = settings
        return other

    def whole(self, answer: Answer, piece: Piece) -> Json:
        """An answer that was not streamed."""
        shown: Json = {"text": piece.text}
        if self.is_chat:
            shown = {"message": {"role": "assistant", "content": piece.text, "refusal": None}}
        choice = self._choice(shown, piece, answer.finish_reason)
        return {
            **self._head(OBJECTS[self._asked.kind], [choice]),
            "usage": self._usage(answer),
            "mars": self._figures(answer),
            "metrics": metrics(answer.events),
        }

    def first(self) -> Json:
        """The chunk before any text, which says who speaks; for a conversation only."""
        return self._chunk({"delta": {"role": "assistant", "content": ""}}, Piece(), None)

    def chunk(self, piece: Piece) -> Json:
        """A chunk with text."""
        shown = {"delta": {"content": piece.text}} if self.is_chat else {"text": piece.text}
        return self._chunk(shown, piece, None)

    def last(self, answer: Answer) -> list[Json]:
        """The chunks behind the text: why it ended, and where it was asked for what was used."""
        shown: Json = {"delta": {}} if self.is_chat else {"text": ""}
        ended = self._chunk(shown, Piece(), answer.finish_reason)
        figures = {"mars": self._figures(answer), "metrics": metrics(answer.events)}
        if not self._asked.has_usage:
            return [{**ended, **figures}]
        used = {**self._head(ended["object"], []), "usage": self._usage(answer)}
        return [ended, {**used, **figures}]

    def _chunk(self, shown: Json, piece: Piece, finish_reason: str | None) -> Json:
        name = OBJECTS[self._asked.kind] + (".chunk" if self.is_chat else "")
        chunk = self._head(name, [self._choice(shown, piece, finish_reason)])
        return {**chunk, "usage": None} if self._asked.has_usage else chunk

    def _head(self, name: str, choices: list[Json]) -> Json:
        return {
            "id": self.name,
            "object": name,
            "created": self.created,
            "model": self._asked.model,
            "choices": choices,
        }

    def _choice(self, shown: Json, piece: Piece, finish_reason: str | None) -> Json:
        logprobs = self._logprobs(piece) if piece.tokens else None
        return {"index": self._index, **shown, "logprobs": logprobs, "finish_reason": finish_reason}

    def _logprobs(self, piece: Piece) -> Json | None:
        most = self._asked.num_runners_up
        if most is None:
            return None
        if self.is_chat:
            return {"content": [self._told(each, most) for each in piece.tokens], "refusal": None}
        return {
            "tokens": [self._spelled(each.token) for each in piece.tokens],
            "token_logprobs": [_log(each.proposal.confidence) for each in piece.tokens],
            "top_logprobs": [
                {self._spelled(token): _log(share) for token, share in _best(each, most)}
                for each in piece.tokens
            ],
            "text_offset": [each.start for each in piece.tokens],
        }

    def _told(self, each: Told, most: int) -> Json:
        best = [self._entry(token, share) for token, share in _best(each, most)]
        return {**self._entry(each.token, each.proposal.confidence), "top_logprobs": best}

    def _entry(self, token: int, share: float) -> Json:
        spelled = self._tokenizer.token_bytes(token)
        return {"token": self._spelled(token), "logprob": _log(share), "bytes": list(spelled)}

    def _spelled(self, token: int) -> str:
        return spelled(self._tokenizer.token_bytes(token))

    def _usage(self, answer: Answer) -> Json:
        num_prompt = self._num_prompt_tokens
        num_reused = min(folds.num_reused(answer.events), num_prompt)
        return {
            "prompt_tokens": num_prompt,
            "completion_tokens": answer.num_tokens,
            "total_tokens": num_prompt + answer.num_tokens,
            "prompt_tokens_details": {"cached_tokens": num_reused},
        }

    def _note(self) -> str:
        """Say that the requested number of tokens was lowered; empty where it was not."""
        requested, allowed = self._asked.max_tokens, self._settings.max_new_tokens
        return LOWERED.format(requested, allowed) if requested and requested > allowed else ""

    def _figures(self, answer: Answer) -> Json:
        """Of the run up to where the answer ended, in device time."""
        events, end = answer.events, answer.end
        drafting = list(folds.drafting(events))
        return {
            "ended": end.reason if end else "stop",
            "message": end.message if end else "",
            "note": self._note(),
            "seed": self._settings.seed,
            "forwards": folds.num_forwards(events),
            "tokens_per_forward": round(folds.tpf(events), 3),
            "loops_at": folds.loops_at(events),
            "tokens_per_second": round(folds.tokens_per_second(events), 1),
            "prefill_seconds": round(folds.prefill_seconds(events), 4),
            "decode_seconds": round(folds.decode_seconds(events), 4),
            "reused_tokens": folds.num_reused(events),
            "drafted_tokens": sum(num_drafted for num_drafted, _ in drafting),
            "accepted_tokens": sum(num_accepted for _, num_accepted in drafting),
        }


def spelled(token_bytes: bytes) -> str:
    """Return the text of a token, or its bytes where they are not valid UTF-8, escaped as OpenAI
    escapes them: ``bytes:\\xe2\\x80``. Other bytes never give the same spelling."""
    try:
        return token_bytes.decode("utf-8")
    except UnicodeDecodeError:
        plain = range(0x20, 0x7F)
        shown = (
            chr(byte) if byte in plain and byte != 0x5C else f"\\x{byte:02x}"
            for byte in token_bytes
        )
        return "bytes:" + "".join(shown)


def _best(each: Told, most: int) -> list[tuple[int, float]]:
    """The ``most`` likeliest tokens, the one that was taken among them where it is."""
    mine = (each.token, each.proposal.confidence)
    ranked = sorted([mine, *each.proposal.runners_up], key=lambda one: -one[1])
    return ranked[:most]


def _log(share: float) -> float:
    """A finite logarithm: JSON has no other."""
    return math.log(max(share, 1e-45))


async def pieces(run: Answering, answer: Answer) -> AsyncIterator[Piece]:
    """What is new, until the answer is over. Raises ApiError for one that fails."""
    num_read = 0
    while not answer.is_over:
        events = run.events_since(num_read)
        num_read += len(events)
        piece = answer.read(events)
        if piece:
            yield piece
        if not events:
            await asyncio.sleep(POLL_SECONDS)
    check(answer.end)


def check(end: End | None) -> None:
    """Raises ApiError for an end that is none of the answer's own."""
    if end is not None and end.reason == "cancelled":
        raise ApiError(503, SHUTTING_DOWN, retry_after=5)
    if end is not None and end.reason == "error":
        raise ApiError(503, end.message, retry_after=1)


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` returns; it is cancelled where the client leaves meanwhile. Raises
    ClientDisconnect then."""
    tasks = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnect
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        del tasks, task  # else an exception, its traceback and a request's body are a cycle


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Cancellable(Protocol):
    """What ends with the stream that tells of it."""

    def cancel(self) -> None: ...


class EventStream(StreamingResponse):
    """Server-sent events for as long as somebody is there; ``run`` is cancelled at the end."""

    def __init__(self, lines: AsyncIterator[str], run: Cancellable) -> None:
        super().__init__(lines, media_type="text/event-stream")
        self.headers["cache-control"] = "no-cache"
        self.headers["x-accel-buffering"] = "no"
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the stream is over or the client leaves, also one who waits in line."""
        try:
            await unless_gone(receive, self.stream_response(send))
        except ClientDisconnect:
            pass
        finally:
            self._run.cancel()
