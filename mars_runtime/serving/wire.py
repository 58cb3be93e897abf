"""Answers as OpenAI's JSON: whole, or as the chunks of a stream. Knows no HTTP and no engine.

Our figures stand beside OpenAI's fields under one key, ``mars``: in a whole answer, or in the last
chunk of a stream.
"""

from __future__ import annotations

import math
import time
import uuid
from typing import Any

from mars_runtime import folds
from mars_runtime.serving.answer import Answer, Piece, Told
from mars_runtime.serving.order import Order
from mars_runtime.text import Tokenizer

OBJECTS = {"chat": "chat.completion", "text": "text_completion"}
Json = dict[str, Any]


class Envelope:
    """What the chunks of one answer have in common, and the answer as a whole."""

    def __init__(
        self, order: Order, tokenizer: Tokenizer, num_prompt_tokens: int, seed: int
    ) -> None:
        self._order = order
        self._tokenizer = tokenizer
        self._num_prompt_tokens = num_prompt_tokens
        self._seed = seed
        self._is_chat = order.kind == "chat"
        self.name = f"{'chatcmpl' if self._is_chat else 'cmpl'}-{uuid.uuid4().hex}"
        self._created = int(time.time())

    def whole(self, answer: Answer, piece: Piece) -> Json:
        """An answer that was not streamed."""
        shown: Json = {"text": piece.text}
        if self._is_chat:
            shown = {"message": {"role": "assistant", "content": piece.text, "refusal": None}}
        choice = self._choice(shown, piece, answer.finish_reason)
        return {
            **self._head(OBJECTS[self._order.kind], [choice]),
            "usage": self._usage(answer),
            "mars": self._figures(answer),
        }

    def first(self) -> Json:
        """The chunk before any text, which says who speaks; for a conversation only."""
        return self._chunk({"delta": {"role": "assistant", "content": ""}}, Piece(), None)

    def chunk(self, piece: Piece) -> Json:
        """A chunk with text."""
        shown = {"delta": {"content": piece.text}} if self._is_chat else {"text": piece.text}
        return self._chunk(shown, piece, None)

    def last(self, answer: Answer) -> list[Json]:
        """The chunks behind the text: why it ended, and where it was asked for what was used."""
        shown: Json = {"delta": {}} if self._is_chat else {"text": ""}
        ended = self._chunk(shown, Piece(), answer.finish_reason)
        if not self._order.has_usage:
            return [{**ended, "mars": self._figures(answer)}]
        used = {**self._head(ended["object"], []), "usage": self._usage(answer)}
        return [ended, {**used, "mars": self._figures(answer)}]

    def _chunk(self, shown: Json, piece: Piece, finish_reason: str | None) -> Json:
        name = OBJECTS[self._order.kind] + (".chunk" if self._is_chat else "")
        chunk = self._head(name, [self._choice(shown, piece, finish_reason)])
        return {**chunk, "usage": None} if self._order.has_usage else chunk

    def _head(self, name: str, choices: list[Json]) -> Json:
        return {
            "id": self.name,
            "object": name,
            "created": self._created,
            "model": self._order.model,
            "choices": choices,
        }

    def _choice(self, shown: Json, piece: Piece, finish_reason: str | None) -> Json:
        logprobs = self._logprobs(piece) if piece.tokens else None
        return {"index": 0, **shown, "logprobs": logprobs, "finish_reason": finish_reason}

    def _logprobs(self, piece: Piece) -> Json | None:
        most = self._order.num_runners_up
        if most is None:
            return None
        if self._is_chat:
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
        return self._tokenizer.token_bytes(token).decode("utf-8", "replace")

    def _usage(self, answer: Answer) -> Json:
        num_prompt = self._num_prompt_tokens
        return {
            "prompt_tokens": num_prompt,
            "completion_tokens": answer.num_tokens,
            "total_tokens": num_prompt + answer.num_tokens,
            "prompt_tokens_details": {"cached_tokens": folds.num_reused(answer.events)},
        }

    def _figures(self, answer: Answer) -> Json:
        """Of the run up to where the answer ended, in device time."""
        events, end = answer.events, answer.end
        drafting = list(folds.drafting(events))
        return {
            "ended": end.reason if end else "stop",
            "message": end.message if end else "",
            "seed": self._seed,
            "forwards": folds.num_forwards(events),
            "tokens_per_forward": round(folds.tpf(events), 3),
            "tokens_per_second": round(folds.tokens_per_second(events), 1),
            "prefill_seconds": round(folds.prefill_seconds(events), 4),
            "decode_seconds": round(folds.decode_seconds(events), 4),
            "reused_tokens": folds.num_reused(events),
            "drafted_tokens": sum(num_drafted for num_drafted, _ in drafting),
            "accepted_tokens": sum(num_accepted for _, num_accepted in drafting),
        }


def _best(each: Told, most: int) -> list[tuple[int, float]]:
    """The ``most`` likeliest tokens, the one that was taken among them where it is."""
    mine = (each.token, each.proposal.confidence)
    ranked = sorted([mine, *each.proposal.runners_up], key=lambda one: -one[1])
    return ranked[:most]


def _log(share: float) -> float:
    """A finite logarithm: JSON has no other."""
    return math.log(max(share, 1e-45))
