"""The answers to one request: their runs, and their JSON in OpenAI's form.

Events are polled, so the decoding thread does no extra work. Figures are under the key ``mars``:
next to the choices, or in each choice if there are several.
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from mars_runtime.engine.engine import BaseEngine, EngineBusy, EngineError
from mars_runtime.engine.request import Request
from mars_runtime.engine.run import Run
from mars_runtime.files.json_values import json_line
from mars_runtime.runs import folds
from mars_runtime.runs.events import Event
from mars_runtime.serving.answer import AnswerToken, Piece, StreamedAnswer, spelled
from mars_runtime.serving.errors import ApiError, api_error
from mars_runtime.serving.requests import AnswerBody, ChatBody
from mars_runtime.text import Tokenizer

Json = dict[str, Any]
POLL_SECONDS = 0.02
SHUTTING_DOWN = "The server is shutting down. Send the request again in a moment."
LOWERED = "max_tokens was lowered from {} to {}, the most that fits."


@dataclass(slots=True)
class Choice:
    """num_prompt: the prompt's tokens, 0 for all but its first answer. echo: begins the answer."""

    index: int
    request: Request
    num_prompt: int
    answer: StreamedAnswer
    echo: str = ""
    run: Run | None = None
    num_read: int = 0
    pieces: list[Piece] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.echo + "".join(piece.text for piece in self.pieces)

    @property
    def tokens(self) -> list[AnswerToken]:
        return [token for piece in self.pieces for token in piece.tokens]

    def read(self) -> tuple[Piece, bool]:
        """Return what new events add, and whether there were any. Raises ApiError."""
        assert self.run is not None
        events = self.run.events_since(self.num_read)
        self.num_read += len(events)
        piece = self.answer.read(events)
        self.pieces.append(piece)
        self.run.is_cut = self.answer.is_cut
        end = self.answer.end
        if end is not None and end.reason == "cancelled":
            raise ApiError(503, SHUTTING_DOWN, retry_after=5)
        if end is not None and end.reason == "error":
            raise ApiError(503, end.message, retry_after=1)
        return piece, bool(events)


class Choices:
    """seconds: how long to retry if the engine's queue is full and none of the runs is active."""

    def __init__(
        self,
        choices: Sequence[Choice],
        engine: BaseEngine,
        at_once: int,
        seconds: float,
        release: Callable[[], None],
    ) -> None:
        self.all = tuple(choices)
        self._engine, self._release = engine, release
        self._at_once, self._seconds = at_once, seconds
        self._waiting, self._until = deque(choices), 0.0
        self._active: list[Choice] = []

    def begin(self) -> None:
        """Start the next answer. Raises EngineBusy, EngineError or RequestError."""
        choice = self._waiting[0]
        choice.run = self._engine.submit(choice.request)
        self._waiting.popleft()
        self._active.append(choice)
        self._until = time.monotonic() + self._seconds

    def end(self) -> None:
        """End all runs within one forward pass. Must be called exactly once."""
        self._waiting.clear()
        for choice in self._active:
            if choice.run is not None:
                choice.run.cancel()
        self._release()

    async def pieces(self) -> AsyncIterator[tuple[Choice, Piece | None]]:
        """Yield new pieces, and None when a choice is complete. Raises ApiError."""
        while self._waiting or self._active:
            self._begin_more()
            is_idle = True
            for choice in list(self._active):
                piece, is_new = choice.read()
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

    async def finish(self) -> None:
        async for _ in self.pieces():
            pass

    def _begin_more(self) -> None:
        while self._waiting and len(self._active) < self._at_once:
            try:
                self.begin()
            except EngineError as error:  # if the engine was closed, the active runs say why
                is_final = not isinstance(error, EngineBusy) or time.monotonic() > self._until
                if is_final and not self._active:
                    raise
                return


class Envelope:
    def __init__(self, body: AnswerBody, tokenizer: Tokenizer, choices: Choices) -> None:
        self._body, self._tokenizer, self._choices = body, tokenizer, choices
        self._is_chat = isinstance(body, ChatBody)
        kind = "chatcmpl" if self._is_chat else "cmpl"
        self._id = f"{kind}-{uuid.uuid4().hex}"
        self.created = int(time.time())

    def complete(self) -> Json:
        choices = []
        for choice in self._choices.all:
            shown: Json = {"text": choice.text}
            if self._is_chat:
                shown = {"message": {"role": "assistant", "content": choice.text, "refusal": None}}
            shown = self._choice(choice, shown, choice.tokens, choice.answer.finish_reason)
            choices.append(shown)
        return {**self._head(choices), **self.usage(), **self._with_figures(choices)}

    async def lines(self) -> AsyncIterator[str]:
        try:
            async for chunk in self._chunks():
                yield f"data: {json_line(chunk)}\n\n"
        except Exception as error:
            yield f"data: {json_line(api_error(error).body)}\n\n"
        yield "data: [DONE]\n\n"

    async def _chunks(self) -> AsyncIterator[Json]:
        has_usage = self._body.stream_options.include_usage
        for choice in self._choices.all:
            if self._is_chat:
                yield self._chunk(choice, {"role": "assistant", "content": ""})
            if choice.echo:
                yield self._chunk(choice, {"content": choice.echo})
        async for choice, piece in self._choices.pieces():
            if piece is not None:
                yield self._chunk(choice, {"content": piece.text}, piece.tokens)
                continue
            ended = self._chunk(choice, {}, (), choice.answer.finish_reason)
            if len(self._choices.all) > 1 or not has_usage:
                ended |= self._with_figures(ended["choices"], [choice])
            yield ended
        if has_usage:
            used = {**self._head([], ".chunk" * self._is_chat), **self.usage()}
            yield {**used, **self._with_figures([])}

    def _chunk(
        self,
        choice: Choice,
        delta: Json,
        tokens: Sequence[AnswerToken] = (),
        finish_reason: str | None = None,
    ) -> Json:
        shown = {"delta": delta} if self._is_chat else {"text": delta.get("content", "")}
        shown = self._choice(choice, shown, tokens, finish_reason)
        chunk = self._head([shown], ".chunk" * self._is_chat)
        return {**chunk, "usage": None} if self._body.stream_options.include_usage else chunk

    def _head(self, choices: list[Json], suffix: str = "") -> Json:
        name = ("chat.completion" if self._is_chat else "text_completion") + suffix
        head = {"id": self._id, "object": name, "created": self.created}
        return {**head, "model": self._body.model, "choices": choices}

    def _choice(
        self, choice: Choice, shown: Json, tokens: Sequence[AnswerToken], finish_reason: str | None
    ) -> Json:
        most = self._body.num_runners_up
        logprobs = None
        if most is not None and tokens:
            logprobs = (self._of_chat if self._is_chat else self._of_text)(tokens, most)
        reason = {"logprobs": logprobs, "finish_reason": finish_reason}
        return {"index": choice.index, **shown, **reason}

    def _of_chat(self, tokens: Sequence[AnswerToken], most: int) -> Json:
        def entry(token: int, share: float) -> Json:
            spelled_bytes = self._tokenizer.token_bytes(token)
            name = spelled(spelled_bytes)
            return {"token": name, "logprob": _log(share), "bytes": list(spelled_bytes)}

        content = [
            {**entry(*_chosen(token)), "top_logprobs": [entry(*top) for top in _best(token, most)]}
            for token in tokens
        ]
        return {"content": content, "refusal": None}

    def _of_text(self, tokens: Sequence[AnswerToken], most: int) -> Json:
        def name(token: int) -> str:
            return spelled(self._tokenizer.token_bytes(token))

        return {
            "tokens": [name(token.token) for token in tokens],
            "token_logprobs": [_log(token.proposal.confidence) for token in tokens],
            "top_logprobs": [
                {name(top): _log(share) for top, share in [*_best(token, most), _chosen(token)]}
                for token in tokens
            ],
            "text_offset": [token.start for token in tokens],
        }

    def usage(self) -> Json:
        choices = self._choices.all
        num_prompt = sum(choice.num_prompt for choice in choices)
        num_written = sum(choice.answer.num_tokens for choice in choices)
        num_reused = sum(
            min(folds.num_reused(choice.answer.events), choice.num_prompt) for choice in choices
        )
        return {
            "usage": {
                "prompt_tokens": num_prompt,
                "completion_tokens": num_written,
                "total_tokens": num_prompt + num_written,
                "prompt_tokens_details": {"cached_tokens": num_reused},
            }
        }

    def _with_figures(self, shown: list[Json], choices: Sequence[Choice] = ()) -> Json:
        """Return the figures of the only choice, or change each of ``shown``."""
        if len(self._choices.all) == 1:
            return self.figures(self._choices.all[0])
        for json, choice in zip(shown, choices or self._choices.all, strict=False):
            json |= self.figures(choice)
        return {}

    def figures(self, choice: Choice) -> Json:
        """Return the statistics of a run, up to the end of its answer, in device seconds."""
        events, end, settings = choice.answer.events, choice.answer.end, choice.request.settings
        requested, allowed = self._body.num_tokens, settings.max_new_tokens
        is_lowered = requested is not None and requested > allowed
        drafting = list(folds.drafting(events))
        mars = {
            "ended": end.reason if end else "stop",
            "message": end.message if end else "",
            "note": LOWERED.format(requested, allowed) if is_lowered else "",
            "seed": settings.seed,
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
        return {"mars": mars, "metrics": {"speculative_decoding": speculative_decoding(events)}}


def _chosen(token: AnswerToken) -> tuple[int, float]:
    return token.token, token.proposal.confidence


def _best(token: AnswerToken, most: int) -> list[tuple[int, float]]:
    candidates = [_chosen(token), *token.proposal.runners_up]
    return sorted(candidates, key=lambda candidate: -candidate[1])[:most]


def _log(share: float) -> float:
    return math.log(max(share, 1e-45))  # JSON has no infinity


def speculative_decoding(events: Sequence[Event]) -> dict[str, Any] | None:
    """Count over the forward passes that verified drafts, as vLLM does with
    ``--per-request-spec-decode-metrics detailed``; None if no method drafts.
    """
    methods = [step.settings.facts for step, _ in folds.row_steps(events)]
    if all(method.is_alone or method.is_reference for method in methods):
        return None
    judged = list(folds.drafting(events))
    drafted = [num_drafted for num_drafted, _ in judged]
    accepted = [num_accepted for _, num_accepted in judged]
    histogram = [accepted.count(number) for number in range(max(drafted, default=0) + 1)]
    at_least = list(accumulate(reversed(histogram)))[::-1]
    num_steps = len(judged)
    return {
        "mean_acceptance_length": 1 + sum(accepted) / max(1, num_steps),
        "draft_acceptance_rate": sum(accepted) / max(1, sum(drafted)),
        "acceptance_histogram": histogram,
        "num_spec_steps": num_steps,
        "num_accepted_draft_tokens": sum(accepted),
        "num_draft_tokens": sum(drafted),
        "num_spec_tokens": len(histogram) - 1,
        "per_position_acceptance_rates": [number / num_steps for number in at_least[1:]],
        "per_step_accepted": accepted,
        "per_step_drafted": drafted,
    }
