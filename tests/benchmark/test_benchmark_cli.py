"""The command from arguments to file, with peers that only say how long they took."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mars_runtime.benchmark import cli
from mars_runtime.benchmark.paired import Peer, Timing


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers(dest="command"))
    return parser.parse_args(["benchmark", *given])


@pytest.fixture
def scripted_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers takes 2 s, AR 1 s, MARS 0.5 s for four tokens, whatever the prompt."""
    checkpoint = SimpleNamespace(
        model=SimpleNamespace(dtype=torch.float32, device=torch.device("cpu")),
        tokenizer=SimpleNamespace(encode_prompt=lambda text: [1, 2, 3]),
    )

    def peers(found: object, ways: dict[str, object], args: argparse.Namespace) -> list[Peer]:
        seconds = [2.0, 1.0, 0.5, 0.5]
        return [
            Peer(name, 1, lambda ids, s=taken: Timing((7, 8, 9, 0), 1, 4, s / 4, s))
            for name, taken in zip([cli.HUGGING_FACE, *ways], seconds, strict=True)
        ]

    monkeypatch.setattr(cli, "_load", lambda args: checkpoint)
    monkeypatch.setattr(cli, "make_peers", peers)


def test_a_run_prints_where_it_ran_and_keeps_ratios(
    scripted_peers: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "deep" / "benchmark.json"
    args = arguments(
        *("--families", "symbolic", "natural", "--prompts", "2", "--rounds", "1"),
        *("--out", str(out), "--markdown"),
    )
    threads = torch.get_num_threads()
    try:
        assert cli.run(args) == 0
    finally:
        torch.set_num_threads(threads)
    printed = capsys.readouterr().out
    assert "float32" in printed
    assert "torch " in printed
    assert "| text | AR / transformers | MARS τ=0.95 B=4 / AR |" in printed
    average = "| average over families | 2.00 [2.00, 2.00] | 2.00 [2.00, 2.00] |"
    assert printed.count(average) == 2
    found = json.loads(out.read_text())
    assert found["dtype"] == "float32"
    assert isinstance(found["is_busy"], bool)
    assert {one["peer"] for one in found["ratios"]} == set(found["best_threads"]) - {
        cli.HUGGING_FACE
    }
    assert len(found["samples"]) == 4 * 4


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--tau", "2"], "τ must be a number"),
        (["--rounds", "0"], "at least 1"),
        (["--threads", "0"], "at least 1"),
        (["--families", "poetry"], "no family"),
    ],
)
def test_wrong_arguments_get_one_sentence(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
):
    assert cli.run(arguments(*given)) == 2
    assert said in capsys.readouterr().out
