"""What a growing text costs: figures by hand, and the command on a bundled checkpoint."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
import torch

from mars_runtime.lab.benchmark import length
from mars_runtime.lab.benchmark.length import Forward, stretches_of
from mars_runtime.provenance import shipped


def run(*given: str) -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command")
    length.add_parser(commands)
    threads = torch.get_num_threads()
    try:
        return length.run(parser.parse_args(given))
    finally:
        torch.set_num_threads(threads)


def test_figures_of_a_stretch_by_hand() -> None:
    actual = [Forward(10, 3, 0.03), Forward(13, 1, 0.01), Forward(120, 2, 0.05)]
    early, late = stretches_of("AR", actual, [100, 200, 300])
    assert (early.start, early.end, early.num_tokens) == (0, 100, 4)
    assert (early.tpf, early.ms_per_token) == (2.0, pytest.approx(10.0))
    assert (late.start, late.end, late.num_tokens) == (100, 200, 2)
    assert length.table_of("x", [early]).lines == (("AR", "0 to 100", "4", "2.00", "10.0"),)


@pytest.mark.slow
def test_the_command_fills_the_text_and_says_where(tmp_path: Path) -> None:
    out = tmp_path / "length.json"
    few = ["--ends", "100", "300", "--max-new-tokens", "24", "--out", str(out)]
    assert run("length", "--checkpoint", "mars-tiny", *few) == 0
    document = json.loads(out.read_text(encoding="utf-8"))
    assert document["fingerprint"] == shipped("mars-tiny")
    stretches = document["stretches"]
    assert {(stretch["way"], stretch["end"]) for stretch in stretches} >= {("AR", 100), ("AR", 300)}
    assert all(stretch["tpf"] == 1.0 for stretch in stretches if stretch["way"] == "AR")
    assert all(stretch["tpf"] >= 1.0 and stretch["ms_per_token"] > 0 for stretch in stretches)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--ends", "0"], "--ends must be at least 1"),
        (["--checkpoint", "mars-tiny", "--ends", "20"], "No answer fits"),
    ],
)
def test_wrong_arguments_of_length_get_one_sentence(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run("length", *given, "--out", str(tmp_path / "length.json")) == 2
    assert said in capsys.readouterr().err
