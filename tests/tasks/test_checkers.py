"""Checkers on answers written by hand: other right wordings pass, near misses do not."""

from __future__ import annotations

import json

import pytest

from mars_runtime.tasks import Task, check
from mars_runtime.tasks.formats import holds
from mars_runtime.tasks.symbolic import _reduce


def _task(family: str, kind: str, expected: object) -> Task:
    written = expected if isinstance(expected, str) else json.dumps(expected)
    return Task(family, kind, "", "", written)


MONDAY, CAVE = {"result": "Monday"}, {"key": "cave", "rivals": ["well"]}


@pytest.mark.parametrize(
    ("family", "kind", "expected", "right", "wrong"),
    [
        (
            *("word_problems", "groups", "18"),
            ["3 * 6 = 18\n#### 18", "#### 18.0", "The answer is 18.", "#### 17\n#### 18"],
            ["18 - 2 = 16\n#### 16", "eighteen", "18 or 19"],
        ),
        (
            *("multiple_choice", "who_has", "B"),
            ["Answer: B", "The kite is red.\nanswer: b.", "The answer is B", "B."],
            ["Answer: A", "Answer: B\nAnswer: C", "Answer: Ben"],
        ),
        ("symbolic", "sort_up", {"result": "3, 12"}, ["Answer: 3,12."], ["Answer: 12, 3"]),
        ("symbolic", "brackets", {"result": "] )"}, ["Answer: ])"], ["Answer: ) ]"]),
        ("symbolic", "boolean", {"result": "True"}, ["= true\nAnswer: true"], ["false"]),
        ("symbolic", "weekday", MONDAY, ["Monday"], ["Answer: Monday or Tuesday"]),
        (
            *("reading", "where_lived", CAVE),
            ["The fox lived in a cave.", "a cave"],
            ["In a cave or near the well.", "near the well", "cavern"],
        ),
    ],
)
def test_right_and_wrong_answers(
    family: str, kind: str, expected: object, right: list[str], wrong: list[str]
) -> None:
    task = _task(family, kind, expected)
    assert [text for text in right if not check(task, text)] == []
    assert [text for text in wrong if check(task, text)] == []


@pytest.mark.parametrize(
    ("constraints", "right", "wrong"),
    [
        ({"bullets": 2, "members": ["fig", "pear"]}, "- fig\n- pear", "- fig\n- fig"),
        ({"bullets": 2}, "* a\n* b", "- a\n- b\n- c"),
        ({"numbered": 2}, "1. a\n2) b", "1. a\n3. b"),
        ({"separated": [";", 2]}, "fig; pear", "fig, pear"),
        ({"json": {"name": "Tom", "age": 7}}, '{"age": 7, "name": "Tom"}', '{"name": "Tom"}'),
        ({"json": {"a": 1}}, '```json\n{"a": 1}\n```', "Here: {'a': 1}"),
        ({"upper": True}, "A FOX", "A fox"),
        ({"no_commas": True, "sentences": 1}, "The fox runs and jumps.", "The fox runs, jumps."),
        ({"sentences": 2}, "The fox runs. The fox eats.", "The fox runs."),
        ({"first_word": "Now"}, "Now the fox runs.", "The fox runs now."),
        ({"last_word": "day"}, "It runs every day.", "Every day it runs."),
        ({"equals": "no"}, "no\n", "no, it is not"),
    ],
)
def test_constraints(constraints: dict[str, object], right: str, wrong: str) -> None:
    assert holds(right, constraints)
    assert not holds(wrong, constraints)


def test_every_boolean_step_keeps_the_value() -> None:
    for text in ("not (True and False) or True", "not False and (True or not True)"):
        value = eval(text)
        while text not in ("True", "False"):
            text = _reduce(text)
            assert eval(text) == value


@pytest.mark.parametrize(
    ("family", "kind", "expected", "text", "is_right"),
    [
        ("word_problems", "groups", "18", "It is 18.\n1", False),
        ("word_problems", "groups", "18", "The answer is 18", False),
        ("word_problems", "groups", "18", "#### 18", False),
        ("word_problems", "groups", "18", "#### 18\nSo 3", True),
        ("multiple_choice", "who_has", "B", "The answer is B. pear\nIt", False),
        ("multiple_choice", "who_has", "B", "B.\nIt", False),
        ("multiple_choice", "who_has", "B", "Answer: B", False),
        ("multiple_choice", "who_has", "B", "Answer: B\nIt", True),
        ("symbolic", "weekday", MONDAY, "Monday\n", False),
        ("symbolic", "weekday", MONDAY, "Answer: Monday", False),
        ("symbolic", "weekday", MONDAY, "Answer: Monday\nAnd", True),
        ("formats", "bullet_list", {"bullets": 2}, "- fig\n- pear\n", False),
        ("reading", "where_lived", CAVE, "In a cave.\nOr", False),
        ("languages", "shifted", ["paris"], "Die Hauptstadt ist PARIS. Sie", True),
    ],
)
def test_a_cut_text_is_right_only_with_a_marked_answer(
    family: str, kind: str, expected: object, text: str, is_right: bool
) -> None:
    assert check(_task(family, kind, expected), text, is_cut=True) == is_right
