"""What kept turns save: the table on turns by hand, and the command on a bundled checkpoint."""

from __future__ import annotations

import argparse

import pytest
import torch

from mars_runtime.lab.profiling import turns
from mars_runtime.lab.profiling.turns import TimedTurn, table_of
from mars_runtime.model.load import load_checkpoint
from mars_runtime.model.native.model import NativeModel


def run(*given: str) -> int:
    parser = argparse.ArgumentParser()
    turns.add_parser(parser.add_subparsers(dest="command"))
    threads = torch.get_num_threads()
    try:
        return turns.run(parser.parse_args(["turns", *given]))
    finally:
        torch.set_num_threads(threads)


def test_a_line_of_the_table_is_a_turn_of_all_conversations() -> None:
    first, second = TimedTurn(40, 0, 0.4, 0.4, True), TimedTurn(140, 96, 0.1, 0.5, True)
    other = TimedTurn(160, 128, 0.2, 0.5, False)
    table = table_of("x", [[first, second], [first, other]])
    assert table.lines == (
        ("1", "40", "40", "400.0", "400.0", "1.00", "2 of 2"),
        ("2", "150", "38", "150.0", "500.0", "0.30", "1 of 2"),
    )


def test_a_conversation_computes_less_and_says_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    checkpoint = load_checkpoint("mars-tiny", device="cpu", dtype="int8")
    if not isinstance(checkpoint.model, NativeModel):
        pytest.skip("this machine has no C++ compiler")
    few = ["--conversations", "1", "--turns", "2", "--max-new-tokens", "40"]
    assert run("--checkpoint", "mars-tiny", "--dtype", "int8", *few) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    first, second = (line for line in lines if line and line[0] in ("1", "2"))
    assert first[1] == first[2]
    assert int(second[2]) <= int(second[1]) - 32
    assert first[-3:] == second[-3:] == ["1", "of", "1"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--turns", "0"], "at least 1 turn"),
        (["--conversations", "9"], "1 to 5 conversations"),
        (["--checkpoint", "mars-tiny"], "choose --dtype int8"),
        (["--max-new-tokens", "0"], "tokens to generate must be"),
    ],
)
def test_wrong_arguments_get_one_sentence(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*given) == 2
    assert said in capsys.readouterr().err
