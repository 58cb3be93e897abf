"""What became of each request of a load, and figures of it: rates, waits, percentiles, agreement,
and the saturation curve, what is answered against what is offered.

A record is immutable, folded from the engine's events; a figure is a pure function of records, None
as long as nothing is known of it. Moments are seconds of real time from the start of the load, as
whoever reads the engine saw them. Knows no engine, no clock, no text and no drawing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mars_runtime.events import End, Event, Step
from mars_runtime.statistics import Spread, spread

State = Literal["waiting", "served", "done", "refused", "failed", "cut"]
"""``waiting`` for a place; ``served``: read or decoded; ``done``: its text came to an end;
``refused``: the queue was full; ``failed``: an error ended it; ``cut``: it was stopped, or ran out
of time."""
_STATES: dict[str, State] = {"eos": "done", "limit": "done", "repeats": "done", "error": "failed"}


@dataclass(frozen=True, slots=True)
class Record:
    """One request of a load.

    arrived, admitted, first, ended: when it came, got a place, wrote its first token, was over;
        None as long as it has not.
    max_new_tokens: asked for. budget: seconds from arrival within which the answer is wanted, None
        where any time will do.
    tokens: written so far, the end of turn included. num_forwards: that it took part in.
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
        """Tokens written so far."""
        return len(self.tokens)

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return self.ended is not None

    @property
    def ttft(self) -> float | None:
        """Time to first token: seconds from arrival, the wait included; None before it."""
        return None if self.first is None else self.first - self.arrived

    @property
    def latency(self) -> float | None:
        """Seconds from arrival to the whole answer; None where it never came to its end."""
        if self.state != "done" or self.ended is None:
            return None
        return self.ended - self.arrived

    @property
    def tpot(self) -> float | None:
        """Seconds per output token after the first; None for an answer of one, or not whole."""
        if self.state != "done" or self.ended is None or self.first is None:
            return None
        return (self.ended - self.first) / (self.num_tokens - 1) if self.num_tokens > 1 else None

    @property
    def is_in_time(self) -> bool | None:
        """Whether the whole answer came within the budget; None without one, or as long as that
        is open."""
        if self.budget is None or not self.is_over:
            return None
        return self.latency is not None and self.latency <= self.budget

    def admitted_at(self, at: float) -> Record:
        """The record once the engine has taken its request."""
        return replace(self, state="served", admitted=at)

    def over(self, state: Literal["refused", "cut"], at: float) -> Record:
        """The record of a request that nobody took, or that was given up before it had a place."""
        return replace(self, state=state, ended=at)

    def after(self, event: Event, at: float) -> Record:
        """The record after one more event of its run, seen ``at``."""
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
    """A load up to a moment.

    tokens_per_second, requests_per_second: written, answered whole, per second up to then.
    tpf: tokens per forward of a row. queue: requests without a place; rows: with one.
    ttft, tpot, latency: seconds, over the requests that have them. in_time: the share of requests
        with a budget that kept it, of those that are over.
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


def figures_of(records: Sequence[Record], now: float) -> Figures:
    """The figures of what has arrived, ``now`` seconds after the start. Throughput is over the time
    from the first arrival to the last end, or to now while something goes on."""
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


def busy_seconds(records: Sequence[Record], now: float) -> float:
    """From the first arrival to the last end, or to ``now`` while something goes on."""
    if not records:
        return 0.0
    ends = [now if record.ended is None else record.ended for record in records]
    return max(0.0, max(ends) - min(record.arrived for record in records))


def agreement(
    texts: Mapping[int, Sequence[int]], others: Mapping[int, Sequence[int]]
) -> float | None:
    """The share of tokens that both wrote, in the same order, over the requests that both answered:
    1 where all texts are the same. None where they share no request."""
    shared = texts.keys() & others.keys()
    total = sum(max(len(texts[one]), len(others[one])) for one in shared)
    if not total:
        return None
    return sum(num_common(texts[one], others[one]) for one in shared) / total


def num_common(first: Sequence[int], second: Sequence[int]) -> int:
    """The length of the longest common subsequence."""
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


def texts_of(records: Iterable[Record]) -> dict[int, tuple[int, ...]]:
    """The whole answers by the numbers of their requests."""
    return {record.number: record.tokens for record in records if record.state == "done"}


def _count(records: Sequence[Record], state: str) -> int:
    return sum(record.state == state for record in records)


@dataclass(frozen=True, slots=True)
class Point:
    """Requests per second that were ``offered`` and ``answered``, and their waits in seconds."""

    offered: float
    answered: float
    ttft: Spread | None
    latency: Spread | None


def point_of(records: Sequence[Record], offered: float, seconds: float) -> Point:
    """A load whose arrivals came for ``seconds``. What was answered after them counts for waits,
    not for the rate: by then the machine runs empty."""
    return Point(
        offered,
        steady_rate(records, seconds),
        spread(record.ttft for record in records),
        spread(record.latency for record in records),
    )


def steady_rate(records: Sequence[Record], until: float) -> float:
    """Requests answered per second from the first answer on: before it none could be."""
    ends = sorted(
        record.ended for record in records if record.state == "done" and record.ended is not None
    )
    counted = [end for end in ends if end <= until]
    if len(counted) < 2 or until <= ends[0]:
        return 0.0
    return (len(counted) - 1) / (until - ends[0])
