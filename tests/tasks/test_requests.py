"""Open-ended requests: held out, different, hand-written ones first. Those unlike the training data
are judged by words.
"""

from __future__ import annotations

import pytest

from mars_runtime.tasks import KINDS, SHIFTED, check, generate, is_checkable, is_open
from mars_runtime.tasks.requests import request_tasks


@pytest.mark.parametrize("kind", KINDS)
def test_hand_written_requests_come_first_for_any_seed(kind: str) -> None:
    first, other, again = (
        [task.prompt for task in request_tasks(kind, seed, 62)] for seed in (0, 7, 7)
    )
    assert first[:12] == other[:12]
    assert first != other == again
    assert len(set(other)) == 62


def test_they_are_for_evaluation_only() -> None:
    for kind in (*KINDS, *SHIFTED):
        assert is_open(kind)
        with pytest.raises(ValueError, match="none to train on"):
            generate(kind, "train", 0, 3)


def test_a_right_answer_has_one_of_the_expected_words() -> None:
    task = generate("languages", "eval", 0, 1)[0]
    assert is_checkable(task)
    assert check(task, "Die Hauptstadt ist PARIS.")
    assert not check(task, "Die Hauptstadt ist Lyon.")
    tables = [task for task in generate("tables", "eval", 0, 8) if not is_checkable(task)]
    unchecked = [*generate("chat", "eval", 0, 1), *tables[:1]]
    assert len(unchecked) == 2
    assert not any(is_checkable(task) or check(task, "anything") for task in unchecked)
