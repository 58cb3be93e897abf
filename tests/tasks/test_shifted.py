"""Prompts unlike the training data: all different, some long, judged by words."""

from __future__ import annotations

import json

import pytest

from mars_runtime import tasks
from mars_runtime.tasks import KINDS, SHIFTED, check, generate, is_checkable


@pytest.mark.parametrize("kind", SHIFTED)
def test_prompts_are_different_and_the_same_each_time(kind: str) -> None:
    found = generate(kind, "eval", 0, 8)
    assert len({task.prompt for task in found}) == 8
    assert found == generate(kind, "eval", 0, 8)
    assert found[:3] == generate(kind, "eval", 0, 3)
    assert tasks.is_open(kind)


def test_they_are_never_trained_on() -> None:
    assert not set(SHIFTED) & set(KINDS)
    with pytest.raises(ValueError, match="none to train on"):
        generate("tables", "train", 0, 1)


def test_a_right_answer_holds_one_of_its_words() -> None:
    task = generate("languages", "eval", 0, 1)[0]
    assert is_checkable(task)
    assert check(task, "Die Hauptstadt ist PARIS.")
    assert not check(task, "Die Hauptstadt ist Lyon.")
    some = [task for task in generate("tables", "eval", 0, 8) if not is_checkable(task)]
    assert some
    assert not check(some[0], "anything")


def test_long_prompts_hold_the_answer_and_grow() -> None:
    found = generate("long", "eval", 0, 8)
    for task in found:
        assert check(task, task.prompt)
        assert not any(
            word in task.prompt.rpartition("\n\n")[2] for word in json.loads(task.expected)
        )
    lengths = [len(task.prompt) for task in found]
    assert lengths[-1] > 3 * lengths[0]
