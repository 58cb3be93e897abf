"""Figures and files: compared with numbers by hand, a second computation, and hostile text."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path

import krippendorff
import numpy as np
import pytest

from mars_runtime.__main__ import main
from mars_runtime.review import exports
from mars_runtime.review.figures import (
    agreement,
    alpha,
    interval,
    opinions,
    preferences,
    study,
)
from mars_runtime.review.judgements import PREFERENCES, Judgement, JudgementError, current
from mars_runtime.review.methods import read_methods
from mars_runtime.review.prompts import Item
from mars_runtime.review.sets import ReviewSet, SetDescription

EVIL = '<img src=x onerror="alert(1)"></script>=1+1'
NUM_ITEMS = 12


@pytest.fixture
def review(tmp_path: Path) -> ReviewSet:
    """Twelve prompts by two ways; the answers of the last two are equal."""
    about = SetDescription("a set", read_methods(["ar", "tau=0"], "tiny"), 0, {})
    items = [Item(str(n), f"{EVIL} {n}", category="ab"[n % 2]) for n in range(NUM_ITEMS)]
    made = ReviewSet.create(tmp_path / "set", about, items)
    for number in range(NUM_ITEMS):
        made.add_text(number, 0, f"{EVIL} one two {number}")
        made.add_text(number, 1, f"{EVIL} one {'two' if number > 9 else 'too'} {number}")
    made.summarize()
    return made


def judged(reviewer: str, seed: int) -> list[Judgement]:
    rng = random.Random(seed)
    return [
        Judgement(
            f"{reviewer}{n}", reviewer, str(n), "tau=0", "ar", rng.choice(PREFERENCES[:3]),
            (rng.randint(1, 5), rng.randint(1, 5)), (("cut off",) if n % 2 else (), ()), EVIL,
            time=f"{n:02}",
        )
        for n in range(10)
    ]  # fmt: skip


def test_alpha_is_krippendorffs_own_example() -> None:
    """Computing Krippendorff's Alpha-Reliability (2011), section C and E: four observers."""
    table = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
        [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
    ]
    units = [[row[n] for row in table if row[n] is not None] for n in range(12)]
    shared = [unit for unit in units if len(unit) > 1]
    assert alpha(shared) == pytest.approx(0.743, abs=5e-4)
    assert alpha(shared, interval) == pytest.approx(0.849, abs=5e-4)
    assert alpha([["a", "a"], ["a", "a"]]) is None
    assert alpha([]) is None


def test_alpha_is_that_of_the_package() -> None:
    """The package is under the GPL, so nothing but this test imports it."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        data = rng.integers(1, 6, size=(3, 15)).astype(float)
        data[rng.random(data.shape) < 0.3] = np.nan
        units = [[v for v in column if not np.isnan(v)] for column in data.T]
        shared = [unit for unit in units if len(unit) > 1]
        for name, our_alpha in (("nominal", alpha(shared)), ("interval", alpha(shared, interval))):
            assert our_alpha == pytest.approx(krippendorff.alpha(data, level_of_measurement=name))


def test_figures_are_those_of_the_exported_table(review: ReviewSet) -> None:
    rows = [*judged("anna", 0), *judged("ben", 1)]
    table = list(csv.DictReader(io.StringIO(exports.to_csv(review, rows), newline="")))
    assert len(table) == 20
    [actual] = preferences(review, rows)
    votes = [line["preferred"] for line in table]
    assert (actual.num_prompts, actual.num_judgements, actual.num_identical) == (10, 20, 2)
    for way, estimate in (("tau=0", actual.better), ("equal", actual.equal), ("ar", actual.worse)):
        assert estimate.value == pytest.approx(votes.count(way) / 20)
        assert estimate.low <= estimate.value <= estimate.high
    ratings = [int(line["left_rating"]) for line in table]
    bold = next(item for item in opinions(review, rows) if item.way == "tau=0")
    assert bold.rating
    assert bold.rating.value == pytest.approx(np.mean(ratings))
    assert bold.tags["cut off"].value == pytest.approx(0.5)
    by_item = [[line["preferred"] for line in table if line["item"] == str(n)] for n in range(10)]
    agreements = agreement(current(rows).values())
    assert (agreements.num_reviewers, agreements.num_shared) == (2, 10)
    assert agreements.preference == pytest.approx(alpha(by_item))
    [half] = preferences(review, rows, "a")
    assert (half.num_prompts, half.num_identical) == (5, 1)


def test_marks_are_counted_apart_from_judgements(review: ReviewSet) -> None:
    marks = study(review)["marks"]
    whole = next(mark for mark in marks if (mark["way"], mark["category"]) == ("tau=0", ""))
    assert (whole["num_answers"], whole["num_same"], whole["num_checked"]) == (12, 2, 0)
    assert whole["first_word"] == 5.0


def test_a_table_computes_nothing_and_keeps_every_text(review: ReviewSet) -> None:
    """A cell that a spreadsheet would compute begins with an apostrophe."""
    firsts = ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"]
    rows = [
        Judgement(f"x{n}", f"={n}", "1", "ar", "tau=0", "left", note=f"{first}1+1")
        for n, first in enumerate(firsts)
    ]
    lines = list(csv.DictReader(io.StringIO(exports.to_csv(review, rows), newline="")))
    assert sorted(line["note"] for line in lines) == sorted(f"'{first}1+1" for first in firsts)
    assert all(line["reviewer"].startswith("'=") for line in lines)
    assert lines[0]["right_first_difference"] == "5"
    same = [lines[0][f"{side}_same_as_reference"] for side in ("left", "right")]
    assert same == ["True", "False"]


def test_the_page_escapes_what_it_shows(review: ReviewSet) -> None:
    page = exports.to_html(review, judged("anna", 0))
    assert "<img" not in page.partition("Prompts and answers")[2]
    assert "&lt;img src=x" in page
    assert "10 judged prompts" in page


def test_comparator_gets_one_file_for_a_pair(review: ReviewSet) -> None:
    rows = [*judged("anna", 0), *judged("ben", 1)]
    body = json.loads(exports.to_comparator(review, rows, 1))
    assert [model["name"] for model in body["models"]] == ["ar", "tau=0"]
    assert len(body["examples"]) == NUM_ITEMS
    first = body["examples"][0]
    scores = [score["score"] for score in first["individual_rater_scores"]]
    score_of = {"ar": 1.0, "tau=0": -1.0, "equal": 0.0}
    assert scores == [score_of[row.preferred] for row in rows if row.item == "0"]
    assert first["score"] == pytest.approx(sum(scores) / 2)
    assert body["examples"][11]["score"] is None
    assert body["examples"][11]["custom_fields"]["same text"] == "yes"


def test_judgements_come_back_from_their_file(review: ReviewSet) -> None:
    rows = judged("anna", 0)
    text = exports.to_jsonl(review, rows)
    assert exports.read_jsonl(text, review.id) == rows
    with pytest.raises(JudgementError, match="belong to another set"):
        exports.read_jsonl(text, "other")
    with pytest.raises(JudgementError, match=r"Line 3: This is not a judgement"):
        exports.read_jsonl("\n".join([*text.split("\n")[:2], "{", ""]))
    with pytest.raises(JudgementError, match="This file is empty"):
        exports.read_jsonl("")


def test_the_commands_export_and_merge(review: ReviewSet, tmp_path: Path) -> None:
    for name, seed in (("anna", 0), ("ben", 1)):
        (tmp_path / f"{name}.jsonl").write_text(
            exports.to_jsonl(review, judged(name, seed)), "utf-8"
        )
    files = [str(tmp_path / f"{name}.jsonl") for name in ("anna", "ben")]
    both, out = tmp_path / "both.jsonl", tmp_path / "out"
    where = str(tmp_path / "set")
    assert main(["review", "merge", where, *files, "--out", str(both)]) == 0
    assert main(["review", "export", where, "--judgements", str(both), "--out", str(out)]) == 0
    names = {"judgements.csv", "judgements.jsonl", "review.html", "comparator-1.json"}
    assert {path.name for path in out.iterdir()} == names
    merged_rows = exports.read_jsonl((out / "judgements.jsonl").read_text("utf-8"), review.id)
    assert len(current(merged_rows)) == 20
    both.write_text("{}", "utf-8")
    assert main(["review", "export", where, "--judgements", str(both), "--out", str(out)]) == 2
