"""Store finished results on disk as lines of JSON, so that an interrupted run can continue."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mars_runtime.lab.evaluation.measure import Outcome

TYPES = {"num_tokens": int, "num_forwards": int, "is_ended": bool, "output_id": str, "text": str}


class CellStore:
    """The outcomes of cells by key, appended to a file as lines of JSON.

    Incomplete or invalid lines are ignored when the file is read.
    """

    def __init__(self, path: Path, *, is_fresh: bool = False) -> None:
        """Read the file, if it exists. is_fresh: whether to discard its content."""
        self._path = path
        self._cells: dict[str, tuple[Outcome, ...]] = {}
        if not path.exists():
            return
        if is_fresh:
            os.truncate(path, 0)  # the file must not be removed, because it is locked
        # splitlines() would also split at U+2028 and similar characters inside of JSON strings.
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            try:
                fields = json.loads(line)
                self._cells[fields["key"]] = tuple(map(_outcome, fields["outcomes"]))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                continue

    def get(self, key: str) -> tuple[Outcome, ...] | None:
        return self._cells.get(key)

    def put(self, key: str, outcomes: Sequence[Outcome], label: str) -> None:
        """Store the outcomes of a cell. They are on disk when this method returns."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = {"key": key, "label": label, "outcomes": [asdict(outcome) for outcome in outcomes]}
        # The leading line break separates this line from a line that a crash left incomplete.
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"\n{json.dumps(line, ensure_ascii=False)}\n")
        self._cells[key] = tuple(outcomes)


def _outcome(values: dict[str, Any]) -> Outcome:
    lists = {name: tuple(values[name]) for name in ("taken", "offered")}
    outcome = Outcome(**{**values, **lists})
    if any(type(getattr(outcome, name)) is not kind for name, kind in TYPES.items()):
        raise ValueError("An outcome has a value of a wrong type.")
    if outcome.num_forwards < 1 or outcome.is_right not in (True, False, None):
        raise ValueError("An outcome has a value out of range.")
    return outcome
