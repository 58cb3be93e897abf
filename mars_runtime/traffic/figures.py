"""Records of the requests of a load, and the figures computed from these records.

An immutable record is a fold over the events of a request. Figures are pure functions of records:
rates, latencies, agreement between texts, and the saturation curve (answered requests against
offered requests). Times are seconds since the start of the load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mars_runtime.events import End, Event, Step
from mars_runtime.statistics import Spread, spread

State = Literal["waiting", "served", "done", "refused", "failed", "cut"]
"""State of a request. ``waiting``: in the queue. ``served``: has a slot. ``done``: the answer is
complete. ``refused``: the queue was full or the request was invalid. ``failed``: ended by an error.
``cut``: cancelled, or out of time.
"""
_STATES: dict[str, State] = {"eos": "done", "limit": "done", "repeats": "done", "error": "failed"}


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request of a load.

    number: the index of the request. arrived, admitted, first, ended: the times of arrival, of
    submission to the engine, of the first token and of the end; None for a time not yet reached.
    budget: seconds from arrival in which the answer should be complete; None for no deadline.
    tokens: token ids generated so far, including EOS. num_forwards: forward passes so far.
    """

    number: int
    arrived: float
    max_new_tokens: int = 1
    budget: float | None = None
    state: State = "waiting"
    admitted: float | None = None
    first: float | None = None
    ended: float | None = None
    tokens: tuple[int, ...] = ()
    num_forwards: int = 0

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)

    @property
    def is_over(self) -> bool:
        return self.ended is not None

    @property
    def ttft(self) -> float | None:
        """Time to first token: seconds from arrival, or None before the first token."""
        return None if self.first is None else self.first - self.arrived

    @property
    def latency(self) -> float | None:
        """Seconds from arrival to the complete answer; None for an incomplete answer."""
        if self.state != "done" or self.ended is None:
            return None
        return self.ended - self.arrived

    @property
    def tpot(self) -> float | None:
        """Time per output token: seconds per token after the first token.

        None for an answer that is incomplete or has a single token.
        """
        if self.state != "done" or self.ended is None or self.first is None:
            return None
        return (self.ended - self.first) / (self.num_tokens - 1) if self.num_tokens > 1 else None

    @property
    def is_in_time(self) -> bool | None:
        """Whether the answer was complete within the budget.

        None without a budget, and before the request has ended.
        """
        if self.budget is None or not self.is_over:
            return None
        return self.latency is not None and self.latency <= self.budget

    def admitted_at(self, at: float) -> RequestRecord:
        """Return a copy of the record in which the engine accepted the request at time ``at``."""
        return replace(self, state="served", admitted=at)

    def over(self, state: Literal["refused", "cut"], at: float) -> RequestRecord:
        """Return a copy of the record in which the request ended in ``state`` at time ``at``."""
        return replace(self, state=state, ended=at)

    def after(self, event: Event, at: float) -> RequestRecord:
        """Return a copy of the record, updated by an event that was read at time ``at``."""
        if isinstance(event, End):
            return replace(self, state=_STATES.get(event.reason, "cut"), ended=at)
        if not isinstance(event, Step):
            return self
        new_tokens = tuple(token for row in event.rows for token in row.accepted)
        return replace(
            self,
            first=at if self.first is None and new_tokens else self.first,
            tokens=self.tokens + new_tokens,
            num_forwards=self.num_forwards + len(event.rows),
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """Statistics of a load from its start to one point in time.

    queue: number of waiting requests. rows: number of requests in the engine.
    tokens_per_second: generated tokens per second. requests_per_second: complete answers per s.
    tpf: tokens per forward pass of a request.
    ttft, tpot, latency: seconds, over the requests for which the value is defined.
    in_time: share of the ended requests with a budget that met the budget.
    """

    num_arrived: int
    num_done: int
    num_refused: int
    queue: int
    rows: int
    tokens_per_second: float
    requests_per_second: float
    tpf: float | None
    ttft: Spread | None
    tpot: Spread | None
    latency: Spread | None
    in_time: float | None


def figures_of(records: Sequence[RequestRecord], now: float) -> Figures:
    """Return the figures of the requests that arrived up to ``now``.

    Rates are per second of ``busy_seconds``.
    """
    seconds = busy_seconds(records, now)
    num_tokens = sum(record.num_tokens for record in records)
    num_forwards = sum(record.num_forwards for record in records)
    num_done = _count(records, "done")
    in_time = [met for record in records if (met := record.is_in_time) is not None]
    return Figures(
        num_arrived=len(records),
        num_done=num_done,
        num_refused=_count(records, "refused"),
        queue=_count(records, "waiting"),
        rows=_count(records, "served"),
        tokens_per_second=num_tokens / seconds if seconds else 0.0,
        requests_per_second=num_done / seconds if seconds else 0.0,
        tpf=num_tokens / num_forwards if num_forwards else None,
        ttft=spread(record.ttft for record in records),
        tpot=spread(record.tpot for record in records),
        latency=spread(record.latency for record in records),
        in_time=sum(in_time) / len(in_time) if in_time else None,
    )


def busy_seconds(records: Sequence[RequestRecord], now: float) -> float:
    """Return the seconds from the first arrival to the end of the last request.

    While any request is unfinished, ``now`` counts as the end.
    """
    if not records:
        return 0.0
    ends = [now if record.ended is None else record.ended for record in records]
    return max(0.0, max(ends) - min(record.arrived for record in records))


def agreement(
    texts: Mapping[int, Sequence[int]], others: Mapping[int, Sequence[int]]
) -> float | None:
    """Return the share of tokens that two methods' answers have in common, in the same order.

    texts, others: token ids by request number. Only requests in both are compared; returns None if
    there is none. The share is 1 if all their texts are equal.
    """
    shared = texts.keys() & others.keys()
    total = sum(max(len(texts[number]), len(others[number])) for number in shared)
    if not total:
        return None
    return sum(num_common(texts[number], others[number]) for number in shared) / total


def num_common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the longest common subsequence."""
    pairs = zip(first, second, strict=False)
    num_equal = next(
        (index for index, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second))
    )
    above = [0] * (len(second) - num_equal + 1)
    for token in first[num_equal:]:
        row = [0]
        for index, other in enumerate(second[num_equal:]):
            row.append(above[index] + 1 if token == other else max(above[index + 1], row[index]))
        above = row
    return num_equal + above[-1]


def texts_of(records: Iterable[RequestRecord]) -> dict[int, tuple[int, ...]]:
    """Return the token ids of each complete answer, by request number."""
    return {record.number: record.tokens for record in records if record.state == "done"}


def _count(records: Sequence[RequestRecord], state: str) -> int:
    return sum(record.state == state for record in records)


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """A point of the saturation curve.

    offered, answered: requests per second. ttft, latency: seconds.
    """

    offered: float
    answered: float
    ttft: Spread | None
    latency: Spread | None


def point_of(records: Sequence[RequestRecord], offered: float, seconds: float) -> LoadPoint:
    """Return the saturation point of a load with requests that arrived within ``seconds``.

    Answers that are completed later count for ``ttft`` and ``latency`` but not for the rate,
    because no further requests arrive while the queue drains.
    """
    return LoadPoint(
        offered,
        steady_rate(records, seconds),
        spread(record.ttft for record in records),
        spread(record.latency for record in records),
    )


def steady_rate(records: Sequence[RequestRecord], until: float) -> float:
    """Return the answers per second between the first answer and ``until``.

    Returns 0 for fewer than two answers.
    """
    ends = sorted(
        record.ended for record in records if record.state == "done" and record.ended is not None
    )
    counted = [end for end in ends if end <= until]
    if len(counted) < 2 or until <= ends[0]:
        return 0.0
    return (len(counted) - 1) / (until - ends[0])
