"""Natural text from a small folder laid out as the real one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mars_runtime.lab.training.tales import (
    clean,
    fairytale_questions,
    passages,
    sentences,
    tale_passages,
)
from mars_runtime.tasks import is_checkable

TALE = "The fox number {i} went to the old mill. She saw a lamp there, and it was lit.\n"


def _lines(path: Path, records: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    text = "".join(TALE.format(i=i) for i in range(60))
    _lines(
        tmp_path / "fairytale_sections_train.jsonl",
        [{"tale": f"tale-{n}", "section": 1, "text": f"Tale {n}. {text}"} for n in range(60)],
    )
    question = {"sections": "1", "question": "What was lit?", "answer": "a lamp"}
    _lines(
        tmp_path / "fairytale_questions_train.jsonl",
        [{"tale": f"tale-{n}", **question} for n in range(60)]
        + [{"tale": "tale-1", **question, "answer": "the stars"}],
    )
    (tmp_path / "childrens_classics.txt").write_text(
        f"<<<BOOK A/B>>>\n# Title: B\n\n## THE FOX\n\n{text}\n## Chapter 1\n\n{text}"
    )
    return tmp_path


def test_passages_are_split_by_tale(data: Path) -> None:
    train, held_out = tale_passages(data, "train"), tale_passages(data, "eval")
    assert len(train) > len(held_out) > 0
    names = [
        {task.prompt.split("Tale ")[1].split(".")[0] for task in part if "Tale " in task.prompt}
        for part in (train, held_out)
    ]
    assert not names[0] & names[1]
    for task in train + held_out:
        assert 1500 <= len(task.answer) <= 3100
        assert task.family == "natural"
        assert not is_checkable(task)


def test_questions_keep_the_sentences_around_the_answer(data: Path) -> None:
    tasks = fairytale_questions(data, "train") + fairytale_questions(data, "eval")
    assert len(tasks) == 60
    assert all(len(task.prompt) < 600 and "a lamp" in task.prompt for task in tasks)
    assert all("lamp" in task.answer and not is_checkable(task) for task in tasks)


def test_sentences_and_passages_lose_no_words() -> None:
    text = "".join(TALE.format(i=i) for i in range(200))
    assert " ".join(sentences(text)).split() == text.split()
    actual = passages(clean(text))
    joined = " ".join(opening + " " + body for opening, body in actual).split()
    assert joined == text.split()[: len(joined)]
