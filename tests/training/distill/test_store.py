"""The file of answers survives a kill in the middle of a line."""

from __future__ import annotations

from pathlib import Path

from mars_runtime.lab.training.distill import store
from mars_runtime.lab.training.distill.cli import parse_part

RECORD = store.Record("k", "chat", False, (1, 2), (3, 4), "eos")


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    store.Answers(tmp_path / "answers-1-of-1.jsonl").append([RECORD, RECORD])
    assert list(store.read(tmp_path)) == [RECORD, RECORD]


def test_half_a_line_is_passed_over_and_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "answers-1-of-1.jsonl"
    store.Answers(path).append([RECORD])
    with path.open("a") as file:
        file.write('{"key": "half')
    assert list(store.read(tmp_path)) == [RECORD]
    store.Answers(path).append([RECORD])
    assert list(store.read(tmp_path)) == [RECORD, RECORD]


def test_keys_name_prompts() -> None:
    assert store.key_of([1, 2]) == store.key_of((1, 2)) != store.key_of([12])


def test_parts_are_one_of_several() -> None:
    assert parse_part("2/3") == (2, 3)
    assert [parse_part(text) for text in ("0/2", "3/2", "2", "a/b", "")] == [None] * 5
