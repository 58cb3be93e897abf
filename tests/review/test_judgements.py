"""Judgements: validated rows, which of them count, stored through a kill, merged, masked."""

from __future__ import annotations

import base64
import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mars_runtime.review.judgements import (
    Judgement,
    JudgementError,
    JudgementStore,
    current,
    merged,
    read_judgement,
)
from mars_runtime.review.masked import SealError, seal, secret_in, sides, unseal

ROOT = Path(__file__).parents[2]
FIRST = Judgement("a1", "anna", "1", "ar", "tau=0", "left", (4, 2), ((), ("cut off",)), time="1")


def test_a_row_comes_back_from_json() -> None:
    encoded = FIRST.as_json()
    assert read_judgement(encoded) == FIRST
    assert read_judgement({"id": "x", "reviewer": "y", "item": "1", "left": "a", "right": "b"})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"ratings": [6, 0]}, "A rating must be a whole number from 1 to 5"),
        ({"ratings": 3}, "Expected a list"),
        ({"note": "\ud800"}, "The note of a judgement contains an incomplete character"),
        ({"note": "x" * 2001}, "The note of a judgement must have at most 2,000"),
        ({"right": "ar"}, "must compare two different methods"),
        ({"shown": 1}, "Unknown field in a judgement: 'shown'"),
        ({"id": 5}, "Expected a string"),
    ],
)
def test_a_row_of_a_stranger_is_refused_in_a_sentence(
    change: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(JudgementError, match=sentence):
        read_judgement(FIRST.as_json() | change)


def test_the_latest_counts_and_undo_takes_it_away() -> None:
    swapped = Judgement("a2", "anna", "1", "tau=0", "ar", "left", time="2")
    other = Judgement("b1", "ben", "1", "ar", "tau=0", "equal", time="2")
    undo = Judgement("a3", "anna", "1", "ar", "tau=0", undoes="a2", time="3")
    assert list(current([FIRST, swapped, other]).values()) == [swapped, other]
    assert swapped.preferred == "tau=0"
    assert current([FIRST, swapped, other, undo])[FIRST.unit] == FIRST
    again = replace(undo, id="a4", undoes="a1", time="0")  # regardless of the clock
    assert list(current([FIRST, swapped, other, undo, again]).values()) == [other]


def test_rows_are_stored_once_for_each_set_with_rising_times(tmp_path: Path) -> None:
    path = tmp_path / "data" / "review.sqlite"
    store = JudgementStore(path)
    first = store.add("one", FIRST)
    assert first.time > "2020"
    assert store.add("one", replace(FIRST, note="said again")) == first
    store.add("two", FIRST)
    assert JudgementStore(path).rows("one") == [first]
    future = "2999-01-01T00:00:00.000+00:00"  # the clock is set back before the next row
    with sqlite3.connect(path) as database:
        database.execute("UPDATE judgements SET time = ?", (future,))
    second = store.add("one", replace(FIRST, id="a2"))
    assert second.time > future
    insert = "INSERT INTO judgements (set_id, id, reviewer, time, told) VALUES (?, ?, ?, ?, ?)"
    with sqlite3.connect(path) as database:
        database.execute(insert, ("one", "a3", "anna", "9", '{"shape": "of a newer version"}'))
    database.close()
    assert [row.id for row in store.rows("one")] == ["a1", "a2"]


WRITER = """
import sys
from pathlib import Path
from mars_runtime.review.judgements import Judgement, JudgementStore
store = JudgementStore(Path(sys.argv[1]))
for number in range(10_000):
    row = Judgement(f"{sys.argv[2]}-{number}", sys.argv[2], str(number), "ar", "tau=0", "left")
    print(store.add("set", row).id, flush=True)
"""


@pytest.mark.parametrize("num_rows", [30])
def test_no_acknowledged_row_is_lost_to_a_kill(tmp_path: Path, num_rows: int) -> None:
    path = tmp_path / "review.sqlite"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )
        for name in ("anna", "ben")
    ]  # fmt: skip
    assert writers[0].stdout
    heard = {writers[0].stdout.readline().strip() for _ in range(num_rows)}
    for writer in writers:
        os.kill(writer.pid, signal.SIGKILL)
    heard |= {line for item in writers for line in (item.communicate()[0] or "").split("\n")[:-1]}
    remaining = {row.id for row in JudgementStore(path).rows("set")}
    assert heard <= remaining
    assert len(remaining) - len(heard) <= 2, "at most one of each was not acknowledged"


def test_files_merge_and_contradictions_are_both_kept() -> None:
    ben = Judgement("b1", "ben", "1", "ar", "tau=0", "right", time="2")
    later = replace(FIRST, id="a2", preference="equal", time="3")
    assert merged([[FIRST], [FIRST, ben]]).rows == (FIRST, ben)
    grown = merged([[FIRST], [FIRST, later]])
    assert (grown.num_conflicts, len(current(grown.rows))) == (0, 1)
    actual = merged([[FIRST], [later], [FIRST, ben]])
    assert actual.num_conflicts == 1
    said = {row.reviewer: row.preference for row in current(actual.rows).values()}
    assert said == {"anna": "left", "anna (2)": "equal", "ben": "right"}
    assert merged([actual.rows, [later]]).rows == actual.rows
    altered = merged([[FIRST], [replace(FIRST, note="other")]])
    assert altered.num_conflicts == 1


def test_sides_stay_and_fall_to_both_alike(tmp_path: Path) -> None:
    secret = secret_in(tmp_path)
    assert secret_in(tmp_path) == secret
    drawn = [sides(secret, "set", str(item), ("ar", "tau=0")) for item in range(400)]
    assert drawn == [sides(secret, "set", str(item), ("tau=0", "ar")) for item in range(400)]
    assert 150 < sum(pair == ("ar", "tau=0") for pair in drawn) < 250
    assert drawn != [sides(b"x" * 32, "set", str(item), ("ar", "tau=0")) for item in range(400)]


def test_a_seal_hides_and_opens_only_here(tmp_path: Path) -> None:
    """It is a Fernet token, as long for one order of the sides as for the other."""
    secret = secret_in(tmp_path)
    value = {"left": "ar", "right": "a method with a much longer name", "text": "é" * 100}
    sealed = seal(secret, value)
    assert unseal(secret, sealed) == value
    swapped = seal(secret, {**value, "left": value["right"], "right": value["left"]})
    assert len(swapped) == len(sealed)
    assert seal(secret, value) != sealed
    assert base64.urlsafe_b64decode(sealed)[0] == 0x80  # the version of the specification
    places = (0, 20, len(sealed) // 2, len(sealed) - 20)
    changed = [f"{sealed[:at]}{'AB'[sealed[at] == 'A']}{sealed[at + 1 :]}" for at in places]
    for damaged in ("", "é", sealed[:-4], *changed):
        with pytest.raises(SealError):
            unseal(secret, damaged)
    with pytest.raises(SealError, match="Another server or an earlier version"):
        unseal(b"x" * 32, sealed)
