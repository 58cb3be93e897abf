"""Commands asked for what cannot be written or makes no sense: told at once, in one sentence, with
nothing measured and nothing lost."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mars_runtime.__main__ import main
from mars_runtime.lab.evaluation.store import CellStore
from mars_runtime.outputs import OutputError, check_file, only_writer, write_text

MEASURING = {
    "benchmark": "mars_runtime.lab.benchmark.run.perform",
    "profile": "mars_runtime.model.load.load_checkpoint",
    "evaluate": "mars_runtime.model.load.load_checkpoint",
    "train": "mars_runtime.lab.training.train.Trainer",
    "distill": "mars_runtime.lab.training.distill.run.Distiller",
}


@pytest.fixture(autouse=True)
def _nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*given: object, **more: object) -> None:
        raise AssertionError("it began to work before it looked where to write")

    for name in set(MEASURING.values()):
        monkeypatch.setattr(name, measured)


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence that a command answers with, exit code 2."""
    capsys.readouterr()
    try:
        code = main(words)
    except SystemExit as end:  # the parser's own
        code = int(str(end.code))
    told = capsys.readouterr()
    assert code == 2
    assert told.out == ""
    (sentence,) = told.err.splitlines()
    assert sentence.endswith(".")
    return sentence


def words_for(command: str, out: str, folder: Path) -> list[str]:
    more = {"train": ["--stage", "ar"], "distill": ["--base", str(folder)]}
    data = ["--data", str(folder)] if command in more else []
    return [command, "--out", out, *more.get(command, []), *data]


@pytest.mark.parametrize("command", MEASURING)
def test_a_place_that_cannot_be_written(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("something")
    for out in ("/proc/nowhere/x", str(tmp_path / "file" / "x")):
        assert "can be written" in said(words_for(command, out, tmp_path), capsys)
    assert (tmp_path / "file").read_text() == "something"


@pytest.mark.parametrize("command", ["benchmark", "evaluate"])
def test_a_folder_in_place_of_a_file(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "is a folder" in said([command, "--out", str(tmp_path)], capsys)


@pytest.mark.parametrize("command", MEASURING)
def test_an_empty_out(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "name a file or a folder" in said(words_for(command, "", tmp_path), capsys)


@pytest.mark.parametrize("command", MEASURING)
def test_threads_below_one(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for threads in ("-5", "0"):
        words = [*words_for(command, str(tmp_path / "out"), tmp_path), "--threads", threads]
        assert f"--threads must be at least 1, got {threads}." in said(words, capsys)


@pytest.mark.parametrize(
    "name", ["resume.pt", "config.json", "model.safetensors", "adapter-1-of-1.safetensors.xz"]
)
def test_training_does_not_overwrite_a_run(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("hours of work")
    assert "continue it with --resume" in said(words_for("train", str(out), tmp_path), capsys)
    assert (out / name).read_text() == "hours of work"


@pytest.mark.parametrize("command", ["evaluate", "train"])
def test_a_second_writer_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    held = out if command == "train" else tmp_path / "out.cells.jsonl"
    held.mkdir() if command == "train" else held.touch()
    with only_writer(held):
        assert "Another run is writing" in said(words_for(command, str(out), tmp_path), capsys)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    write_text(path, "first, 1.5 × ü")
    assert path.read_bytes() == "first, 1.5 × ü".encode()
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "half \ud800")
    assert path.read_bytes() == "first, 1.5 × ü".encode()
    (tmp_path / "full").mkdir()
    with pytest.raises(OutputError, match=r"\.$"):
        write_text(tmp_path / "full", "x")


def test_a_check_leaves_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    path.write_text("old")
    check_file(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


GOOD = {"num_tokens": 3, "num_forwards": 2, "is_ended": True, "is_right": None, "output_id": "a",
        "taken": [2, 1], "offered": [4, 4]}  # fmt: skip
BROKEN = [
    b"\x00\xff\xfe",
    b"[" * 100_000,
    b"[]",
    b"7",
    b'{"key": ["a"], "outcomes": []}',
    b'{"key": "k", "outcomes": 5}',
    b'{"key": "k", "outcomes": ["text"]}',
    *(
        json.dumps({"key": "k", "outcomes": [{**GOOD, "text": "", **change}]}).encode()
        for change in (
            {"num_tokens": "3"},
            {"num_forwards": 0},
            {"num_tokens": True},
            {"is_right": "yes"},
            {"text": None},
            {"later": 1},
        )
    ),
]


@pytest.mark.parametrize("line", BROKEN, ids=range(len(BROKEN)))
def test_a_broken_line_of_finished_cells_is_passed_over(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    good = json.dumps({"key": "good", "outcomes": [{**GOOD, "text": "x"}]}).encode()
    path.write_bytes(b"\n".join([line, good]))
    store = CellStore(path)
    assert store.get("good") is not None
    assert store.get("k") is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this platform")
@pytest.mark.parametrize("command", ["evaluate", "benchmark"])
def test_what_is_no_regular_file_stays_what_it_is(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "no regular file" in said([command, "--out", str(pipe)], capsys)
    with pytest.raises(OutputError, match="no regular file"):
        write_text(pipe, "text")
    assert pipe.is_fifo()


def test_a_link_stays_a_link_to_what_is_written(tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "real.json")
    for text in ("first", "second"):
        write_text(link, text)
        assert (tmp_path / "real.json").read_text(encoding="utf-8") == text
    assert link.is_symlink()


def test_a_circle_of_links_is_told(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.symlink_to(other)
    other.symlink_to(one)
    with pytest.raises(OutputError):
        write_text(one, "text")


@pytest.mark.parametrize("kept", ['{"kind": "evaluation", "cells": [', "notes of mine", '{"a": 1}'])
def test_evaluate_replaces_nothing_that_it_did_not_write(
    kept: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    out.write_text(kept, encoding="utf-8")
    assert "holds no finished evaluation" in said(["evaluate", "--out", str(out)], capsys)
    assert out.read_text(encoding="utf-8") == kept


COMMANDS_THAT_PRINT = {
    "generate": ["generate", "--checkpoint", "mars-tiny", "--prompt", "Count from 1 to 3."],
    "generate --json": [
        "generate",
        "--json",
        "--checkpoint",
        "mars-tiny",
        "--prompt",
        "Count to 3.",
    ],
    "fetch": ["fetch", "mars-tiny"],
}


def all_but(*slow: str) -> pytest.MarkDecorator:
    """Each of them; those named under ``slow`` alone."""
    marks = dict.fromkeys(slow, pytest.mark.slow)
    each = [
        pytest.param(words, id=name, marks=marks.get(name, ()))
        for name, words in COMMANDS_THAT_PRINT.items()
    ]
    return pytest.mark.parametrize("words", each)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device on this platform")
@all_but("generate")
def test_a_full_output_is_one_sentence(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mars_runtime", *words], stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 1
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("The output can't be written")


@pytest.mark.skipif(os.name != "posix", reason="a shell closes the output")
@all_but("generate", "generate --json")
def test_a_closed_output_is_no_fault(words: list[str]) -> None:
    command = " ".join(map(shlex.quote, [sys.executable, "-m", "mars_runtime", *words]))
    done = subprocess.run(f"{command} >&-", shell=True, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("command", ["train", "distill", "ablate"])
def test_a_folder_without_the_texts_is_one_sentence(
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    words = [command, "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    words += ["--recipe", "cpu", "--stage", "ar"] if command == "train" else []
    words += ["--only", "ar", "--seeds", "1"] if command == "ablate" else []
    assert main(words) == 1
    for line in capsys.readouterr().err.splitlines():
        assert "fairytale_sections_train.jsonl can't be used (No such file" in line


def buffered() -> dict[str, str]:
    """The environment of a user, whose Python writes what it has kept when it ends."""
    return {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device on this platform")
@pytest.mark.parametrize("words", [["--help"], ["fetch", "--help"], ["fetch", "mars-tiny"]])
def test_what_is_only_written_at_the_end_meets_a_full_output_too(words: list[str]) -> None:
    command = [sys.executable, "-m", "mars_runtime", *words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=buffered())
    assert done.returncode == 1
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("The output can't be written")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device on this platform")
@pytest.mark.parametrize(
    ("words", "code"), [(["fetch", "--nonsense"], 2), (["fetch", "mars-tiny"], 1), (["--help"], 1)]
)
def test_a_full_standard_error_changes_no_exit_code(words: list[str], code: int) -> None:
    command = [sys.executable, "-m", "mars_runtime", *words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=full, env=buffered())
    assert done.returncode == code
