"""Judgements of answers by people: validation, an append-only store, and merging of files.

A row is one reviewer's judgement of one pair of answers. A later row of the same reviewer and pair
replaces an earlier one or undoes it. Rows are stored in SQLite with a write-ahead log; each row is
committed before the store returns.
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
    "missing word",
    "wrong number",
    "broken grammar",
    "changed meaning",
    "broken code",
    "cut off",
)
"""Suggested tags. Reviewers may also enter their own tags."""
MAX_RATING = 5
MAX_TAGS, MAX_TAG, MAX_NOTE, MAX_REVIEWER, MAX_ID = 12, 40, 2000, 60, 80
MAX_ROWS = 200_000
log = logging.getLogger(__name__)
Unit = tuple[str, str, tuple[str, str]]
"""What a judgement is about: reviewer, id of the prompt, and the two methods sorted by name."""


class JudgementError(ValueError):
    """A judgement or a file of judgements is invalid; the message explains why."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One row of the store: a judgement, or an undo of an earlier one.

    item: id of the prompt.
    left, right: names of the methods that wrote the left and the right answer.
    ratings: rating of the left and of the right answer, 1 to 5; 0 for none.
    tags: tags of the left and of the right answer.
    is_masked: whether the names of the methods were hidden.
    is_revealed: whether the reviewer had already seen these names, although they were hidden.
    undoes: id of the row that this row undoes; the judgement is then empty.
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
        """Return the reviewer, the prompt and the pair of methods, by which rows are grouped."""
        first, second = sorted((self.left, self.right))
        return self.reviewer, self.item, (first, second)

    @property
    def preferred(self) -> str:
        """Return the name of the preferred method, ``equal``, or "" without a preference."""
        sides = {"left": self.left, "right": self.right}
        return sides.get(self.preference, self.preference)

    def of(self, method: str) -> tuple[int, tuple[str, ...]]:
        """Return the rating and the tags that the judgement assigns to ``method``."""
        side = (self.left, self.right).index(method)
        return self.ratings[side], self.tags[side]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def now() -> str:
    """Return the current UTC time in ISO 8601 with milliseconds."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def read_judgement(value: Any) -> Judgement:
    """Validate an untrusted JSON value and return it as a judgement. Raises JudgementError."""
    try:
        fields = as_mapping(value)
        names = Judgement.__dataclass_fields__
        if unknown := fields.keys() - names:
            raise JudgementError(f"Unknown field in a judgement: {sorted(unknown)[0][:MAX_ID]!r}.")
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
        raise JudgementError("is_masked and is_revealed must be true or false.")
    for name in ("id", "reviewer", "item", "left", "right"):
        if not texts[name].strip():
            raise JudgementError(f"The {name} of a judgement must not be empty.")
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
        raise ValueError("ratings and tags must be lists with two values, left and right")
    return list(value)


def _words(value: Any, name: str, most: int) -> str:
    text = as_text(value)
    if len(text) > most:
        raise ValueError(f"the {name} of a judgement must have at most {most:,} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"the {name} of a judgement contains an incomplete character (a lone surrogate)"
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
    """Return the latest row of each unit that was not undone.

    An undo applies to its row even if its time is earlier, because clocks may be set back.
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
    """The database cannot be read or written; the message is one sentence."""


class JudgementStore:
    """Judgements of all sets in one SQLite file, which several processes may use."""

    def __init__(self, path: Path) -> None:
        """Open the file, or create it. Raises OSError or StoreError if that fails."""
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
        """Open a connection and commit at the end of the block. Raises StoreError."""
        try:
            with closing(sqlite3.connect(self._path, timeout=10.0)) as database, database:
                database.execute("PRAGMA synchronous=FULL")
                yield database
        except sqlite3.Error as error:
            log.error("the judgements in %s cannot be used: %s", self._path.name, error)
            raise StoreError(
                f"The server cannot store judgements right now ({error}). Your browser stores "
                "them and sends them again later."
            ) from error

    def add(self, set_id: str, row: Judgement) -> Judgement:
        """Store a judgement with the current time and return it; it is on disk afterwards.

        If a row with this id is stored already, return that row, so a client may retry. Raises
        JudgementError if the store is full.
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
                    f"The server already stores {MAX_ROWS:,} judgements, the maximum. Export yours "
                    "to keep them."
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
        """Return all rows of a set in the order in which they were added.

        Rows that this version cannot parse are logged and skipped.
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
                log.warning("skipped an invalid stored judgement: %s", error)
        return parsed


def _later(time: str, last: str) -> str:
    """Return ``time``, or the millisecond after ``last`` if ``time`` is not later.

    Rows are sorted by time, and the clock may be set back.
    """
    if time > last:
        return time
    try:
        after = datetime.fromisoformat(last) + timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return time
    return after.isoformat(timespec="milliseconds")


@dataclass(frozen=True, slots=True)
class Merged:
    """The rows of several files.

    num_conflicts: units for which two files have different judgements.
    """

    rows: tuple[Judgement, ...]
    num_conflicts: int


def merged(files: Sequence[Sequence[Judgement]]) -> Merged:
    """Merge the rows of several files and drop duplicates.

    Two files conflict in a unit if neither has all rows of the other and their judgements differ.
    The later file's rows are then added under the reviewer's name with a number, such as "Ann (2)".
    """
    store = _MergedRows()
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


class _MergedRows:
    """Merged rows by id and by unit. Caches each unit's judgement, so merging takes linear time."""

    def __init__(self) -> None:
        self.rows: dict[str, Judgement] = {}
        self._units: dict[Unit, dict[str, Judgement]] = {}
        self._judgements: dict[Unit, str] = {}
        self._numbers: dict[Unit, int] = {}
        self._named: dict[tuple[Unit, str], Unit] = {}

    def add(self, rows: Iterable[Judgement]) -> None:
        """Add rows; skip those with an id that was added before."""
        for row in rows:
            if row.id not in self.rows:
                self.rows[row.id] = row
                self._units.setdefault(row.unit, {})[row.id] = row
                self._judgements.pop(row.unit, None)

    def is_conflict(self, rows: Sequence[Judgement]) -> bool:
        """Return whether a file's rows of one unit conflict with the rows added so far."""
        added = self._units.get(rows[0].unit, {})
        new = {row.id: row for row in rows}
        if any(row_id in added and added[row_id] != row for row_id, row in new.items()):
            return True
        if added.keys() <= new.keys() or new.keys() <= added.keys():
            return False
        return self._judgement(rows[0].unit) != _judgement_text(rows)

    def add_as_another(self, rows: Sequence[Judgement]) -> None:
        """Add rows of one unit under the reviewer's name with a number, such as "Ann (2)".

        Uses the first number from 2 on that is free or has the same judgement.
        """
        stem = rows[0].reviewer[: MAX_REVIEWER - 6]
        family: Unit = (stem, *rows[0].unit[1:])
        judgement = _judgement_text(rows)
        unit = self._named.get((family, judgement))
        if unit is None or self._judgement(unit) != judgement:
            number = self._numbers.get(family, 1)
            while True:
                number += 1
                unit = (f"{stem} ({number})", *rows[0].unit[1:])
                if unit not in self._units:
                    break
                self._named[family, self._judgement(unit)] = unit
                if self._judgement(unit) == judgement:
                    break
            self._numbers[family] = number
            self._named[family, judgement] = unit
        name = unit[0]
        suffix = "~" + name[len(stem) + 2 : -1]
        self.add(
            replace(
                row,
                reviewer=name,
                id=row.id[: MAX_ID - 6] + suffix,
                undoes=row.undoes[: MAX_ID - 6] + suffix if row.undoes else "",
            )
            for row in rows
        )
        self._judgements[unit] = judgement

    def _judgement(self, unit: Unit) -> str:
        if unit not in self._judgements:
            self._judgements[unit] = _judgement_text(self._units[unit].values())
        return self._judgements[unit]


def _judgement_text(rows: Iterable[Judgement]) -> str:
    """Return the current judgement of a unit as JSON, without id, time and reviewer."""
    judgements = [
        replace(row, id="", time="", reviewer="").as_json() for row in current(rows).values()
    ]
    return json.dumps(judgements)
