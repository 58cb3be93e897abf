"""Links that replay a run. A link contains the run itself, or the random name of a stored run.

A shared run is untrusted. The trace reader validates it and writes it again
(``app/ui/imported_runs.py``), verdicts are removed, and the page labels the run as a recording.
Only validated runs are stored, in the folder MARS_DATA: at most MAX_OF_ONE per address and hour,
and MAX_KEPT in total. When the store is full, the oldest run is evicted and its link stops working.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import re
import secrets
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.ui.controls import TITLES
from app.ui.imported_runs import read_import
from app.ui.stream import RunLog
from mars_runtime.runs.trace import Header, read_trace
from mars_runtime.serving.limits import SlidingWindow

MAX_LANES = 4
MAX_KEPT, MAX_KEPT_BYTES = 2000, 200_000_000
MAX_OF_ONE, HOUR = 30, 3600.0  # maximum number of runs that one address may store per hour
NAME_BYTES = 16
NAME = re.compile(r"[\w-]{22}", re.ASCII)
UNREADABLE = "The run in this link cannot be read. Ask for a new link."
GONE = "The run behind this link is no longer stored on this server. Ask for a new link."
NOT_KEPT = (
    "This run is too long for a link, and this server stores no runs. Save it as a file instead."
)
OFTEN = "Too many runs were shared from your address. Try again in an hour."
FULL = "The server could not store this run. Save it as a file instead."
_log = logging.getLogger(__name__)


class SharedRuns:
    """Reads and stores shared runs.

    folder: where runs are stored; None disables storing. max_chars: maximum length of a run.
    """

    def __init__(self, folder: Path | None, max_chars: int) -> None:
        self._folder = folder
        self._max_chars = max_chars
        self._lock = threading.Lock()
        self._stored_by_address = SlidingWindow(MAX_OF_ONE, HOUR)

    def read(self, request: object, address: str) -> dict[str, Any]:
        """Return ``{"value": value of the race view}`` or ``{"error": sentence}``.

        request: ``{"value": the run in a link}`` or ``{"name": name of a stored run}``.
        """
        fields: Mapping[str, Any] = request if isinstance(request, dict) else {}
        if "name" not in fields:
            return self._rewritten(fields.get("value"), address)
        value = self._stored(fields["name"])
        return {"error": GONE} if value is None else self._rewritten(value, address)

    def store(self, request: object, address: str) -> dict[str, Any]:
        """Store a run and return ``{"name": its name}``, or ``{"error": sentence}``."""
        if self._folder is None:
            return {"error": NOT_KEPT}
        if not self._stored_by_address.admits(address):
            return {"error": OFTEN}
        outcome = self._rewritten(request, address)
        if "error" in outcome:
            return outcome
        name = secrets.token_urlsafe(NAME_BYTES)
        try:
            with self._lock:
                self._write(self._folder, name, gzip.compress(outcome["value"].encode()))
        except OSError as error:
            _log.error("a shared run could not be stored (%s)", type(error).__name__)
            return {"error": FULL}
        return {"name": name}

    def _write(self, folder: Path, name: str, content: bytes) -> None:
        """Write a run. First evict the oldest runs until the new one fits. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        stored = sorted((path.stat().st_mtime, path) for path in folder.glob("*.run.gz"))
        sizes = sum(path.stat().st_size for _, path in stored) + len(content)
        while stored and (len(stored) >= MAX_KEPT or sizes > MAX_KEPT_BYTES):
            _, oldest = stored.pop(0)
            sizes -= oldest.stat().st_size
            oldest.unlink()
        partial = folder / f"{name}.part"
        try:
            partial.write_bytes(content)
            os.replace(partial, folder / f"{name}.run.gz")
        finally:
            partial.unlink(missing_ok=True)

    def _stored(self, name: object) -> str | None:
        if self._folder is None or not isinstance(name, str) or not NAME.fullmatch(name):
            return None
        try:
            content = (self._folder / f"{name}.run.gz").read_bytes()
            run = zlib.decompressobj(wbits=31).decompress(content, 2 * self._max_chars)
            return run.decode()
        except (OSError, zlib.error, UnicodeDecodeError):
            return None

    def _rewritten(self, value: object, address: str) -> dict[str, Any]:
        """Validate a run and write it again. Return ``{"value": the rewritten run}`` or ``{"error":
        sentence}``.

        The first line of a run names its lanes; each further line is ``<lane>\\t<trace line>``.
        """
        if not isinstance(value, str) or len(value) > self._max_chars:
            return {"error": UNREADABLE}
        head, *lines = value.split("\n")
        names = _lanes(head)
        if not names:
            return {"error": UNREADABLE}
        split_lines = [line.partition("\t") for line in lines]
        traces: dict[str, list[str]] = {}
        for lane in names:
            lane_text = "\n".join(text for tag, _, text in split_lines if tag == lane)
            imported = read_import(lane_text, self._max_chars, address)
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
    """Return the names of the lanes in the first line of a run; empty if the line is invalid."""
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
