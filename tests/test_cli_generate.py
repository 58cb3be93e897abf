"""The command ``generate``: text and figures, the trace as JSON, user errors in one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from mars_runtime.__main__ import COMMANDS, main
from mars_runtime.display import terminal
from mars_runtime.runs import folds
from mars_runtime.runs.events import End, Event, Prefill, Proposal, RowStep, Step
from mars_runtime.runs.trace import Header, read_trace
from mars_runtime.settings import EXACTNESS, RECOMMENDED, DecodeSettings
from mars_runtime.text import Tokenizer
from tests.tiny_checkpoint import write_checkpoint

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_checkpoint(tmp_path_factory.mktemp("random")))


def generate(*arguments: str) -> int:
    try:
        return main(["generate", *arguments])
    except SystemExit as stopped:  # argparse
        return int(stopped.code or 0)


def test_json_is_a_trace(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    few = ("--max-new-tokens", "24", "--tau", "0.01", "--block-size", "4", "--json")
    assert generate("--checkpoint", folder, "--prompt", "Count 12 ☃", *few) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    trace = read_trace(lines)
    header = trace.header
    assert (header.prompt, header.dtype) == ("Count 12 ☃", "float32")
    assert header.hardware
    assert header.versions["torch"]
    assert isinstance(trace.events[0], Prefill)
    assert isinstance(trace.events[-1], End)
    assert 1 <= folds.num_tokens(trace.events) <= 24
    assert folds.decode_seconds(trace.events) > 0
    text = folds.text(trace)
    assert generate("--checkpoint", folder, "--prompt", "Count 12 ☃", *few[:-1]) == 0
    out = capsys.readouterr().out
    assert out.startswith(text)
    assert "\x1b[" not in out
    assert all(word in out[len(text) :] for word in ("TPF ", "torch"))


def test_a_system_prompt_is_in_force_and_in_the_trace(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--checkpoint", folder, "--prompt", "Hello", "--max-new-tokens", "2", "--json")
    assert generate(*arguments, "--system", "Be brief.") == 0
    header = read_trace(capsys.readouterr().out.splitlines()).header
    assert header.system == "Be brief."
    assert b"Be brief." in b"".join(map(Tokenizer.from_dir(folder).token_bytes, header.prompt_ids))


def test_it_begins_with_what_the_page_and_the_endpoints_begin_with(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--checkpoint", folder, "--prompt", "Hello", "--max-new-tokens", "2", "--json")
    short = replace(RECOMMENDED, max_new_tokens=2)
    for flags, settings in (
        ((), short),
        (("--no-lossless", "--tau", "0.9"), replace(short, lossless=False, tau=0.9)),
        (("--method", "jacobi"), DecodeSettings("jacobi", max_new_tokens=2)),
    ):
        assert generate(*arguments, *flags) == 0
        assert read_trace(capsys.readouterr().out.splitlines()).header.settings == settings


def test_a_mistake_is_one_sentence_and_exit_code_2(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (
        *(("--tau", "bold"), ("--prompt", " \n"), ("--prompt", "long " * 400)),
        *(("--system", "x" * 5000), ("--checkpoint", "no-such"), ("--nonsense",)),
    ):
        assert generate("--checkpoint", folder, "--prompt", "Hello", *arguments) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert err.endswith(".\n")


def test_a_run_that_is_cut_short_is_exit_code_1(
    folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mars_runtime.commands.generate.DEADLINE", 1e-6)
    assert generate("--checkpoint", folder, "--prompt", "Hello", "--json") == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["reason"] == "deadline"


def test_unknown_and_missing_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["dance"]):
        with pytest.raises(SystemExit, match="2"):
            main(arguments)
        assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    out = capsys.readouterr().out
    assert all(command in out for command in COMMANDS)


def test_a_reader_that_goes_away_is_no_traceback(folder: str) -> None:
    """As with ``| head -1``; in a narrow locale, too."""
    command = [sys.executable, "-m", "mars_runtime", "generate", "--checkpoint", folder]
    command += ["--dtype", "fp32", "--prompt", "Hello", "--max-new-tokens", "300", "--json"]
    environment, pipe = {**os.environ, "PYTHONIOENCODING": "ascii"}, subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert json.loads(running.stdout.readline())["type"] == "header"
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(60) in (0, 1)


def step_of(start: int, tokens: tuple[int, ...]) -> Step:
    proposals = tuple(Proposal(token, 1.0, ()) for token in tokens)
    row = RowStep(0, start, 0, 1, 4, proposals, tokens, 0, DecodeSettings(), "block")
    return Step((row,), 0.01)


EVENTS: list[Event] = [Prefill(1, 0.005), step_of(0, (97, 98, 99)), step_of(3, (0xE2,))]
EVENTS += [step_of(4, (0x98, 0x83)), step_of(6, (27,)), End("limit")]


def shown(console: Console) -> str:
    view = terminal.TextView(console, lambda token: bytes([token]))
    view.show(EVENTS[:3])
    view.show(EVENTS[3:])
    view.finish()
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_tokens_of_a_forward_share_a_background_in_a_terminal() -> None:
    options: dict[str, Any] = {"force_terminal": True, "_environ": {}}
    out = shown(Console(file=StringIO(), color_system="truecolor", **options))
    before, _, after = out.partition("abc")
    assert "48;2;" in before.rpartition("\x1b[")[2]
    assert after.startswith("\x1b[0m")
    assert "☃" in out
    assert "\N{REPLACEMENT CHARACTER}" in out  # for the control character
    assert "48;" not in shown(Console(file=StringIO(), no_color=True, **options))
    assert shown(Console(file=StringIO(), _environ={})) == "abc☃\x1b\n"


def test_figures() -> None:
    line = terminal.figures(EVENTS)
    assert line == (
        "TPF 1.75 · 175 tokens/s · TTFT 15.0 ms · 10.00 ms per forward pass · "
        "7 tokens in 4 forward passes"
    )
    assert terminal.figures([]).startswith("TPF 0.00 · 0 tokens/s · TTFT -")
    for is_bitwise in (False, True):
        header = Header("c", "p", (), DecodeSettings(lossless=True), is_bitwise=is_bitwise)
        assert (EXACTNESS[False] in terminal.circumstances(header)) != is_bitwise
