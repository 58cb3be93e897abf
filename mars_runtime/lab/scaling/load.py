"""A closed loop of clients: each asks, reads the whole answer, and asks again.

Knows an address and OpenAI's JSON, nothing of who answers.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import httpx

RAMP_SECONDS = 3.0  # until all rows are filled; not counted
REST_SECONDS = 0.2  # of a client that was refused
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Span:
    """An answer of ``num_tokens`` between two times in seconds."""

    began: float
    ended: float
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Load:
    """What a closed loop brought. tokens_per_second: of answers, in the window that is counted;
    refused: requests that were answered with 429 or 503."""

    tokens_per_second: float
    num_answers: int
    num_refused: int


class LoadError(RuntimeError):
    """A loop that cannot go on; the message is one sentence."""


def tokens_within(spans: Sequence[Span], start: float, end: float) -> float:
    """Tokens of a window: an answer that reaches over its edge counts by its share inside."""
    return sum(
        span.num_tokens
        * max(0.0, min(span.ended, end) - max(span.began, start))
        / (span.ended - span.began)
        for span in spans
    )


def drive(
    address: str,
    model: str,
    prompts: Sequence[str],
    num_clients: int,
    seconds: float,
    max_tokens: int,
) -> Load:
    """Ask for ``seconds`` after a ramp, and let what was begun end. Raises LoadError."""
    loop = Loop(address, model, prompts, max_tokens)
    return asyncio.run(loop.drive(num_clients, seconds))


class Loop:
    """Clients that take the prompts in turn."""

    def __init__(self, address: str, model: str, prompts: Sequence[str], max_tokens: int) -> None:
        self._url = f"{address}/v1/chat/completions"
        self._model = model
        self._prompts: Iterator[str] = itertools.cycle(prompts)
        self._max_tokens = max_tokens
        self._spans: list[Span] = []
        self._num_refused = 0

    async def drive(self, num_clients: int, seconds: float) -> Load:
        """What came within the window. Raises LoadError."""
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            timeout=PATIENCE_SECONDS, limits=limits, trust_env=False
        ) as http:
            # Only now: a client reads certificates first, which on a busy machine takes its while.
            start = time.monotonic() + RAMP_SECONDS
            end = start + seconds
            try:
                await asyncio.gather(*(self._ask_until(end, http) for _ in range(num_clients)))
            except (httpx.HTTPError, LookupError, ValueError) as error:
                raise LoadError("An answer failed: see the log of the replicas.") from error
        inside = [span for span in self._spans if span.ended > start]
        rate = tokens_within(inside, start, end) / seconds
        return Load(rate, len(inside), self._num_refused)

    async def _ask_until(self, end: float, http: httpx.AsyncClient) -> None:
        while (began := time.monotonic()) < end:
            messages = [{"role": "user", "content": next(self._prompts)}]
            asked = {"model": self._model, "messages": messages, "max_tokens": self._max_tokens}
            answer = await http.post(self._url, json=asked)
            if answer.status_code in (429, 503):
                self._num_refused += 1
                await asyncio.sleep(REST_SECONDS)
                continue
            answer.raise_for_status()
            num_tokens = int(answer.json()["usage"]["completion_tokens"])
            self._spans.append(Span(began, time.monotonic(), num_tokens))
