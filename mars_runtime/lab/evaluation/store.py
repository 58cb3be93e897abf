"""What is finished, on disk, a JSON line each, so that a run can go on where it stopped.

Knows nothing of what the figures mean.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, TypeVar

from mars_runtime.lab.evaluation.measure import Outcome

Kept = TypeVar("Kept")
TYPES = {"num_tokens": int, "num_forwards": int, "is_ended": bool, "output_id": str, "text": str}


class LineStore(Generic[Kept]):
    """What is kept by key: in memory and, where a path is given, appended to a file.

    A line that is broken, as by a crash, or of another form is passed over.
    """

    def __init__(
        self,
        path: Path | None,
        to_line: Callable[[Kept], Mapping[str, Any]],
        from_line: Callable[[dict[str, Any]], Kept],
    ) -> None:
        self._path, self._to_line = path, to_line
        self._done: dict[str, Kept] = {}
        if path is None or not path.exists():
            return
        # Not splitlines(): text may hold U+2028 and the like, which JSON leaves as they are.
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            try:
                told = json.loads(line)
                key = told.pop("key")
                self._done[key] = from_line(told)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                continue

    def get(self, key: str) -> Kept | None:
        """What is kept under this key, if it is there."""
        return self._done.get(key)

    def __getitem__(self, key: str) -> Kept:
        return self._done[key]

    def put(self, key: str, one: Kept, **beside: str) -> None:
        """Keep it; it is on disk when this returns. beside: what people may want to read there."""
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            line = json.dumps({"key": key, **beside, **self._to_line(one)}, ensure_ascii=False)
            # Starting with a line break closes whatever a crash left behind.
            with self._path.open("a", encoding="utf-8") as file:
                file.write("\n" + line + "\n")
        self._done[key] = one


class CellStore(LineStore[tuple[Outcome, ...]]):
    """Outcomes by the keys of their cells: lines of ``{"key", "label", "outcomes"}``."""

    def __init__(self, path: Path, *, is_fresh: bool = False) -> None:
        if is_fresh and path.exists():
            os.truncate(path, 0)  # the file itself stays, for it may be locked (``outputs.py``)
        super().__init__(path, _to_line, _from_line)


def _to_line(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {"outcomes": [asdict(outcome) for outcome in outcomes]}


def _from_line(told: dict[str, Any]) -> tuple[Outcome, ...]:
    return tuple(map(_outcome, told["outcomes"]))


def _outcome(values: dict[str, Any]) -> Outcome:
    """From JSON, which knows no tuples. Raises KeyError for a line of an earlier version, KeyError,
    TypeError or ValueError for what no run has written."""
    lists = {name: tuple(values[name]) for name in ("taken", "offered")}
    outcome = Outcome(**{**values, **lists})
    if any(type(getattr(outcome, name)) is not kind for name, kind in TYPES.items()):
        raise ValueError("a value of another type")
    if outcome.num_forwards < 1 or outcome.is_right not in (True, False, None):
        raise ValueError("a value out of range")
    return outcome
