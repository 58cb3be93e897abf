"""Finished cells on disk, one JSON line each, so that an evaluation can go on where it stopped.

Knows nothing of what the figures mean.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mars_runtime.lab.evaluation.measure import Outcome
from mars_runtime.lab.evaluation.plan import Cell

KINDS = {"num_tokens": int, "num_forwards": int, "is_ended": bool, "output_id": str, "text": str}


class CellStore:
    """Append-only JSONL of ``{"key", "label", "outcomes"}``.

    A line that is broken, as by a crash, is passed over and its cell measured again.
    """

    def __init__(self, path: Path, *, is_fresh: bool = False) -> None:
        self.path = path
        if is_fresh and path.exists():
            os.truncate(path, 0)  # the file itself stays, for it may be locked (``outputs.py``)
        self._done = _read(path)

    def get(self, cell: Cell) -> tuple[Outcome, ...] | None:
        """The outcomes of a finished cell, or None."""
        return self._done.get(cell.key)

    def put(self, cell: Cell, outcomes: Sequence[Outcome]) -> None:
        """Keep a finished cell; it is on disk when this returns."""
        line = {
            "key": cell.key,
            "label": cell.label,
            "outcomes": [asdict(outcome) for outcome in outcomes],
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Starting with a line break closes whatever a crash left behind.
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps(line, ensure_ascii=False) + "\n")
        self._done[cell.key] = tuple(outcomes)


def _outcome(values: dict[str, Any]) -> Outcome:
    """From JSON, which knows no tuples. Raises KeyError for a line of an earlier version, KeyError,
    TypeError or ValueError for what no run has written."""
    lists = {name: tuple(values[name]) for name in ("taken", "offered")}
    outcome = Outcome(**{**values, **lists})
    if any(type(getattr(outcome, name)) is not kind for name, kind in KINDS.items()):
        raise ValueError("a value of another type")
    if outcome.num_forwards < 1 or outcome.is_right not in (True, False, None):
        raise ValueError("a value out of range")
    return outcome


def _read(path: Path) -> dict[str, tuple[Outcome, ...]]:
    done: dict[str, tuple[Outcome, ...]] = {}
    if not path.exists():
        return done
    # Not splitlines(): generated text may hold U+2028 and the like, which JSON leaves as they are.
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            record = json.loads(line)
            done[record["key"]] = tuple(map(_outcome, record["outcomes"]))
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
    return done
