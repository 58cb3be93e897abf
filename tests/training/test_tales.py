"""Natural text from a small folder laid out as the real one."""

from __future__ import annotations

from pathlib import Path

from mars_runtime.lab.training.tales import (
    clean,
    fairytale_questions,
    passages,
    sentences,
    tale_passages,
)
from mars_runtime.tasks import is_checkable


def test_passages_are_split_by_tale(texts: Path) -> None:
    train, held_out = tale_passages(texts, "train"), tale_passages(texts, "eval")
    assert len(train) > len(held_out) > 0
    names = [
        {task.prompt.split("Tale ")[1].split()[0] for task in part if "Tale " in task.prompt}
        for part in (train, held_out)
    ]
    assert not names[0] & names[1]
    for task in train + held_out:
        assert 1500 <= len(task.answer) <= 3100
        assert task.family == "natural"
        assert not is_checkable(task)


def test_questions_keep_the_sentences_around_the_answer(texts: Path) -> None:
    tasks = fairytale_questions(texts, "train") + fairytale_questions(texts, "eval")
    assert len(tasks) == 60
    assert all(len(task.prompt) < 600 and "a lamp" in task.prompt for task in tasks)
    assert all("lamp" in task.answer and not is_checkable(task) for task in tasks)


def test_sentences_and_passages_lose_no_words() -> None:
    text = "".join(
        f"The fox number {i} went on. She saw a lamp, and it was lit.\n" for i in range(200)
    )
    assert " ".join(sentences(text)).split() == text.split()
    joined = " ".join(f"{opening} {body}" for opening, body in passages(clean(text))).split()
    assert joined == text.split()[: len(joined)]
