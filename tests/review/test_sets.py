"""Sets: the command that makes them and their reader."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
import sample_traces as samples

from mars_runtime.__main__ import main
from mars_runtime.files.paths import ASSETS
from mars_runtime.review.prompts import Item
from mars_runtime.review.sets import MAX_LINE, SetError, answer_of, read_set
from mars_runtime.runs.trace import read_trace
from mars_runtime.tasks import Task, check
from tests.review.test_review_prompts import DEEP, is_sentence

METHODS = ("--methods", "lossless,tau=0.3,B=4", "tau=0.3,B=4", "ar")


def make(folder: Path, prompts: str, *more: str) -> tuple[int, Path]:
    (folder / "prompts.txt").write_text(prompts, "utf-8")
    out = folder / "set.jsonl"
    options = ("--checkpoint", "mars-tiny", "--max-new-tokens", "12", "--out", str(out))
    return main(["review", str(folder / "prompts.txt"), *(more or METHODS), *options]), out


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


def test_an_interrupted_command_continues(tmp_path: Path) -> None:
    code, out = make(tmp_path, "Reverse: abc\nAdd 12 and 30\n")
    whole = lines_of(out)
    assert (code, len(whole)) == (0, 3)
    out.write_bytes(out.read_bytes()[:-100])
    assert make(tmp_path, "Reverse: abc\nAdd 12 and 30\nReverse: xyz\n")[0] == 0
    after = lines_of(out)
    assert [line.get("id") for line in after[1:]] == ["1", "2", "3"]
    assert after[:2] == whole[:2]
    texts = [[answer["text"] for answer in line["answers"]] for line in (whole[2], after[2])]
    assert texts[0] == texts[1]
    assert make(tmp_path, "Reverse: abc\nAdd 12 and 30\nReverse: xyz\n")[0] == 0
    assert lines_of(out) == after


def test_an_answer_has_its_trace_and_checks(tmp_path: Path) -> None:
    _, out = make(tmp_path, "Reverse: abc\n")
    _, line = lines_of(out)
    lossless, _, plain = line["answers"]
    assert lossless["text"] == plain["text"]
    assert (lossless["is_same"], plain["is_same"], lossless["unlike_ar"]) == (True, True, [])
    assert plain["passes"] == [1] * len(plain["passes"])
    trace = read_trace(map(json.dumps, lossless["trace"]))
    assert trace.header.settings.tau == 0.3
    assert sum(lossless["passes"]) == sum(len(e.rows[0].accepted) for e in trace.events[1:-1])


def test_an_answer_that_was_cut_needs_a_marked_result() -> None:
    task = Task("symbolic", "weekday", "", "", json.dumps({"result": "Monday"}))
    verdicts = [
        answer_of(samples.run(samples.Script("Monday", end=end)), Item("1", "", task=task), None)
        for end in ("eos", "limit")
    ]
    assert [verdict["is_right"] for verdict in verdicts] == [True, False]


def test_other_methods_and_prompts_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, "Reverse: abc\n")
    capsys.readouterr()
    assert make(tmp_path, "Reverse: abc\n", "--methods", "ar", "tau=0.5,B=4")[0] == 2
    assert is_sentence(capsys.readouterr().err.strip())
    assert make(tmp_path, "Another prompt\n")[0] == 2
    assert is_sentence(capsys.readouterr().err.strip())


def test_the_study_is_a_set_with_mistakes_in_passes_of_several_tokens(tmp_path: Path) -> None:
    path = tmp_path / "study.jsonl"
    path.write_bytes(lzma.decompress((ASSETS / "review" / "study.jsonl.xz").read_bytes()))
    study, lines = read_set(path), lines_of(path)[1:]
    first, second, plain = (method.settings for method in study.header.methods if method.settings)
    assert (first.lossless, second.lossless, plain.method) == (True, False, "ar")
    assert (first.tau, first.block_size, first.lookup) == (0.3, 4, False)
    assert len(study.items) == 100
    assert all(line["answers"][0]["is_same"] for line in lines)
    assert sum(bool(line["answers"][1]["unlike_ar"]) for line in lines) >= 50
    checked = [(line, Task(**line["task"])) for line in lines if "task" in line]
    assert len(checked) == 20
    for line, task in checked:
        for answer in line["answers"]:
            is_cut = answer["trace"][-1]["reason"] != "eos"
            assert answer["is_right"] == check(task, answer["text"], is_cut), line["id"]


HEADER: dict[str, Any] = {
    "type": "set", "version": 1, "id": "a", "name": "A", "made": {},
    "methods": [{"name": "ar", "checkpoint": "x", "settings": None}],
}  # fmt: skip
ITEM: dict[str, Any] = {
    "type": "item", "id": "1", "prompt": "Hi", "turns": [],
    "answers": [{"text": "Yes", "passes": [1], "unlike_ar": [], "is_same": True, "trace": []}],
}  # fmt: skip
VOTE: dict[str, Any] = {"type": "vote", "item": "1", "vote": "ar", "note": "", "time": ""}
GOOD = (HEADER, ITEM, VOTE)
PLACES: list[tuple[int, tuple[str | int, ...]]] = [
    *((0, (key,)) for key in HEADER), (0, ("methods", 0)),
    *((0, ("methods", 0, key)) for key in ("name", "checkpoint", "settings")),
    *((1, (key,)) for key in ITEM), (1, ("answers", 0)),
    *((1, ("answers", 0, key)) for key in ITEM["answers"][0]),
    *((2, (key,)) for key in ("type", "item", "note")),
]  # fmt: skip
VALUES: dict[str, Any] = {
    "null": None, "true": True, "number": -1, "text": "x", "list": [1], "object": {"a": 1},
    "lists": [[1]], "surrogate": "\ud800", "long": "x" * 300_000,
}  # fmt: skip
RAW = {
    "html": b"<html></html>", "nul": b"\0\0", "cp1252": b'{"type": "item", "prompt": "\xe4"}',
    "utf-16": json.dumps(ITEM).encode("utf-16"), "xlsx": b"PK\x03\x04", "long": b"x" * 20_000_000,
    "deep list": DEEP.encode(), "deep": b'{"a":' * 10_000, "number": b"1", "null": b"null",
    "cut": json.dumps(ITEM).encode()[:-9], "list": b"[]", "text": b'"a"',
    "NaN": b"NaN", "{}": b"{}", "twice": json.dumps(ITEM).encode(),
}  # fmt: skip


def changed(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    """Return a copy of JSON with another value at a path."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


def write(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


@pytest.mark.parametrize("kind", RAW)
def test_a_wrong_line_is_named(tmp_path: Path, kind: str) -> None:
    lines = [json.dumps(line).encode() for line in GOOD]
    for at in range(4):
        if kind == "twice" and at == 1:
            continue  # the second of two equal lines is the wrong one
        path = write(tmp_path / "set.jsonl", [*lines[:at], RAW[kind], *lines[at:]])
        with pytest.raises(SetError, match=f"^Line {at + 1} ") as refused:
            read_set(path)
        assert is_sentence(str(refused.value))


@pytest.mark.parametrize(("at", "path"), PLACES, ids=str)
def test_a_wrong_value_is_a_sentence_or_harmless(
    tmp_path: Path, at: int, path: tuple[str | int, ...]
) -> None:
    for name, value in VALUES.items():
        lines: list[Any] = list(GOOD)
        lines[at] = changed(lines[at], path, value)
        file = write(tmp_path / "set.jsonl", [json.dumps(line).encode() for line in lines])
        try:
            said = f"{len(read_set(file).items)} prompts are read."
        except SetError as error:
            said = str(error)
        assert is_sentence(said), name


@pytest.mark.parametrize("content", [b"", b"\n", b"x" * (MAX_LINE + 1), b"{"])
def test_a_file_without_a_header_is_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "set.jsonl"
    path.write_bytes(content)
    with pytest.raises(SetError) as refused:
        read_set(path)
    assert is_sentence(str(refused.value))
    with pytest.raises(SetError):
        read_set(tmp_path)
