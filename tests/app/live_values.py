"""What a value of Live holds, and how far a stream has come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mars_runtime.trace_reader import read_trace


def lines_of(value: str) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    """The head of a value and its tagged lines."""
    head, *rest = value.splitlines()
    return json.loads(head), [
        (tag, json.loads(data)) for tag, data in (r.split("\t", 1) for r in rest)
    ]


def lane_trace(value: str, lane: str):
    return read_trace(
        [r.split("\t", 1)[1] for r in value.splitlines() if r.startswith(lane + "\t")]
    )


def begun(stream: Iterator[str]) -> Iterator[str]:
    """The stream, once some steps have come."""
    while '"step"' not in next(stream):
        pass
    return stream


def last(stream: Iterator[str]) -> str:
    return list(stream)[-1]
