"""What one peer made of one question, and when: the facts from which every figure is derived.

A question is a batch of prompts (one prompt is a batch of one). Moments are seconds since the call.
Pure values; knows no model, no clock and no other peer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from mars_runtime.lab.evaluation import measure

Span = Literal["decode", "whole"]
"""``whole``: from prompts to last token. ``decode``: from the moment when every row had its first
tokens, those not counted, so prefill is apart for every peer alike."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one forward gave one row: ``num_tokens`` (0 where it idled or was refused), of
    ``num_offered`` proposals (tokens that it could have given), there at ``moment``."""

    moment: float
    num_tokens: int
    num_offered: int = 1


@dataclass(frozen=True, slots=True)
class Row:
    """One answered prompt: its tokens, EOS included, and the forwards that it took part in.
    num_draft_forwards: of a draft model beside them, whose time is in the moments."""

    tokens: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    num_draft_forwards: int = 0

    @property
    def tpf(self) -> float:
        """Tokens per forward of this row, to its end."""
        return len(self.tokens) / len(self.chunks)

    @property
    def ttft(self) -> float:
        """Seconds to its first tokens."""
        return next(chunk.moment for chunk in self.chunks if chunk.num_tokens)

    @property
    def tpot(self) -> float | None:
        """Seconds per token after the first ones; None where one forward gave all."""
        given = [chunk for chunk in self.chunks if chunk.num_tokens]
        later = sum(chunk.num_tokens for chunk in given[1:])
        return (given[-1].moment - given[0].moment) / later if later else None

    @property
    def gaps(self) -> tuple[float, ...]:
        """Seconds between chunks of text: what a reader waits, however many tokens then come."""
        moments = [chunk.moment for chunk in self.chunks if chunk.num_tokens]
        return tuple(b - a for a, b in pairwise(moments))


@dataclass(frozen=True, slots=True)
class Answer:
    """All rows of a question. num_forwards: model calls that could give tokens, whatever row they
    served. Raises ValueError for an answer that says nothing."""

    rows: tuple[Row, ...]
    seconds: float
    num_forwards: int

    def __post_init__(self) -> None:
        if not self.rows or not all(row.tokens for row in self.rows) or self.seconds <= 0:
            raise ValueError("An answer has tokens in every row, and takes time.")

    @property
    def num_tokens(self) -> int:
        return sum(len(row.tokens) for row in self.rows)

    @property
    def first_seconds(self) -> float:
        """When every row had its first tokens."""
        return max(row.ttft for row in self.rows)

    def effective_tpf(self, span: Span = "whole") -> float | None:
        """Tokens a forward of the whole batch, divided among its rows: rows that wait or have ended
        count. None for a decode span in which nothing came."""
        tokens, forwards = self.num_tokens, self.num_forwards
        if span == "decode":  # the first tokens of all rows come with the first forward
            tokens, forwards = self._num_later(), forwards - 1
        return tokens / (forwards * len(self.rows)) if tokens and forwards else None

    @property
    def output_id(self) -> str:
        """Equal for two answers exactly when all their tokens are."""
        return fingerprint([row.tokens for row in self.rows])

    def decode_seconds(self) -> float | None:
        """Seconds of the decode span; None where nothing came after the first tokens."""
        return self.seconds - self.first_seconds if self._num_later() else None

    def rate(self, span: Span) -> float | None:
        """Tokens a second over all rows; None for a decode span in which nothing came."""
        if span == "whole":
            return self.num_tokens / self.seconds
        seconds = self.decode_seconds()
        return self._num_later() / seconds if seconds else None

    def _num_later(self) -> int:
        start = self.first_seconds
        return sum(
            chunk.num_tokens for row in self.rows for chunk in row.chunks if chunk.moment > start
        )


def one_row(
    tokens: Sequence[int], moments: Sequence[float], counts: Sequence[int] | None = None
) -> Row:
    """A row whose forwards ended at ``moments`` and gave one token each, or ``counts``; tokens
    behind the last that was given (padding) are left out."""
    given = list(counts) if counts is not None else [1] * len(moments)
    chunks = tuple(Chunk(at, count, count) for at, count in zip(moments, given, strict=True))
    return Row(tuple(tokens[: sum(given)]), chunks)


def survival(rows: Sequence[Row]) -> list[float]:
    """For each place in a forward, of the forwards that proposed there the share that gave a token
    there: acceptance by position."""
    chunks = [chunk for row in rows for chunk in row.chunks]
    return measure.survival((chunk.num_tokens, chunk.num_offered) for chunk in chunks)


def fingerprint(rows: Sequence[Sequence[int]]) -> str:
    """A short hash of the tokens of some rows; their borders count."""
    text = ";".join(",".join(map(str, row)) for row in rows)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
