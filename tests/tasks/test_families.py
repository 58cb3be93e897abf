"""Every family: references pass, by true small steps, other texts do not; the splits share neither
prompts nor the names kept back."""

from __future__ import annotations

import hashlib
import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mars_runtime.tasks import FAMILIES, Split, Task, check, generate
from mars_runtime.tasks.word_problems import add, subtract, written_out
from mars_runtime.tasks.words import EVAL_PEOPLE

DIGEST = "dcf6857630d92efd"
QUICK = [name for name in FAMILIES if name != "python_functions"]
GARBAGE = ("", " \n", "qwe rty 0 !!", "<html><body><h1>Hello</h1></body></html>", "####", "Answer:")


@pytest.mark.parametrize("split", ["train", "eval"])
@pytest.mark.parametrize("family", QUICK)
def test_references_pass_and_garbage_does_not(family: str, split: Split) -> None:
    for task in generate(family, split, seed=1, count=250):
        assert task.family == family
        assert check(task, task.answer), task
        assert [text for text in GARBAGE if check(task, text)] == [], task


@pytest.mark.parametrize("split", ["train", "eval"])
def test_python_references_pass(split: Split) -> None:
    by_kind: dict[str, Task] = {}
    for task in generate("python_functions", split, seed=1, count=250):
        by_kind.setdefault(task.kind, task)
    assert len(by_kind) >= 30
    chosen = list(by_kind.values())[split == "eval" :: 2]
    assert [task for task in chosen if not check(task, task.answer)] == []
    assert [text for text in GARBAGE if check(chosen[0], text)] == []


@pytest.mark.parametrize("family", list(FAMILIES))
def test_answers_of_other_tasks_rarely_pass(family: str) -> None:
    count = 16 if family == "python_functions" else 200
    share = {"multiple_choice": 0.45, "python_functions": 0.2, "formats": 0.12}.get(family, 0.1)
    tasks = generate(family, "eval", seed=2, count=count)
    pairs = zip(tasks, tasks[1:] + tasks[:1], strict=True)
    assert sum(check(task, other.answer) for task, other in pairs) <= share * count


@pytest.mark.parametrize("family", list(FAMILIES))
def test_no_prompt_is_in_both_splits_or_twice(family: str) -> None:
    train = [task.prompt for task in generate(family, "train", seed=3, count=3000)]
    held_out = [task.prompt for task in generate(family, "eval", seed=4, count=600)]
    assert not set(train) & set(held_out)
    assert len(set(train)) == len(train)
    assert len(set(held_out)) == len(held_out)


def test_prompts_never_change() -> None:
    """Results name their prompts, so these must not depend on the version or the process."""
    made = [generate(name, split, 5, 20) for name in FAMILIES for split in ("train", "eval")]
    texts = [[task.prompt, task.answer, task.expected] for tasks in made for task in tasks]
    assert hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16] == DIGEST


SAMPLES = [task for family in QUICK for task in generate(family, "eval", seed=6, count=30)]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SAMPLES), st.text() | st.text("0123456789.,-#[](){}:; \nAB\u0660\u00b2"))
def test_check_never_raises(task: Task, text: str) -> None:
    for answer in (text, f"Answer: {text}", f"{{{text}}}", f"#### {text}"):
        assert check(task, answer) in (True, False)
        assert check(task, answer, is_cut=True) in (True, False)


STORY = "Tom lived in a mill. Tom gave it bread, and Ruth let it stay."
QUOTE = 'The text says: "Tom gave it bread, and Ruth let it stay."'


def test_hard_sums_are_taken_apart() -> None:
    assert (add(31, 5), add(27, 15)) == ("31 + 5 = 36", "27 + 15 = 30 + 12 = 42")
    assert subtract(52, 27) == "52 - 27 = 52 - 20 - 7 = 32 - 7 = 25"
    assert written_out("8 in 2 parts: 18 + 4 = 22.") == "8 in 2 parts: 18 + 4 = 10 + 12 = 22."


@pytest.mark.parametrize("family", ["word_problems", "symbolic"])
def test_every_equation_of_a_reference_is_true(family: str) -> None:
    for task in generate(family, "train", seed=7, count=400):
        for chain in re.findall(r"\d+ [-+*/][-+*/\d =]*= \d+", task.answer):
            assert len({eval(side) for side in chain.split("=")}) == 1, task


@pytest.mark.parametrize("family", QUICK)
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
