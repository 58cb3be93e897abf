"""Recorded runs: a folder with the lines of each run, and an index with their titles."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mars_runtime.display import web
from mars_runtime.files.paths import ASSETS
from mars_runtime.runs.trace import Trace, TraceError, read_trace

FOLDER = ASSETS / "recordings"
INDEX = "index.json"
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")
SCRIPTED = ("sort-words", "area", "average")
"""Recordings that the script of "How it works" and Present contains."""


class RecordingsError(ValueError):
    """Recordings are missing or unreadable. The message explains what to do."""


TABS = ("throughput", "grid")
"""Tabs that open with a recorded result, by the names of their views in URLs."""


@dataclass(frozen=True, slots=True)
class Recording:
    name: str
    title: str
    why: str
    prompt: str
    settings: Mapping[str, Mapping[str, Any]]
    value: str

    @property
    def checkpoint(self) -> str:
        """The checkpoint in the header of its first lane."""
        return str(json.loads(self.value.split("\n", 2)[1].partition("\t")[2])["checkpoint"])

    def traces(self) -> dict[str, Trace]:
        return read_value(self.value)


def load(folder: Path = FOLDER) -> list[Recording]:
    try:
        entries = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        return [Recording(**entry, value=_read(folder, entry["name"])) for entry in entries]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RecordingsError(
            f"{folder} has no recordings. Create them with python -m tools.record_runs --out "
            f"{folder}."
        ) from error


def first(checkpoint: str = "") -> Recording | None:
    """Return the first recording of the checkpoint or, if it has none, the first one."""
    try:
        recordings = load()
        own = [recording for recording in recordings if recording.checkpoint == checkpoint]
        return (own or recordings)[0]
    except (RecordingsError, IndexError):
        return None


def tab_file(tab: str, folder: Path = FOLDER) -> Path:
    return folder / f"{tab}.txt.gz"


def tab_value(tab: str) -> str:
    path = tab_file(tab)
    return gzip.decompress(path.read_bytes()).decode() if path.is_file() else ""


def _read(folder: Path, name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(
            "the name of a recording must consist of lower-case letters, digits and dashes"
        )
    return (folder / f"{name}.txt").read_text(encoding="utf-8")


def read_value(value: str) -> dict[str, Trace]:
    try:
        first, *rest = value.splitlines()
        lines: dict[str, list[str]] = {lane["lane"]: [] for lane in json.loads(first)["lanes"]}
        for line in rest:
            tag, _, data = line.partition("\t")
            if tag in lines:
                lines[tag].append(data)
        return {lane: read_trace(trace_lines) for lane, trace_lines in lines.items()}
    except (ValueError, KeyError, TypeError) as error:
        reason = str(error) if isinstance(error, TraceError) else "its first line is damaged."
        raise RecordingsError(f"This recording cannot be read: {reason}") from error


def recorded() -> str:
    names = [name for name in SCRIPTED if (FOLDER / f"{name}.txt").is_file()]
    return web.script_data({name: _read(FOLDER, name) for name in names})
