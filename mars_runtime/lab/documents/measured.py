"""Views of what ``benchmark``, ``length`` and ``verify`` wrote, as the documents show it: a result
in, a table out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from mars_runtime.lab.profiling.forward import CONTEXT
from mars_runtime.lab.tables import NONE, Table, number
from mars_runtime.statistics import Estimate

Content = Mapping[str, Any]

ROWS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
"""How a document calls what a view shows, and what that is in the result."""


def estimate(found: Mapping[str, float] | None) -> str:
    """``1.93 [1.88, 1.99]``, or a dash."""
    return number(Estimate(**found)) if found else NONE


def value(found: Mapping[str, float] | None) -> str:
    """``1.93``, or a dash."""
    return f"{found['value']:.2f}" if found else NONE


def chat_ratios(content: Content) -> Table:
    """Tokens per second of one prompt at a time, by kind of request."""
    return _ratios_by_kind(content, ROWS["chat_ratios"])


def chat_ratios_in_short(content: Content) -> Table:
    """What a reader of the README looks for."""
    return _ratios_by_kind(content, ROWS["chat_ratios_in_short"])


def task_ratios(content: Content) -> Table:
    """The same with B chosen on the way."""
    return _ratios(content, ROWS["task_ratios"])


def task_ratios_in_short(content: Content) -> Table:
    """The same of a task checkpoint."""
    return _ratios(content, ROWS["task_ratios_in_short"])


def shape(content: Content) -> Table:
    """A shape with random weights: rates, what they are of others', and how near AR comes to what
    reading its weights takes."""
    peers = {one["peer"]: one["families"] for one in content["series"][0]["peers"]}
    work, limits = content["load"], content["machine"]
    read = work["weight_bytes"] + CONTEXT * work["position_bytes"]
    found = {(one["peer"], one["baseline"]): one["overall"] for one in content["comparisons"]}
    lines = []
    for shown, peer in ROWS["shape"].items():
        rate = peers[peer]["decode_rate"]
        share = f"{rate * read / limits['bytes_per_second']:.2f}" if peer == "AR" else NONE
        over = [estimate(found.get((peer, base))) for base in ("AR", "llama.cpp")]
        lines.append((shown, f"{rate:.1f}", *over, share))
    columns = ("tokens/s", "times AR here", "times llama.cpp", "share of the limit")
    return Table("", ("random weights, one prompt at a time", *columns), tuple(lines))


def requests_held(content: Content) -> Table:
    """Tokens per forward of lossless decoding at B = 4 on the requests of the benchmark."""
    samples = content["series"][0]["samples"]
    kinds = list(dict.fromkeys(one["family"] for one in samples))
    lines = []
    for shown, peer in ROWS["requests_held"].items():
        of_kinds = [
            [one for one in samples if (one["peer"], one["family"]) == (peer, kind)]
            for kind in kinds
        ]
        rates = [fmean(one["num_tokens"] / one["num_forwards"] for one in own) for own in of_kinds]
        lines.append((shown, *(f"{rate:.2f}" for rate in rates)))
    return Table("", ("lossless τ = 0, B = 4", *kinds), tuple(lines))


def _compared(content: Content, peer: str, baseline: str) -> Mapping[str, Any]:
    """The comparison of two peers, one prompt at a time."""
    found: list[Mapping[str, Any]] = content["comparisons"]
    of = {(one["batch_size"], one["peer"], one["baseline"]): one for one in found}
    return of[1, peer, baseline]


def _ratios(content: Content, rows: Mapping[str, tuple[str, str]]) -> Table:
    found = {shown: _compared(content, *pair) for shown, pair in rows.items()}
    lines = [
        (shown, estimate(one["overall"]), estimate(one["by_family"]["natural"]))
        for shown, one in found.items()
    ]
    return Table("", ("one prompt at a time", "six task families", "natural text"), tuple(lines))


def _ratios_by_kind(content: Content, rows: Mapping[str, tuple[str, str]]) -> Table:
    found = {shown: _compared(content, *pair) for shown, pair in rows.items()}
    kinds = list(next(iter(found.values()))["by_family"])
    lines = [
        (shown, *(value(one["by_family"][kind]) for kind in kinds), estimate(one["overall"]))
        for shown, one in found.items()
    ]
    return Table("", ("one prompt at a time", *kinds, "average"), tuple(lines))
