"""The saturation curve: what is answered against what is offered. Pure functions of records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mars_runtime.traffic.figures import Spread, spread
from mars_runtime.traffic.records import Record
from mars_runtime.traffic.simulate import Costs

SATURATED = 0.9
"""Of what is offered: a machine that answers less is saturated."""


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


def closed_rate(records: Sequence[Record]) -> float:
    """What is answered per second while others wait, of a load that was all there at the start: up
    to the last admission, after which places stay empty."""
    return steady_rate(records, max((record.admitted or 0.0 for record in records), default=0.0))


def saturation_of(points: Sequence[Point]) -> float:
    """The most requests per second that were answered, whatever was offered; 0 for no point."""
    return max((point.answered for point in points), default=0.0)


def is_saturated(points: Sequence[Point]) -> bool:
    """Whether clearly more was offered than was answered, so that saturation was reached."""
    return any(SATURATED * point.offered > saturation_of(points) for point in points)


def costs_of(alone: Sequence[Record], full: Sequence[Record], places: int) -> Costs | None:
    """The costs of a machine from two closed loads, one request at a time and ``places`` at once;
    None where one of them answered nothing."""
    paces = [_seconds_per_forward(alone), _seconds_per_forward(full)]
    forwards = [record.num_forwards for record in full if record.state == "done"]
    if not forwards or None in paces:
        return None
    one, each = (pace or 0.0 for pace in paces)
    return Costs(one, each * places, places, tuple(forwards))


def _seconds_per_forward(records: Sequence[Record]) -> float | None:
    """Of a row, while there are as many as may be: places that ran empty at the end don't count, so
    the requests that were admitted first stand for all."""
    done = [record for record in records if record.state == "done"]
    last = max((record.admitted or 0.0 for record in done), default=0.0)
    counted = [record for record in done if (record.ended or 0.0) <= last] or done
    num_forwards = sum(record.num_forwards for record in counted)
    if not num_forwards:
        return None
    began = min(record.arrived for record in counted)
    return (max(record.ended or 0.0 for record in counted) - began) / num_forwards
