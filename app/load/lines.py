"""What the page reads of a load: its lines as plain values. Knows no feed and no drawing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from app.serving.loads import Served
from mars_runtime.engine.header import Facts, facts_of
from mars_runtime.lab.load.controller import Decision, steered
from mars_runtime.lab.load.drive import Progress
from mars_runtime.lab.load.figures import Figures, agreement, texts_of
from mars_runtime.lab.load.records import Record
from mars_runtime.lab.load.simulate import BUSIEST, Costs, day_arrivals, fleets, hour_seconds
from mars_runtime.lab.load.ways import Way

DAY_REQUESTS, MOST_MACHINES = 3000, 6
NOBODY = -1
"""A number that no request has."""


def about(served: Served, places: int) -> dict[str, Any]:
    """On what it runs, and how many requests are with the engine at once."""
    here = served.about
    facts = asdict(here if isinstance(here, Facts) else facts_of(here))
    told = ("checkpoint", "hardware", "dtype", "threads", "versions")
    return {**{name: facts[name] for name in told}, "places": places}


def tick_line(way: str, progress: Progress, found: Figures) -> dict[str, Any]:
    """The figures of a load up to a moment; ``tokens``: written so far, by all."""
    tokens = sum(record.num_tokens for record in progress.records)
    return {"way": way, "at": round(progress.now, 3), "tokens": tokens, **asdict(found)}


def decision_line(way: Way, decision: Decision) -> dict[str, Any]:
    """A decision, and what it means for a request that is not late: its tau and its B."""
    assert way.bounds is not None, "only a controller decides"
    settings = steered(way.settings, way.bounds, decision, NOBODY)
    return {
        "way": way.name,
        "at": round(decision.at, 3),
        "queue": decision.queue,
        "level": decision.level,
        "tau": settings.tau,
        "block_size": settings.block_size,
        "lossless": settings.lossless,
        "late": len(decision.late),
    }


def agreement_lines(
    records: Mapping[str, Sequence[Record]], ar: Sequence[Record], is_sampled: bool
) -> Iterator[dict[str, Any]]:
    """The agreement of each way with the texts of AR; ``num_requests``: that both answered."""
    theirs = texts_of(ar)
    for way, own in records.items():
        ours = texts_of(own)
        shared = len(ours.keys() & theirs.keys())
        share = agreement(ours, theirs)
        yield {"way": way, "share": share, "num_requests": shared, "sampled": is_sampled}


def day_line(way: Way, costs: Costs) -> dict[str, Any]:
    """The simulated day on one machine and on more, from measured costs."""
    busiest = BUSIEST * costs.capacity
    hour = hour_seconds(busiest, DAY_REQUESTS)
    found = fleets(costs, day_arrivals(busiest, hour, 0), MOST_MACHINES)
    return {
        "title": way.title,
        "alone": costs.alone,
        "full": costs.full,
        "places": costs.places,
        "capacity": costs.capacity,
        "busiest": busiest,
        "hour_seconds": hour,
        "fleets": [asdict(one) for one in found],
    }
