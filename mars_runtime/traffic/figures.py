"""Records of the requests of a load, and figures computed from them: rates, waits, percentiles,
agreement and the saturation curve (answered against offered requests).

A record is immutable and is folded from the engine's events. A figure is a pure function of
records; None while it is undefined. Times are seconds since the start of the load, as polled from
the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mars_runtime.events import End, Event, Step
from mars_runtime.statistics import Spread, spread

State = Literal["waiting", "served", "done", "refused", "failed", "cut"]
"""``waiting``: for a slot. ``served``: in prefill or decode. ``done``: its answer is complete.
``refused``: the queue was full. ``failed``: an error ended it. ``cut``: stopped, or out of time.
"""
_STATES: dict[str, State] = {"eos": "done", "limit": "done", "repeats": "done", "error": "failed"}


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request of a load.

    arrived, admitted, first, ended: times of its arrival, of getting a slot, of its first token and
    of its end; None if that has not happened.
    max_new_tokens: its limit. budget: seconds from arrival within which it needs its answer; None
    for no limit.
    tokens: generated so far, including EOS. num_forwards: that it took part in.
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
        """Number of tokens generated so far."""
        return len(self.tokens)

    @property
    def is_over(self) -> bool:
        """Whether the request has ended."""
        return self.ended is not None

    @property
    def ttft(self) -> float | None:
        """Time to first token: seconds from arrival, including the wait; None before it."""
        return None if self.first is None else self.first - self.arrived

    @property
    def latency(self) -> float | None:
        """Seconds from arrival to the whole answer; None if it is not complete."""
        if self.state != "done" or self.ended is None:
            return None
        return self.ended - self.arrived

    @property
    def tpot(self) -> float | None:
        """Seconds per output token after the first; None for a single token or an incomplete
        answer.
        """
        if self.state != "done" or self.ended is None or self.first is None:
            return None
        return (self.ended - self.first) / (self.num_tokens - 1) if self.num_tokens > 1 else None

    @property
    def is_in_time(self) -> bool | None:
        """Whether the whole answer came within the budget; None without a budget or before the
        end.
        """
        if self.budget is None or not self.is_over:
            return None
        return self.latency is not None and self.latency <= self.budget

    def admitted_at(self, at: float) -> RequestRecord:
        """Return the record after its request got a slot."""
        return replace(self, state="served", admitted=at)

    def over(self, state: Literal["refused", "cut"], at: float) -> RequestRecord:
        """Return the record of a request that was refused, or cut before it got a slot."""
        return replace(self, state=state, ended=at)

    def after(self, event: Event, at: float) -> RequestRecord:
        """Return the record after one more event of its run, polled at ``at``."""
        if isinstance(event, End):
            return replace(self, state=_STATES.get(event.reason, "cut"), ended=at)
        if not isinstance(event, Step):
            return self
        written = tuple(token for row in event.rows for token in row.accepted)
        return replace(
            self,
            first=at if self.first is None and written else self.first,
            tokens=self.tokens + written,
            num_forwards=self.num_forwards + len(event.rows),
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a load up to a moment.

    tokens_per_second, requests_per_second: tokens generated, and whole answers, per second so far.
    tpf: tokens per forward and row. queue: requests without a slot. rows: requests with one.
    ttft, tpot, latency: seconds, over the requests that have them. in_time: share of the finished
    requests with a budget that met it.
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
    """Return the figures of the requests that have arrived, ``now`` seconds after the start.

    Throughput is per second from the first arrival to the last end, or to ``now`` while a request
    is unfinished.
    """
    seconds = busy_seconds(records, now)
    num_tokens = sum(record.num_tokens for record in records)
    num_forwards = sum(record.num_forwards for record in records)
    num_done = _count(records, "done")
    judged = [kept for record in records if (kept := record.is_in_time) is not None]
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
        in_time=sum(judged) / len(judged) if judged else None,
    )


def busy_seconds(records: Sequence[RequestRecord], now: float) -> float:
    """Return the seconds from the first arrival to the last end, or to ``now`` while a request is
    unfinished.
    """
    if not records:
        return 0.0
    ends = [now if record.ended is None else record.ended for record in records]
    return max(0.0, max(ends) - min(record.arrived for record in records))


def agreement(
    texts: Mapping[int, Sequence[int]], others: Mapping[int, Sequence[int]]
) -> float | None:
    """Return the share of tokens that both texts have in the same order, over the requests that
    both answered.

    1 if all texts are the same; None if there is no such request.
    """
    shared = texts.keys() & others.keys()
    total = sum(max(len(texts[number]), len(others[number])) for number in shared)
    if not total:
        return None
    return sum(num_common(texts[number], others[number]) for number in shared) / total


def num_common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the longest common subsequence."""
    pairs = zip(first, second, strict=False)
    same = next(
        (place for place, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second))
    )
    before = [0] * (len(second) - same + 1)
    for token in first[same:]:
        row = [0]
        for place, other in enumerate(second[same:]):
            row.append(before[place] + 1 if token == other else max(before[place + 1], row[place]))
        before = row
    return same + before[-1]


def texts_of(records: Iterable[RequestRecord]) -> dict[int, tuple[int, ...]]:
    """Return the token ids of whole answers by the number of their request."""
    return {record.number: record.tokens for record in records if record.state == "done"}


def _count(records: Sequence[RequestRecord], state: str) -> int:
    return sum(record.state == state for record in records)


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """A point of the saturation curve: requests per second ``offered`` and ``answered``, and their
    waits in seconds.
    """

    offered: float
    answered: float
    ttft: Spread | None
    latency: Spread | None


def point_of(records: Sequence[RequestRecord], offered: float, seconds: float) -> LoadPoint:
    """Return the point of a load with arrivals during ``seconds``.

    Later answers count for the waits but not for the rate, because the queue is draining by then.
    """
    return LoadPoint(
        offered,
        steady_rate(records, seconds),
        spread(record.ttft for record in records),
        spread(record.latency for record in records),
    )


def steady_rate(records: Sequence[RequestRecord], until: float) -> float:
    """Return the requests answered per second, from the first answer to ``until``."""
    ends = sorted(
        record.ended for record in records if record.state == "done" and record.ended is not None
    )
    counted = [end for end in ends if end <= until]
    if len(counted) < 2 or until <= ends[0]:
        return 0.0
    return (len(counted) - 1) / (until - ends[0])
