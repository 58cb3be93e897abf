"""Figures of a load as pure functions of its records: rates, waits, percentiles, agreement.

A figure that nothing is known of yet is None. Knows no engine, no clock and no drawing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mars_runtime.statistics import percentile
from mars_runtime.traffic.records import Record


@dataclass(frozen=True, slots=True)
class Spread:
    """Half of the values are at or below ``p50``, 99 in 100 at or below ``p99``."""

    p50: float
    p99: float


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


def spread(values: Iterable[float | None]) -> Spread | None:
    """Of the values that there are, by linear interpolation; None for none."""
    known = [value for value in values if value is not None]
    return Spread(percentile(known, 50), percentile(known, 99)) if known else None


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
