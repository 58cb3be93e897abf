"""What people say of answers: rows that are only ever added, and folds over them.

A row is all that one reviewer says of one pair of answers, with what was shown. The latest row of a
reviewer counts; one that undoes another takes it away. So nothing that was said is lost, and what
counts is a fold. Rows live in SQLite (write-ahead log), each committed before it is acknowledged.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, cast

from mars_runtime.json_values import as_list, as_mapping, as_text

Preference = Literal["left", "right", "equal", ""]
PREFERENCES: tuple[Preference, ...] = ("left", "right", "equal", "")
TAGS = (
    "repetition",
    "lost word",
    "wrong number",
    "broken grammar",
    "changed meaning",
    "broken code",
    "cut off",
)
"""Those that are offered; people may write others."""
MAX_RATING = 5
MAX_TAGS, MAX_TAG, MAX_NOTE, MAX_REVIEWER, MAX_ID = 12, 40, 2000, 60, 80
MAX_ROWS = 200_000
Unit = tuple[str, str, tuple[str, str]]
"""Reviewer, item, the two ways in order of their names: what a judgement is about."""


class JudgementError(ValueError):
    """A judgement that can't be taken; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A row. left, right: names of the ways as they were shown. ratings: 1 to 5, 0 for none; tags:
    of each side. is_masked: the ways were not told; is_revealed: they were known to the reviewer
    all the same, from an earlier judgement. undoes: the id of the row that it takes away, and then
    it says nothing else. time: ISO 8601, of whoever keeps it."""

    id: str
    reviewer: str
    item: str
    left: str
    right: str
    preference: Preference = ""
    ratings: tuple[int, int] = (0, 0)
    tags: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    note: str = ""
    is_masked: bool = False
    is_revealed: bool = False
    undoes: str = ""
    time: str = ""

    @property
    def unit(self) -> Unit:
        """What it is about."""
        first, second = sorted((self.left, self.right))
        return self.reviewer, self.item, (first, second)

    @property
    def preferred(self) -> str:
        """The way that was preferred, ``equal``, or empty where nothing was said."""
        sides = {"left": self.left, "right": self.right}
        return sides.get(self.preference, self.preference)

    def of(self, way: str) -> tuple[int, tuple[str, ...]]:
        """Rating and tags of a way that was shown."""
        side = (self.left, self.right).index(way)
        return self.ratings[side], self.tags[side]

    def as_json(self) -> dict[str, Any]:
        """Its values."""
        return asdict(self)


def now() -> str:
    """The time, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def read_judgement(value: Any) -> Judgement:
    """A row from anybody. Raises JudgementError."""
    try:
        told = as_mapping(value)
        names = Judgement.__dataclass_fields__
        if unknown := told.keys() - names:
            raise JudgementError(f"A judgement has no {sorted(unknown)[0][:MAX_ID]!r}.")
        texts = {
            name: _words(told.get(name, ""), name, most)
            for name, most in (
                *(("id", MAX_ID), ("reviewer", MAX_REVIEWER), ("item", MAX_ID), ("left", MAX_ID)),
                *(("right", MAX_ID), ("undoes", MAX_ID), ("time", MAX_ID)),
            )
        }
        note = _words(told.get("note", ""), "note", MAX_NOTE)
        ratings = [_rating(each) for each in _two(told.get("ratings", [0, 0]))]
        tags = [_tags(each) for each in _two(told.get("tags", [[], []]))]
        preference = told.get("preference", "")
        switches = {name: told.get(name, False) for name in ("is_masked", "is_revealed")}
    except ValueError as error:
        sentence = str(error)
        raise JudgementError(sentence[:1].upper() + sentence[1:].rstrip(".") + ".") from None
    if preference not in PREFERENCES:
        raise JudgementError("A preference is left, right, equal or empty.")
    if not all(isinstance(each, bool) for each in switches.values()):
        raise JudgementError("Whether a judgement was masked is true or false.")
    for name in ("id", "reviewer", "item", "left", "right"):
        if not texts[name].strip():
            raise JudgementError(f"A judgement needs a text as {name}.")
    if texts["left"] == texts["right"]:
        raise JudgementError("A judgement is about two ways that differ.")
    return Judgement(
        **cast("Mapping[str, Any]", texts),
        preference=cast("Preference", preference),
        ratings=(ratings[0], ratings[1]),
        tags=(tags[0], tags[1]),
        note=note,
        **switches,
    )


def _two(value: Any) -> list[Any]:
    if len(as_list(list(value) if isinstance(value, tuple) else value)) != 2:
        raise ValueError("a judgement is about two answers")
    return list(value)


def _words(value: Any, name: str, most: int) -> str:
    text = as_text(value)
    if len(text) > most:
        raise ValueError(f"the {name} of a judgement has at most {most:,} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the {name} of a judgement holds half of a character") from None
    return text


def _rating(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_RATING:
        raise ValueError(f"a rating is a whole number from 1 to {MAX_RATING}, or 0 for none")
    return value


def _tags(value: Any) -> tuple[str, ...]:
    given = as_list(list(value) if isinstance(value, tuple) else value)
    if len(given) > MAX_TAGS:
        raise ValueError(f"an answer has at most {MAX_TAGS} tags")
    found = (_words(each, "tag", MAX_TAG).strip() for each in given)
    return tuple(dict.fromkeys(filter(None, found)))


def current(rows: Iterable[Judgement]) -> dict[Unit, Judgement]:
    """What counts: of each unit the latest row that was not undone, in the order of time."""
    history: dict[Unit, list[Judgement]] = {}
    for row in sorted(rows, key=lambda row: row.time):
        if row.undoes:
            own = history.get(row.unit, [])
            history[row.unit] = [each for each in own if each.id != row.undoes]
        else:
            history.setdefault(row.unit, []).append(row)
    return {unit: own[-1] for unit, own in history.items() if own}


class JudgementStore:
    """Rows of sets in one SQLite file; several processes may use it. Each is on disk when ``add``
    returns."""

    def __init__(self, path: Path) -> None:
        """Raises OSError or sqlite3.Error where nothing can be kept there."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        with self._open() as database:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute(
                "CREATE TABLE IF NOT EXISTS judgements (number INTEGER PRIMARY KEY, "
                "set_id TEXT NOT NULL, id TEXT NOT NULL, reviewer TEXT NOT NULL, time TEXT NOT "
                "NULL, told TEXT NOT NULL, UNIQUE (set_id, id))"
            )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection whose changes are committed when the block ends well."""
        with closing(sqlite3.connect(self._path, timeout=10.0)) as database, database:
            database.execute("PRAGMA synchronous=FULL")
            yield database

    def add(self, set_id: str, row: Judgement) -> Judgement:
        """Keep a row at this moment; one whose id is there already is that one again, so a page may
        repeat what it heard no answer to. Raises JudgementError where there is no room."""
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            told = database.execute(
                "SELECT told FROM judgements WHERE set_id = ? AND id = ?", (set_id, row.id)
            ).fetchone()
            if told is not None:
                return read_judgement(json.loads(told[0]))
            (count,) = database.execute("SELECT COUNT(*) FROM judgements").fetchone()
            if count >= MAX_ROWS:
                raise JudgementError("There is no room for more judgements: export and move them.")
            kept = replace(row, time=now())
            database.execute(
                "INSERT INTO judgements (set_id, id, reviewer, time, told) VALUES (?, ?, ?, ?, ?)",
                (set_id, kept.id, kept.reviewer, kept.time, json.dumps(kept.as_json())),
            )
        return kept

    def rows(self, set_id: str) -> list[Judgement]:
        """All rows of a set, in the order in which they were kept."""
        with self._open() as database:
            told = database.execute(
                "SELECT told FROM judgements WHERE set_id = ? ORDER BY number", (set_id,)
            ).fetchall()
        return [read_judgement(json.loads(each)) for (each,) in told]


@dataclass(frozen=True, slots=True)
class Merged:
    """Rows of several files as one. num_conflicts: judgements of one name that two files have
    differently, both of which are kept, the second under the name with a number behind."""

    rows: tuple[Judgement, ...]
    num_conflicts: int


def merged(files: Sequence[Sequence[Judgement]]) -> Merged:
    """All rows, each once. Where neither of two files knows the other's row of a unit and they
    differ, the later file's are another's, so that both stand beside each other."""
    kept: dict[str, Judgement] = {}
    num_conflicts = 0
    for file in files:
        units: dict[Unit, list[Judgement]] = {}
        for row in file:
            units.setdefault(row.unit, []).append(row)
        for own in units.values():
            if _is_conflict(list(kept.values()), own):
                num_conflicts += 1
                own = _as_another(list(kept.values()), own)
            kept.update({row.id: row for row in own if row.id not in kept})
    return Merged(tuple(sorted(kept.values(), key=lambda row: row.time)), num_conflicts)


def _is_conflict(kept: Sequence[Judgement], own: Sequence[Judgement]) -> bool:
    there = {row.id: row for row in kept if row.unit == own[0].unit}
    mine = {row.id: row for row in own}
    if any(there[name] != mine[name] for name in there.keys() & mine.keys()):
        return True
    if there.keys() <= mine.keys() or mine.keys() <= there.keys():
        return False
    said = [_said(current(rows.values())) for rows in (there, mine)]
    return said[0] != said[1]


def _said(found: Mapping[Unit, Judgement]) -> list[dict[str, Any]]:
    """What was judged, whoever kept it when."""
    return [replace(row, id="", time="").as_json() for row in found.values()]


def _as_another(kept: Sequence[Judgement], own: Sequence[Judgement]) -> list[Judgement]:
    """The same rows by ``name (2)``, or the next number that has said nothing of this."""
    taken = {row.unit for row in kept}
    number = 2
    while True:
        name = f"{own[0].reviewer[: MAX_REVIEWER - 6]} ({number})"
        rows = [
            replace(
                row,
                reviewer=name,
                id=f"{row.id[: MAX_ID - 6]}~{number}",
                undoes=f"{row.undoes[: MAX_ID - 6]}~{number}" if row.undoes else "",
            )
            for row in own
        ]
        if rows[0].unit not in taken or _said(current(rows)) == _said(
            current(row for row in kept if row.unit == rows[0].unit)
        ):
            return rows
        number += 1
