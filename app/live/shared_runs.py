"""Links that replay a run. A link contains the run itself; the server stores none.

A shared run is untrusted. The trace reader validates it and writes it again
(``app/ui/imported_runs.py``), verdicts are removed, and the page labels the run as a recording.
"""

from __future__ import annotations

import json
from typing import Any

from app.ui.controls import TITLES
from app.ui.imported_runs import read_import
from app.ui.stream import RunLog
from mars_runtime.runs.trace import Header, read_trace

MAX_LANES = 4
UNREADABLE = "The run in this link cannot be read. Ask for a new link."


def read_shared(value: object, address: str, max_chars: int) -> dict[str, Any]:
    """Validate the run of a link and write it again. Return ``{"value": the rewritten run}`` or
    ``{"error": sentence}``.

    The first line of a run names its lanes; each further line is ``<lane>\\t<trace line>``.
    """
    if not isinstance(value, str) or len(value) > max_chars:
        return {"error": UNREADABLE}
    head, *lines = value.split("\n")
    names = _lanes(head)
    if not names:
        return {"error": UNREADABLE}
    split_lines = [line.partition("\t") for line in lines]
    traces: dict[str, list[str]] = {}
    for lane in names:
        lane_text = "\n".join(text for tag, _, text in split_lines if tag == lane)
        imported = read_import(lane_text, max_chars, address)
        if "error" in imported:
            return {"error": imported["error"]}
        traces[lane] = imported["lines"]
    header = read_trace(traces[names[0]][:1]).header
    log = RunLog({"lanes": _titled(names), "pace": 0, "recorded": _when(header)})
    for lane, trace in traces.items():
        for line in trace:
            log.add(lane, line)
    return {"value": log.whole()}


def _lanes(first_line: str) -> list[str]:
    try:
        lanes = json.loads(first_line)["lanes"]
        names = [entry["lane"] for entry in lanes]
    except (ValueError, RecursionError, TypeError, KeyError):
        return []
    is_known = all(isinstance(name, str) and name in TITLES for name in names)
    return names if is_known and 1 <= len(set(names)) == len(names) <= MAX_LANES else []


def _titled(names: list[str]) -> list[dict[str, str]]:
    return [{"lane": name, "title": TITLES[name]} for name in names]


def _when(header: Header) -> str:
    """Return when and on which machine the run was made, such as ``2026-11-24, on AMD EPYC, 2
    cores``.
    """
    return ", on ".join(part for part in (header.date[:10], header.hardware) if part) or "a link"
