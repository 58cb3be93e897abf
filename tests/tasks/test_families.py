"""Every family: references pass, by true small steps, other texts do not; the splits share neither
prompts nor the names kept back."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mars_runtime.tasks import (
    FAMILIES,
    Split,
    Task,
    check,
    examples,
    generate,
    is_checkable,
    natural_tasks,
)
from mars_runtime.tasks.word_problems import add, subtract, written_out
from mars_runtime.tasks.words import EVAL_PEOPLE

ROOT = Path(__file__).resolve().parents[2]
QUICK = [name for name in FAMILIES if name != "python_functions"]
GARBAGE = ("", " \n", "qwe rty 0 !!", "<html><body><h1>Hello</h1></body></html>", "####", "Answer:")


@pytest.mark.parametrize("split", ["train", "eval"])
@pytest.mark.parametrize("family", QUICK)
def test_references_pass_and_garbage_does_not(family: str, split: Split) -> None:
    for task in generate(family, split, seed=1, count=250):
        assert task.family == family
        assert check(task, task.answer), task
        for text in GARBAGE:
            assert not check(task, text), (task, text)


@pytest.mark.parametrize("split", ["train", "eval"])
def test_python_references_pass(split: Split) -> None:
    by_kind: dict[str, Task] = {}
    for task in generate("python_functions", split, seed=1, count=250):
        by_kind.setdefault(task.kind, task)
    assert len(by_kind) >= 30
    chosen = list(by_kind.values())[split == "eval" :: 2]
    for task in chosen:
        assert check(task, task.answer), task
    for text in GARBAGE:
        assert not check(chosen[0], text)


@pytest.mark.parametrize(
    ("family", "count", "share"),
    [
        ("word_problems", 200, 0.1),
        ("formats", 200, 0.12),
        ("symbolic", 200, 0.1),
        ("multiple_choice", 200, 0.45),
        ("reading", 200, 0.1),
        ("python_functions", 16, 0.2),
    ],
)
def test_answers_of_other_tasks_rarely_pass(family: str, count: int, share: float) -> None:
    tasks = generate(family, "eval", seed=2, count=count)
    pairs = zip(tasks, tasks[1:] + tasks[:1], strict=True)
    passed = sum(check(task, other.answer) for task, other in pairs)
    assert passed <= share * count


@pytest.mark.parametrize("family", list(FAMILIES))
def test_no_prompt_is_in_both_splits_or_twice(family: str) -> None:
    train = [task.prompt for task in generate(family, "train", seed=3, count=3000)]
    held_out = [task.prompt for task in generate(family, "eval", seed=4, count=600)]
    assert not set(train) & set(held_out)
    assert len(set(train)) == len(train)
    assert len(set(held_out)) == len(held_out)


def test_kinds_are_many() -> None:
    least = {"word_problems": 10, "python_functions": 30, "formats": 8, "symbolic": 8}
    for family, number in least.items():
        kinds = {task.kind for task in generate(family, "eval", seed=0, count=400)}
        assert len(kinds) >= number


def test_generation_is_the_same_in_another_process() -> None:
    code = (
        "import json; from mars_runtime.tasks import *;"
        "print(json.dumps([[t.prompt, t.answer, t.expected] for f in FAMILIES"
        " for s in ('train', 'eval') for t in generate(f, s, 5, 20)]))"
    )
    outputs = []
    for hash_seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, env=env, cwd=ROOT, capture_output=True, text=True, check=True
        )
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    here = generate("word_problems", "train", 5, 20)
    assert json.loads(outputs[0])[0] == [here[0].prompt, here[0].answer, here[0].expected]


def test_examples_are_fixed_and_cover_every_family() -> None:
    shown = examples()
    assert shown == examples()
    assert {task.family for task in shown} == {*FAMILIES, "natural"}
    assert all(len(task.prompt) < 600 for task in shown)


def test_natural_openings_have_no_checker() -> None:
    tasks = natural_tasks("eval", seed=0, count=12)
    assert len({task.prompt for task in tasks}) == 12
    assert not any(is_checkable(task) or check(task, "Once more.") for task in tasks)


def test_an_unknown_family_is_refused_with_the_names() -> None:
    with pytest.raises(ValueError, match="word_problems"):
        generate("riddles", "eval", 0, 1)


SAMPLES = [task for family in QUICK for task in generate(family, "eval", seed=6, count=30)]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SAMPLES), st.text(max_size=200))
def test_check_never_raises(task: Task, text: str) -> None:
    assert check(task, text) in (True, False)
    assert check(task, "Answer: " + text) in (True, False)
    assert check(task, "{" + text + "}") in (True, False)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(SAMPLES), st.text(alphabet="0123456789.,-#[](){}:; \nAB\u0660\u00b2"))
def test_check_never_raises_on_near_answers(task: Task, text: str) -> None:
    assert check(task, "#### " + text) in (True, False)
    assert check(task, text) in (True, False)


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
    remaining = {person.name for person in EVAL_PEOPLE}
    for task in generate(family, "train", seed=8, count=1000):
        assert not remaining & set(re.findall(r"\w+", f"{task.prompt} {task.answer}")), task


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
