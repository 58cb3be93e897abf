"""The time of a step split into parts, from the operations that a profiler recorded.

An operation belongs to the part of the nearest operation around it that has one; its own time is
what its children did not take. Pure numbers; knows no profiler and no model.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Part = Literal["matmuls", "adapter", "attention", "head", "elementwise", "acceptance", "overhead"]
"""``matmuls``: the layers' matrix products. ``adapter``: what masks are multiplied with first.
``attention``: of queries with keys and values. ``head``: the product that gives logits, and where a
model reads them itself, that too. ``elementwise``: all else in the model: norms, rotation,
activation, copies into the cache. ``acceptance``: operations outside the model, which read tokens
and confidences. ``overhead``: what no operation accounts for: Python, launching, waiting."""

PARTS: tuple[Part, ...] = get_args(Part)
STEP, FORWARD, HEAD = "mars::step", "mars::forward", "mars::head"
"""The marks around each step, around the layers of the model in it and around its head."""

_MATMUL = re.compile(r"::(mm|addmm_?|bmm|baddbmm_?|linear\w*|\w*int8pack_mm\w*)$")
_ATTENTION = re.compile(r"attention|varlen_attn", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Operation:
    """parent: index of the operation around it, earlier in the list; None at the top.
    seconds: its own, without its children's."""

    name: str
    parent: int | None
    seconds: float


def split(operations: Sequence[Operation]) -> list[dict[Part, float]]:
    """For each step the seconds of its parts but overhead; what stands in no step is left out."""
    places: list[tuple[int, Part] | None] = []
    steps: list[dict[Part, float]] = []
    for index, one in enumerate(operations):
        above = None if one.parent is None else places[one.parent]
        if one.name == STEP:
            steps.append({part: 0.0 for part in PARTS if part not in ("adapter", "overhead")})
            above = (len(steps) - 1, "acceptance")
        is_head = HEAD in _around(operations, index)
        place = above and (above[0], _part(one.name, above[1], is_head=is_head))
        places.append(place)
        if place is not None and one.name not in (STEP, FORWARD, HEAD):  # their own is Python's
            steps[place[0]][place[1]] += one.seconds
    return steps


def typical(steps: Sequence[dict[Part, float]], wall_seconds: float) -> dict[Part, float]:
    """The median of each part over steps; ``overhead`` is what is left of ``wall_seconds``, never
    below nothing."""
    found: dict[Part, float] = {
        part: statistics.median(step[part] for step in steps) for part in steps[0]
    }
    return {**found, "overhead": max(0.0, wall_seconds - sum(found.values()))}


def _part(name: str, above: Part, *, is_head: bool) -> Part:
    if name in (FORWARD, HEAD):
        return "elementwise"
    if above != "elementwise":
        return above
    if _ATTENTION.search(name):
        return "attention"
    if _MATMUL.search(name):
        return "head" if is_head else "matmuls"
    return above


def _around(operations: Sequence[Operation], index: int) -> set[str]:
    """Names of the operations around one."""
    found = set()
    parent = operations[index].parent
    while parent is not None:
        found.add(operations[parent].name)
        parent = operations[parent].parent
    return found
