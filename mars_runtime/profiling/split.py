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

Part = Literal["matmuls", "attention", "head", "elementwise", "acceptance", "overhead"]
"""``matmuls``: the layers' matrix products. ``attention``: of queries with keys and values.
``head``: the product that gives logits. ``elementwise``: all else in the model: norms, rotation,
activation, copies into the cache. ``acceptance``: operations outside the model, which read tokens
and confidences. ``overhead``: what no operation accounts for: Python, launching, waiting."""

PARTS: tuple[Part, ...] = get_args(Part)
STEP, FORWARD = "mars::step", "mars::forward"
"""The marks around each step and around the forward of the model in it."""

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
    """For each step the seconds of every part but ``overhead``; what stands in no step is left out.

    The last matrix product of a forward is its head.
    """
    heads = _heads(operations)
    places: list[tuple[int, Part] | None] = []
    steps: list[dict[Part, float]] = []
    for index, one in enumerate(operations):
        above = None if one.parent is None else places[one.parent]
        if one.name == STEP:
            steps.append({part: 0.0 for part in PARTS if part != "overhead"})
            above = (len(steps) - 1, "acceptance")
        place = above and (above[0], _part(one.name, above[1], is_head=index in heads))
        places.append(place)
        if place is not None and one.name not in (STEP, FORWARD):  # their own time is Python's
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
    if name == FORWARD:
        return "elementwise"
    if above != "elementwise":
        return above
    if _ATTENTION.search(name):
        return "attention"
    if _MATMUL.search(name):
        return "head" if is_head else "matmuls"
    return above


def _heads(operations: Sequence[Operation]) -> set[int]:
    """The last outermost matrix product within each forward."""
    last: dict[int, int] = {}
    for index, one in enumerate(operations):
        if not _MATMUL.search(one.name):
            continue
        chain = _ancestors(operations, index)
        names = [operations[at].name for at in chain]
        if any(_MATMUL.search(name) or _ATTENTION.search(name) for name in names):
            continue
        forwards = [at for at in chain if operations[at].name == FORWARD]
        if forwards:
            last[forwards[0]] = index
    return set(last.values())


def _ancestors(operations: Sequence[Operation], index: int) -> list[int]:
    found = []
    parent = operations[index].parent
    while parent is not None:
        found.append(parent)
        parent = operations[parent].parent
    return found
