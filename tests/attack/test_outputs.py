"""Outputs that cannot be written are refused before anything is measured, and nothing is lost."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from mars_runtime.__main__ import main
from mars_runtime.files.outputs import OutputError, only_writer, write_text
from mars_runtime.lab.evaluation.measure import LINE
from tests.attack.attacked import printed

MEASURING = {
    "benchmark": "mars_runtime.lab.benchmark.run.perform",
    "evaluate": "mars_runtime.model.load.load_checkpoint",
    "train": "mars_runtime.lab.training.train.Trainer",
    "distill": "mars_runtime.lab.training.distill.run.Distiller",
}
Said = Callable[[list[str]], str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Said:
    """The one sentence that a command answers with, exit code 2, before it measures anything."""

    def measured(*given: object, **more: object) -> None:
        raise AssertionError("it began to work before it looked where to write")

    names = set(MEASURING.values())
    for name in names:  # a module that was imported later would keep the replaced function
        pkgutil.resolve_name(name)
    for name in names:
        monkeypatch.setattr(name, measured)

    def run(words: list[str]) -> str:
        capsys.readouterr()
        try:
            code = main(words)
        except SystemExit as end:  # the parser's own
            code = int(str(end.code))
        output = capsys.readouterr()
        assert (code, output.out) == (2, "")
        (sentence,) = output.err.splitlines()
        assert sentence.endswith(".")
        return sentence

    return run


def words_for(command: str, out: str, folder: Path) -> list[str]:
    more = {"train": ["--stage", "ar"], "distill": ["--base", str(folder)]}
    data = ["--data", str(folder)] if command in more else []
    return [command, "--out", out, *more.get(command, []), *data]


@pytest.mark.parametrize("command", MEASURING)
def test_what_cannot_be_written_is_refused(command: str, tmp_path: Path, said: Said) -> None:
    file = tmp_path / "file"
    file.write_text("something")
    for out in ("/proc/nowhere/x", str(file / "x")):
        assert "cannot be written" in said(words_for(command, out, tmp_path))
    assert file.read_text() == "something"
    assert "name a file or a folder" in said(words_for(command, "", tmp_path))


def test_a_folder_or_a_pipe_in_place_of_a_file(tmp_path: Path, said: Said) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for command in ("benchmark", "evaluate"):
        assert "is a folder" in said([command, "--out", str(tmp_path)])
        assert "not a regular file" in said([command, "--out", str(pipe)])
    with pytest.raises(OutputError, match="not a regular file"):
        write_text(pipe, "text")
    assert pipe.is_fifo()


def test_nothing_is_overwritten_that_took_hours(tmp_path: Path, said: Said) -> None:
    for name in ("resume.pt", "model.safetensors", "adapter-1-of-1.safetensors.xz"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text("hours of work")
        assert "Add --resume to continue" in said(words_for("train", str(folder), tmp_path))
        assert (folder / name).read_text() == "hours of work"
    out = tmp_path / "out.json"
    for text in ('{"kind": "evaluation", "cells": [', '{"a": 1}'):
        out.write_text(text)
        assert "is not an evaluation" in said(["evaluate", "--out", str(out)])
        assert out.read_text() == text


@pytest.mark.parametrize("command", ["evaluate", "train"])
def test_a_second_writer_is_refused(command: str, tmp_path: Path, said: Said) -> None:
    out = tmp_path / "out"
    held = out if command == "train" else tmp_path / "out.cells.jsonl"
    held.mkdir() if command == "train" else held.touch()
    with only_writer(held):
        assert "Another run is writing" in said(words_for(command, str(out), tmp_path))


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """A link stays a link to what is written."""
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(real)
    write_text(link, "first")
    with pytest.raises(UnicodeEncodeError):
        write_text(link, "half \ud800")
    assert (real.read_text(), link.is_symlink()) == ("first", True)
    assert {*tmp_path.iterdir()} == {real, link}
    real.unlink()
    real.symlink_to(link)  # a circle
    for path in (tmp_path, link):
        with pytest.raises(OutputError, match=r"\.$"):
            write_text(path, "x")


FULL = """
import resource, sys
from pathlib import Path
from mars_runtime.files.outputs import OutputError, write_text
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    write_text(Path(sys.argv[1]) / "a.json", "text")
except (OSError, OutputError) as error:
    print("refused:", error)
"""
"""A process that can create files but not write to them, as on a full disk."""


def test_nothing_begun_is_left_on_a_full_disk(tmp_path: Path) -> None:
    assert printed(FULL, tmp_path).startswith("refused:")
    assert list(tmp_path.iterdir()) == []


GOOD = {"tokens": [3, 4, 0], "taken": [2, 1], "is_ended": True, "is_looped": False}
CHANGES = ({"tokens": [3, "4", 0]}, {"tokens": [True, 4, 0]}, {"taken": [2]}, {"is_ended": None})


def test_damaged_lines_of_stored_outputs_are_told_from_good_ones() -> None:
    lines = [json.dumps({"key": "k", "outputs": [GOOD | change]}) for change in ({}, *CHANGES)]
    assert LINE.validate_json(lines[0], strict=True).outputs
    for line in (b"\x00\xff", b"[" * 100_000, b"[]", b'{"key": ["a"], "outputs": []}', *lines[1:]):
        with pytest.raises(ValueError, match=r"validation error"):
            LINE.validate_json(line, strict=True)


def ended(words: list[str], out: IO[str], err: IO[str] | int) -> tuple[int, bytes]:
    """Return exit code and errors of a command in a user's environment, in which Python flushes its
    buffers at exit.
    """
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "mars_runtime", *words]
    done = subprocess.run(command, stdout=out, stderr=err, env=environment)
    return done.returncode, done.stderr


GENERATE = ["generate", "--checkpoint", "mars-tiny", "--prompt", "Count from 1 to 3."]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device on this platform")
@pytest.mark.parametrize("words", [["--help"], pytest.param(GENERATE, marks=pytest.mark.slow)])
def test_a_full_output_is_one_sentence(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        code, message = ended(words, full, subprocess.PIPE)
        assert code == 1
        (line,) = message.decode().splitlines()
        assert line.startswith("The output can't be written")
        assert ended(words, full, full)[0] == 1  # regardless of the errors


@pytest.mark.parametrize(
    "words", [["--help"], pytest.param([*GENERATE, "--json"], marks=pytest.mark.slow)]
)
def test_a_closed_output_is_no_fault(words: list[str]) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "mars_runtime", *words]
    done = subprocess.run(command, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")
