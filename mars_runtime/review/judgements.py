"""Judgements of answers by people: an append-only store and folds over its rows.

A row is the judgement of one reviewer on one pair of answers, with what was shown. The latest row
of a reviewer counts, unless a later row undoes it. Rows are stored in SQLite (write-ahead log);
each is committed before it is acknowledged.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal, cast

from mars_runtime.json_values import as_list, as_mapping, as_text
from mars_runtime.review import budget

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
"""Suggested tags; reviewers may write others."""
MAX_RATING = 5
MAX_TAGS, MAX_TAG, MAX_NOTE, MAX_REVIEWER, MAX_ID = 12, 40, 2000, 60, 80
MAX_ROWS = 200_000
log = logging.getLogger(__name__)
Unit = tuple[str, str, tuple[str, str]]
"""Subject of a judgement: reviewer, item, and the two methods in order of their names."""


class JudgementError(ValueError):
    """An invalid judgement; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One row.

    left, right: names of the methods as shown. ratings: 1 to 5 for each side, 0 for none. tags: of
    each side. is_masked: the names were hidden; is_revealed: the reviewer knew them from an earlier
    judgement. undoes: id of the row that this one removes; all other values are then empty.
    time: ISO 8601, set by the server or browser that stores the row.
    """

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
        """Return the subject of the judgement."""
        first, second = sorted((self.left, self.right))
        return self.reviewer, self.item, (first, second)

    @property
    def preferred(self) -> str:
        """Return the preferred method, ``equal``, or "" without a preference."""
        sides = {"left": self.left, "right": self.right}
        return sides.get(self.preference, self.preference)

    def of(self, method: str) -> tuple[int, tuple[str, ...]]:
        """Return the rating and the tags of a method that was shown."""
        side = (self.left, self.right).index(method)
        return self.ratings[side], self.tags[side]

    def as_json(self) -> dict[str, Any]:
        """Return its values for JSON."""
        return asdict(self)


def now() -> str:
    """Return the time in ISO 8601, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def read_judgement(value: Any) -> Judgement:
    """Validate an untrusted judgement. Raises JudgementError."""
    try:
        fields = as_mapping(value)
        names = Judgement.__dataclass_fields__
        if unknown := fields.keys() - names:
            raise JudgementError(f"A judgement has no field {sorted(unknown)[0][:MAX_ID]!r}.")
        texts = {
            name: _words(fields.get(name, ""), name, most)
            for name, most in (
                *(("id", MAX_ID), ("reviewer", MAX_REVIEWER), ("item", MAX_ID), ("left", MAX_ID)),
                *(("right", MAX_ID), ("undoes", MAX_ID), ("time", MAX_ID)),
            )
        }
        note = _words(fields.get("note", ""), "note", MAX_NOTE)
        ratings = [_rating(value_of_side) for value_of_side in _two(fields.get("ratings", [0, 0]))]
        tags = [_tags(value_of_side) for value_of_side in _two(fields.get("tags", [[], []]))]
        preference = fields.get("preference", "")
        switches = {name: fields.get(name, False) for name in ("is_masked", "is_revealed")}
    except ValueError as error:
        sentence = str(error)
        raise JudgementError(sentence[:1].upper() + sentence[1:].rstrip(".") + ".") from None
    if preference not in PREFERENCES:
        raise JudgementError("The preference must be left, right, equal or empty.")
    if not all(isinstance(switch, bool) for switch in switches.values()):
        raise JudgementError("masked must be true or false.")
    for name in ("id", "reviewer", "item", "left", "right"):
        if not texts[name].strip():
            raise JudgementError(f"The {name} of a judgement must be a text.")
    if texts["left"] == texts["right"]:
        raise JudgementError("A judgement must compare two different methods.")
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
        raise ValueError("a judgement has two answers")
    return list(value)


def _words(value: Any, name: str, most: int) -> str:
    text = as_text(value)
    if len(text) > most:
        raise ValueError(f"the {name} of a judgement must have at most {most:,} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"the {name} of a judgement contains half of a character (a lone surrogate)"
        ) from None
    return text


def _rating(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_RATING:
        raise ValueError(f"a rating must be a whole number from 1 to {MAX_RATING}, or 0 for none")
    return value


def _tags(value: Any) -> tuple[str, ...]:
    items = as_list(list(value) if isinstance(value, tuple) else value)
    if len(items) > MAX_TAGS:
        raise ValueError(f"an answer must have at most {MAX_TAGS} tags")
    tags = (_words(item, "tag", MAX_TAG).strip() for item in items)
    return tuple(dict.fromkeys(filter(None, tags)))


def current(rows: Iterable[Judgement]) -> dict[Unit, Judgement]:
    """Return the row that counts for each unit: the latest one that was not undone, by time.

    An undo removes its row regardless of their times, so a clock that was set back cannot restore
    one.
    """
    ordered = sorted(rows, key=lambda row: row.time)
    undone = {(row.unit, row.undoes) for row in ordered if row.undoes}
    latest: dict[Unit, Judgement] = {}
    for row in ordered:
        budget.check()
        if not row.undoes and (row.unit, row.id) not in undone:
            latest[row.unit] = row
    return latest


class StoreError(RuntimeError):
    """Judgements cannot be stored or read at the moment; the message is one sentence."""


class JudgementStore:
    """Judgements in one SQLite file, which several processes may use.

    A row is on disk when ``add`` returns.
    """

    def __init__(self, path: Path) -> None:
        """Create the file. Raises OSError or StoreError if that fails."""
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
        """Open a connection; commit if the block raises no error. Raises StoreError."""
        try:
            with closing(sqlite3.connect(self._path, timeout=10.0)) as database, database:
                database.execute("PRAGMA synchronous=FULL")
                yield database
        except sqlite3.Error as error:
            log.error("the judgements in %s cannot be used: %s", self._path.name, error)
            raise StoreError(
                f"The server cannot store judgements right now ({error}). This browser keeps "
                "yours and sends them again."
            ) from error

    def add(self, set_id: str, row: Judgement) -> Judgement:
        """Store a row with the current time and return it.

        If the id exists, return the stored row, so a page may retry. Raises JudgementError if the
        store is full.
        """
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            stored = database.execute(
                "SELECT told FROM judgements WHERE set_id = ? AND id = ?", (set_id, row.id)
            ).fetchone()
            if stored is not None:
                return read_judgement(json.loads(stored[0]))
            (count,) = database.execute("SELECT COUNT(*) FROM judgements").fetchone()
            if count >= MAX_ROWS:
                raise JudgementError(
                    f"The server stores at most {MAX_ROWS:,} judgements. Export yours to keep them."
                )
            last = database.execute(
                "SELECT time FROM judgements ORDER BY number DESC LIMIT 1"
            ).fetchone()
            stored_row = replace(row, time=_later(now(), last[0] if last else ""))
            database.execute(
                "INSERT INTO judgements (set_id, id, reviewer, time, told) VALUES (?, ?, ?, ?, ?)",
                (
                    set_id,
                    stored_row.id,
                    stored_row.reviewer,
                    stored_row.time,
                    json.dumps(stored_row.as_json()),
                ),
            )
        return stored_row

    def rows(self, set_id: str) -> list[Judgement]:
        """Return all rows of a set in the order of storage.

        A row that this version cannot parse is skipped and logged.
        """
        with self._open() as database:
            stored = database.execute(
                "SELECT told FROM judgements WHERE set_id = ? ORDER BY number", (set_id,)
            ).fetchall()
        parsed = []
        for (text,) in stored:
            try:
                parsed.append(read_judgement(json.loads(text)))
            except ValueError as error:
                log.warning("skipped a stored judgement that cannot be read: %s", error)
        return parsed


def _later(time: str, last: str) -> str:
    """Return a time after ``last``, even if the clock was set back: rows are sorted by time."""
    if time > last:
        return time
    try:
        after = datetime.fromisoformat(last) + timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return time
    return after.isoformat(timespec="milliseconds")


@dataclass(frozen=True, slots=True)
class Merged:
    """Merged rows of several files.

    num_conflicts: judgements that differ between two files under the same reviewer's name. Both are
    kept, the second under the name with a number appended.
    """

    rows: tuple[Judgement, ...]
    num_conflicts: int


def merged(files: Sequence[Sequence[Judgement]]) -> Merged:
    """Merge files of rows and drop duplicates.

    If two files have different rows of a unit and neither contains the other's, the rows of the
    later file are stored under another reviewer's name, so both are kept.
    """
    store = _Kept()
    num_conflicts = 0
    for file in files:
        units: dict[Unit, list[Judgement]] = {}
        for row in file:
            units.setdefault(row.unit, []).append(row)
        for unit_rows in units.values():
            budget.check()
            if store.is_conflict(unit_rows):
                num_conflicts += 1
                store.add_as_another(unit_rows)
            else:
                store.add(unit_rows)
    return Merged(tuple(sorted(store.rows.values(), key=lambda row: row.time)), num_conflicts)


class _Kept:
    """Rows by id and by unit, with a cached judgement per unit, so merging takes linear time."""

    def __init__(self) -> None:
        self.rows: dict[str, Judgement] = {}
        self._units: dict[Unit, dict[str, Judgement]] = {}
        self._says: dict[Unit, str] = {}
        self._numbers: dict[Unit, int] = {}
        self._named: dict[tuple[Unit, str], Unit] = {}

    def add(self, rows: Iterable[Judgement]) -> None:
        """Add the rows with new ids."""
        for row in rows:
            if row.id not in self.rows:
                self.rows[row.id] = row
                self._units.setdefault(row.unit, {})[row.id] = row
                self._says.pop(row.unit, None)

    def is_conflict(self, rows: Sequence[Judgement]) -> bool:
        """Return whether rows of another file contradict the stored rows of their unit."""
        there = self._units.get(rows[0].unit, {})
        mine = {row.id: row for row in rows}
        if any(name in there and there[name] != row for name, row in mine.items()):
            return True
        if there.keys() <= mine.keys() or mine.keys() <= there.keys():
            return False
        return self._said(rows[0].unit) != _said(rows)

    def add_as_another(self, rows: Sequence[Judgement]) -> None:
        """Add the rows under ``name (2)``, or the next number with no or the same judgement."""
        stem = rows[0].reviewer[: MAX_REVIEWER - 6]
        family: Unit = (stem, *rows[0].unit[1:])
        says = _said(rows)
        unit = self._named.get((family, says))
        if unit is None or self._said(unit) != says:
            number = self._numbers.get(family, 1)
            while True:
                number += 1
                unit = (f"{stem} ({number})", *rows[0].unit[1:])
                if unit not in self._units:
                    break
                self._named[family, self._said(unit)] = unit
                if self._said(unit) == says:
                    break
            self._numbers[family] = number
            self._named[family, says] = unit
        name = unit[0]
        mark = "~" + name[len(stem) + 2 : -1]
        self.add(
            replace(
                row,
                reviewer=name,
                id=row.id[: MAX_ID - 6] + mark,
                undoes=row.undoes[: MAX_ID - 6] + mark if row.undoes else "",
            )
            for row in rows
        )
        self._says[unit] = says  # identical judgements also have identical text

    def _said(self, unit: Unit) -> str:
        if unit not in self._says:
            self._says[unit] = _said(self._units[unit].values())
        return self._says[unit]


def _said(rows: Iterable[Judgement]) -> str:
    """Return the judgements of one unit as text, without ids, times and reviewers."""
    judgements = [
        replace(row, id="", time="", reviewer="").as_json() for row in current(rows).values()
    ]
    return json.dumps(judgements)
