"""Store finished results on disk as lines of JSON, so that an interrupted run can continue."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, TypeVar

from mars_runtime.lab.evaluation.measure import Outcome

Value = TypeVar("Value")
TYPES = {"num_tokens": int, "num_forwards": int, "is_ended": bool, "output_id": str, "text": str}


class LineStore(Generic[Value]):
    """A mapping stored as appended lines of JSON; without a path, only in memory. Invalid lines are
    ignored.
    """

    def __init__(
        self,
        path: Path | None,
        to_line: Callable[[Value], Mapping[str, Any]],
        from_line: Callable[[dict[str, Any]], Value],
    ) -> None:
        self._path, self._to_line = path, to_line
        self._values: dict[str, Value] = {}
        if path is None or not path.exists():
            return
        # splitlines() would also split at U+2028 and similar characters inside of JSON strings.
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            try:
                fields = json.loads(line)
                key = fields.pop("key")
                self._values[key] = from_line(fields)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                continue

    def get(self, key: str) -> Value | None:
        return self._values.get(key)

    def __getitem__(self, key: str) -> Value:
        return self._values[key]

    def put(self, key: str, value: Value, **more: str) -> None:
        """Store a value; it is on disk when this method returns. more: fields for human readers."""
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            line = json.dumps({"key": key, **more, **self._to_line(value)}, ensure_ascii=False)
            # The leading line break separates this line from a line that a crash left incomplete.
            with self._path.open("a", encoding="utf-8") as file:
                file.write("\n" + line + "\n")
        self._values[key] = value


class CellStore(LineStore[tuple[Outcome, ...]]):
    """Stores the outcomes of cells. is_fresh: whether to discard earlier content of the file."""

    def __init__(self, path: Path, *, is_fresh: bool = False) -> None:
        if is_fresh and path.exists():
            os.truncate(path, 0)  # the file must not be removed, because it is locked
        super().__init__(path, _to_line, _from_line)


def _to_line(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {"outcomes": [asdict(outcome) for outcome in outcomes]}


def _from_line(fields: dict[str, Any]) -> tuple[Outcome, ...]:
    return tuple(map(_outcome, fields["outcomes"]))


def _outcome(values: dict[str, Any]) -> Outcome:
    lists = {name: tuple(values[name]) for name in ("taken", "offered")}
    outcome = Outcome(**{**values, **lists})
    if any(type(getattr(outcome, name)) is not kind for name, kind in TYPES.items()):
        raise ValueError("An outcome has a value of a wrong type.")
    if outcome.num_forwards < 1 or outcome.is_right not in (True, False, None):
        raise ValueError("An outcome has a value out of range.")
    return outcome
