"""What the reference answers promise: true small steps, names kept back, no wrong candidate."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest

from mars_runtime.tasks import Task, check, generate
from mars_runtime.tasks.arithmetic import add, subtract, written_out
from mars_runtime.tasks.names import EVAL_PEOPLE, TRAIN_PEOPLE
from mars_runtime.tasks.pools import COLOURS, CONTAINERS, PLACES, THINGS
from mars_runtime.tasks.reading_stories import (
    ANIMALS,
    FINDS,
    GIFTS,
    HEROES,
    HOMES,
    SPOTS,
    TIMES,
)

STORY = "Tom lived in a mill. Tom gave it bread, and Ruth let it stay."
QUOTE = 'The text says: "Tom gave it bread, and Ruth let it stay."'


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (add(31, 5), "31 + 5 = 36"),
        (add(8, 5), "8 + 5 = 13"),
        (add(27, 15), "27 + 15 = 30 + 12 = 42"),
        (add(5, 27), "5 + 27 = 20 + 12 = 32"),
        (subtract(52, 27), "52 - 27 = 52 - 20 - 7 = 32 - 7 = 25"),
        (subtract(58, 23), "58 - 23 = 35"),
        (written_out("8 in 2 parts: 18 + 4 = 22."), "8 in 2 parts: 18 + 4 = 10 + 12 = 22."),
    ],
)
def test_hard_sums_are_taken_apart(text: str, written: str) -> None:
    assert text == written


@pytest.mark.parametrize("family", ["word_problems", "symbolic"])
def test_every_equation_of_a_reference_is_true(family: str) -> None:
    for task in generate(family, "train", seed=7, count=400):
        for chain in re.findall(r"\d+ [-+*/][-+*/\d =]*= \d+", task.answer):
            assert len({eval(side) for side in chain.split("=")}) == 1, task


@pytest.mark.parametrize(
    "family", ["word_problems", "formats", "symbolic", "multiple_choice", "reading"]
)
def test_kept_back_names_are_never_trained(family: str) -> None:
    kept = {person.name for person in EVAL_PEOPLE}
    for task in generate(family, "train", seed=8, count=1000):
        assert not kept & set(re.findall(r"\w+", f"{task.prompt} {task.answer}")), task


def test_pools_are_wide_and_their_words_do_not_clash() -> None:
    names = [person.name for person in TRAIN_PEOPLE + EVAL_PEOPLE]
    pools = (HEROES, ANIMALS, HOMES, SPOTS, FINDS, GIFTS, COLOURS, PLACES, CONTAINERS)
    assert len(TRAIN_PEOPLE) >= 300
    for pool in (names, THINGS, *pools):
        assert len(set(pool)) == len(pool) >= 25
    for one, other in (
        (HOMES, SPOTS + TIMES),
        (ANIMALS, HEROES + FINDS + GIFTS),
        (FINDS, GIFTS + COLOURS),
        (GIFTS, COLOURS),
        (CONTAINERS, tuple(pair[1] for pair in THINGS)),
    ):
        assert not set(one) & set(other)


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        (f"{QUOTE} It stayed with Ruth.", True),
        (f"{QUOTE} It stayed with Tom.", False),
        (f"{QUOTE} It stayed there.", False),
        (f"{QUOTE} It stayed with Ruth and Tom.", False),
        (f"{QUOTE} {QUOTE} It stayed with Ruth.", False),
        ('The text says: "Tom let it stay with Ruth." It stayed with Ruth.', False),
        ("It stayed with Ruth.", True),
        (QUOTE, False),
    ],
)
def test_a_quotation_is_passed_over_and_the_conclusion_is_judged(text: str, is_right: bool) -> None:
    expected = json.dumps({"key": "Ruth", "rivals": ["Tom"]})
    assert check(Task("reading", "with_whom", STORY, "", expected), text) == is_right


def test_options_are_gone_through_in_order() -> None:
    for task in generate("multiple_choice", "train", seed=9, count=200):
        options = re.findall(r"^([A-F])\. (.+)$", task.prompt, re.MULTILINE)
        marked = re.findall(r"^([A-F])\. (.+): (yes|no)$", task.answer, re.MULTILINE)
        assert [mark[:2] for mark in marked] == options
        assert [letter for letter, _, mark in marked if mark == "yes"] == [task.expected]


def test_list_items_follow_one_fixed_order() -> None:
    for task in generate("formats", "train", seed=10, count=300):
        if task.kind == "semicolons":
            items = task.answer.split("; ")
            drops = sum(one > other for one, other in pairwise(items))
            assert drops <= 1
            assert len(set(items)) == len(items)
