"""Convert the events of a run to an answer in OpenAI's JSON.

The text, the position of a stop string and the token count do not depend on how many tokens each
forward pass adds. Figures such as the number of forward passes are under the key ``mars``, in a
complete answer or in the last chunk of a stream.

The events of a run are polled every POLL_SECONDS, so the decoding thread does no extra work. When
the client disconnects, the run ends within one forward pass.
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

from mars_runtime.runs import folds
from mars_runtime.runs.events import FINAL, End, Event, Proposal, Step
from mars_runtime.runs.folds import visible_tokens
from mars_runtime.serving.errors import ApiError
from mars_runtime.serving.models import Answering
from mars_runtime.serving.requests import CompletionRequest
from mars_runtime.serving.speculation import metrics
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Detokenizer, Tokenizer

OBJECTS = {"chat": "chat.completion", "text": "text_completion"}
Json = dict[str, Any]
POLL_SECONDS = 0.02
COMMENT = ": keep-alive\n\n"  # a server-sent event that clients ignore
SHUTTING_DOWN = "The server is shutting down. Send the request again in a moment."
LOWERED = "max_tokens was lowered from {} to {}, the most that fits."
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AnswerToken:
    """A token of the answer.

    start, end: the range of characters that the token adds to the text. start and end are equal if
    the token adds no character, for example because it is only a part of one. proposal: the model's
    prediction of the token.
    """

    token: int
    start: int
    end: int
    proposal: Proposal


@dataclass(frozen=True, slots=True)
class Piece:
    """New text of an answer and the tokens that it consists of."""

    text: str = ""
    tokens: tuple[AnswerToken, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.tokens)


class StreamedAnswer:
    """The answer of one run, built from the events that were read so far.

    stops: strings that end the answer.
    stop_ids: tokens that end the answer. Like EOS tokens, they are counted but add no text.
    min_tokens: number of tokens before which stop strings and stop tokens are ignored.
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
        self._length = self._num_shown = 0  # numbers of characters decoded and returned
        self._waiting: deque[AnswerToken] = deque()  # tokens with text that is not returned yet

    @property
    def is_cut(self) -> bool:
        """Whether a stop string or stop token ended the answer."""
        return self._cutter.is_cut or self._has_stop_token

    @property
    def is_over(self) -> bool:
        """Whether the answer is complete. Its run may still continue after a stop string."""
        return self.is_cut or self.end is not None

    @property
    def finish_reason(self) -> str:
        """OpenAI's ``stop`` or ``length``; empty while the answer is incomplete."""
        if not self.is_over:
            return ""
        is_whole = self.is_cut or (self.end is not None and self.end.reason == "eos")
        return "stop" if is_whole else "length"

    def read(self, events: Iterable[Event]) -> Piece:
        """Read new events and return the text and tokens that they add."""
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
        while self._waiting and self._is_returned(self._waiting[0]):
            tokens.append(self._waiting.popleft())
        return Piece(text, tuple(tokens))

    def _flush(self) -> str:
        """Return the remaining text, which could have been the start of a stop string.

        Call this method when no more text follows.
        """
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
            self._waiting.append(AnswerToken(token, start, self._length, proposal))
            text += self._cutter.push(written) if can_stop else written
            if self.is_cut:
                return text
        self.num_tokens += row.stop == "eos"
        return text

    def _is_returned(self, token: AnswerToken) -> bool:
        """Return whether the token's text was returned.

        If a stop string cut the answer within the token, the beginning of the token's text is
        enough.
        """
        if self.is_over and not self._cutter.is_cut:
            return True
        is_begun = token.start < self._num_shown
        return is_begun and (self.is_cut or token.end <= self._num_shown)


def _up_to(step: Step, num_tokens: int) -> Step:
    """Return the step with only its first ``num_tokens`` tokens.

    Used to remove the tokens after a stop string, so that the figures of the answer do not count
    them.
    """
    (row,) = step.rows
    if num_tokens == len(row.accepted):
        return step
    stop = "limit" if row.stop in FINAL else row.stop
    return replace(step, rows=(replace(row, accepted=row.accepted[:num_tokens], stop=stop),))


class StopCutter:
    """Cuts text at the first stop string.

    If several stop strings occur, the text is cut before the one that ends first. If several end at
    the same character, it is cut before the longest of them. The result does not depend on how the
    text is split into pieces.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(sorted(stops))
        self._longest = max(map(len, stops), default=1)
        self._held = ""
        self.is_cut = False

    def push(self, text: str) -> str:
        """Add text; return the text that can no longer be part of a stop string.

        After a cut (``is_cut``) the result is always empty.
        """
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
        """Return the remaining text, which could have been the start of a stop string.

        Call this method when no more text follows.
        """
        remainder, self._held = self._held, ""
        return remainder

    def _num_open(self, text: str) -> int:
        """Return how many of the last characters could be the beginning of a stop string."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            tail = text[len(text) - length :]
            index = bisect_left(self._stops, tail)  # first stop that could begin with tail
            if index < len(self._stops) and self._stops[index].startswith(tail):
                return length
        return 0


class Envelope:
    """Builds the JSON of one answer: the chunks of a stream, or the complete answer."""

    def __init__(
        self,
        completion: CompletionRequest,
        tokenizer: Tokenizer,
        num_prompt_tokens: int,
        settings: DecodeSettings,
    ) -> None:
        self._request = completion
        self._tokenizer = tokenizer
        self._num_prompt_tokens = num_prompt_tokens
        self._settings = settings
        self._index = 0
        self.is_chat = completion.kind == "chat"
        self.name = f"{'chatcmpl' if self.is_chat else 'cmpl'}-{uuid.uuid4().hex}"
        self.created = int(time.time())

    def sibling(self, index: int, num_prompt_tokens: int, settings: DecodeSettings) -> Envelope:
        """Return the envelope for another choice of the same response."""
        other = copy(self)
        other._index, other._num_prompt_tokens = index, num_prompt_tokens
        other._settings = settings
        return other

    def complete(self, answer: StreamedAnswer, piece: Piece) -> Json:
        """Return the JSON of a complete answer, for a request without streaming.

        piece: all text and all tokens of the answer.
        """
        shown: Json = {"text": piece.text}
        if self.is_chat:
            shown = {"message": {"role": "assistant", "content": piece.text, "refusal": None}}
        choice = self._choice(shown, piece, answer.finish_reason)
        return {
            **self._head(OBJECTS[self._request.kind], [choice]),
            "usage": self._usage(answer),
            "mars": self._figures(answer),
            "metrics": metrics(answer.events),
        }

    def first(self) -> Json:
        """Return the first chunk of a chat stream, which contains the role and no text."""
        return self._chunk({"delta": {"role": "assistant", "content": ""}}, Piece(), None)

    def chunk(self, piece: Piece) -> Json:
        shown = {"delta": {"content": piece.text}} if self.is_chat else {"text": piece.text}
        return self._chunk(shown, piece, None)

    def last(self, answer: StreamedAnswer) -> list[Json]:
        """Return the chunks after the text: the finish reason and, if requested, the usage."""
        shown: Json = {"delta": {}} if self.is_chat else {"text": ""}
        ended = self._chunk(shown, Piece(), answer.finish_reason)
        figures = {"mars": self._figures(answer), "metrics": metrics(answer.events)}
        if not self._request.has_usage:
            return [{**ended, **figures}]
        used = {**self._head(ended["object"], []), "usage": self._usage(answer)}
        return [ended, {**used, **figures}]

    def _chunk(self, shown: Json, piece: Piece, finish_reason: str | None) -> Json:
        name = OBJECTS[self._request.kind] + (".chunk" if self.is_chat else "")
        chunk = self._head(name, [self._choice(shown, piece, finish_reason)])
        return {**chunk, "usage": None} if self._request.has_usage else chunk

    def _head(self, name: str, choices: list[Json]) -> Json:
        return {
            "id": self.name,
            "object": name,
            "created": self.created,
            "model": self._request.model,
            "choices": choices,
        }

    def _choice(self, shown: Json, piece: Piece, finish_reason: str | None) -> Json:
        logprobs = self._logprobs(piece) if piece.tokens else None
        return {"index": self._index, **shown, "logprobs": logprobs, "finish_reason": finish_reason}

    def _logprobs(self, piece: Piece) -> Json | None:
        most = self._request.num_runners_up
        if most is None:
            return None
        if self.is_chat:
            entries = [self._token_entry(token, most) for token in piece.tokens]
            return {"content": entries, "refusal": None}
        return {
            "tokens": [self._spelled(token.token) for token in piece.tokens],
            "token_logprobs": [_log(token.proposal.confidence) for token in piece.tokens],
            "top_logprobs": [
                {
                    self._spelled(token): _log(share)
                    for token, share in [*_best(written, most), _chosen(written)]
                }
                for written in piece.tokens
            ],
            "text_offset": [token.start for token in piece.tokens],
        }

    def _token_entry(self, written: AnswerToken, most: int) -> Json:
        best = [self._entry(token, share) for token, share in _best(written, most)]
        return {**self._entry(written.token, written.proposal.confidence), "top_logprobs": best}

    def _entry(self, token: int, share: float) -> Json:
        spelled = self._tokenizer.token_bytes(token)
        return {"token": self._spelled(token), "logprob": _log(share), "bytes": list(spelled)}

    def _spelled(self, token: int) -> str:
        return spelled(self._tokenizer.token_bytes(token))

    def _usage(self, answer: StreamedAnswer) -> Json:
        num_prompt = self._num_prompt_tokens
        num_reused = min(folds.num_reused(answer.events), num_prompt)
        return {
            "prompt_tokens": num_prompt,
            "completion_tokens": answer.num_tokens,
            "total_tokens": num_prompt + answer.num_tokens,
            "prompt_tokens_details": {"cached_tokens": num_reused},
        }

    def _note(self) -> str:
        """Return a note if the requested number of tokens was lowered, or an empty string."""
        requested, allowed = self._request.max_tokens, self._settings.max_new_tokens
        return LOWERED.format(requested, allowed) if requested and requested > allowed else ""

    def _figures(self, answer: StreamedAnswer) -> Json:
        """Return the statistics of the run, up to the end of the answer, for the key ``mars``.

        Times are device times in seconds.
        """
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
    """Return the text of a token, or its escaped bytes if they are not valid UTF-8.

    Bytes are escaped as OpenAI does it, such as ``bytes:\\xe2\\x80``. Different bytes always have
    different spellings.
    """
    try:
        return token_bytes.decode("utf-8")
    except UnicodeDecodeError:
        plain = range(0x20, 0x7F)
        shown = (
            chr(byte) if byte in plain and byte != 0x5C else f"\\x{byte:02x}"
            for byte in token_bytes
        )
        return "bytes:" + "".join(shown)


def _chosen(token: AnswerToken) -> tuple[int, float]:
    return token.token, token.proposal.confidence


def _best(token: AnswerToken, most: int) -> list[tuple[int, float]]:
    """Return the ``most`` most probable tokens at a position, with their probabilities."""
    candidates = [_chosen(token), *token.proposal.runners_up]
    return sorted(candidates, key=lambda candidate: -candidate[1])[:most]


def _log(share: float) -> float:
    """Return the logarithm of a probability, kept finite because JSON has no infinity."""
    return math.log(max(share, 1e-45))


async def pieces(run: Answering, answer: StreamedAnswer) -> AsyncIterator[Piece]:
    """Yield new pieces of an answer until it is complete. Raises ApiError if the run fails."""
    num_read = 0
    while not answer.is_over:
        events = run.events_since(num_read)
        num_read += len(events)
        piece = answer.read(events)
        run.report(answer.num_tokens, answer.is_cut)
        if piece:
            yield piece
        if not events:
            await asyncio.sleep(POLL_SECONDS)
    check(answer.end)


def check(end: End | None) -> None:
    """Raise ApiError if the run was cancelled or failed."""
    if end is not None and end.reason == "cancelled":
        raise ApiError(503, SHUTTING_DOWN, retry_after=5)
    if end is not None and end.reason == "error":
        raise ApiError(503, end.message, retry_after=1)


async def unless_disconnected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` and return its result, unless the client disconnects first.

    In that case ``work`` is cancelled and ClientDisconnect is raised.
    """
    tasks = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnect
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Breaking the reference cycle of exception, frame and task frees the request's body now.
        del tasks, task


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def kept_alive(lines: AsyncIterator[str], seconds: float) -> AsyncIterator[str]:
    """Yield the lines, and a comment whenever there was no line for ``seconds``."""
    while True:
        line = asyncio.ensure_future(anext(lines))
        try:
            while not (await asyncio.wait({line}, timeout=seconds))[0]:
                yield COMMENT
            yield line.result()
        except StopAsyncIteration:
            return
        finally:
            line.cancel()
            del line  # breaks the reference cycle of exception, frame and task


class Cancellable(Protocol):
    """A run or a group of runs that can be cancelled."""

    def cancel(self) -> None: ...


class ServerSentEvents(StreamingResponse):
    """Sends server-sent events, and a comment whenever there was none for ``seconds``.

    ``run`` is cancelled when the stream ends or the client disconnects.
    """

    def __init__(self, lines: AsyncIterator[str], run: Cancellable, seconds: float) -> None:
        super().__init__(kept_alive(lines, seconds), media_type="text/event-stream")
        self.headers["cache-control"] = "no-cache"
        self.headers["x-accel-buffering"] = "no"
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the stream ends or the client disconnects.

        A disconnect is noticed even while the run is queued and there is nothing to send.
        """
        try:
            await unless_disconnected(receive, self.stream_response(send))
        except ClientDisconnect:
            pass
        finally:
            self._run.cancel()
