"""The command from arguments to its file, on a checkpoint of toy size."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from scripted_answers import QUESTIONS, answer

from mars_runtime.lab.benchmark import cli, run
from mars_runtime.lab.benchmark.paired import TimedAnswer
from mars_runtime.lab.benchmark.run import warmed_up


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers(dest="command"))
    return parser.parse_args(["benchmark", *given])


def faster_with(threads: int):
    """Return a function that answers faster on one number of threads, but not at once."""
    delays = [9.0] * 3

    def ask(prompt: Sequence[int]) -> TimedAnswer:
        delay = delays.pop() if delays else 0.0
        return answer(delay + (1.0 if torch.get_num_threads() == threads else 3.0))

    return ask


def failing(prompt: Sequence[int]) -> TimedAnswer:
    raise RuntimeError("no such cache")


def test_a_peer_runs_on_the_threads_that_suit_it_and_another_engine_may_fail():
    asks = {"a": faster_with(1), "b": faster_with(2), "llama.cpp": failing}
    peers, left_out = warmed_up(asks, {"a", "b"}, QUESTIONS, [1, 2])
    assert [(peer.name, peer.threads) for peer in peers] == [("a", 1), ("b", 2)]
    assert left_out == ["llama.cpp failed in the warm-up (no such cache)"]
    with pytest.raises(RuntimeError):
        warmed_up({"AR": failing}, {"AR"}, QUESTIONS, [1])


def test_figures_are_kept_with_their_origin(
    random_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
    monkeypatch.setattr(run, "NUM_CURVE_ROUNDS", 2)
    out = tmp_path / "deep" / "b.json"
    given = [
        *("--checkpoint", str(random_folder), "--families", "symbolic", "natural"),
        *("--prompts", "2", "--rounds", "1", "--max-new-tokens", "8", "--threads", "1"),
        *("--transformers", "--out", str(out)),
    ]
    assert cli.run(arguments(*given)) == 0
    printed = capsys.readouterr().out
    assert "float32" in printed
    assert "Ratio of tokens/s without prefill, with 95 % intervals" in printed
    actual = json.loads(out.read_text(encoding="utf-8"))
    assert {"date", "commit", "hardware", "versions", "asked", "machine", "rho"} <= set(actual)
    assert actual["subject"]["dtype"] == "float32"
    assert "transformers" in actual["versions"]
    assert not {"out", "transformers"} & set(actual["asked"])
    assert len(actual["threads"]) == 6
    assert len(actual["samples"]) == 6 * 4
    outputs = {
        (sample["question"], sample["output"])
        for sample in actual["samples"]
        if sample["peer"].startswith(("AR", "lossless"))
    }
    assert len(outputs) == 4
    assert {(value["num_rows"], value["width"]) for value in actual["rho"]} >= {(1, 7), (8, 1)}
    pairs = {(item["peer"], item["baseline"]) for item in actual["comparisons"]}
    assert ("AR", "transformers generate") in pairs
    assert ("MARS τ=0.95 B=4", "AR") in pairs


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--rounds", "0"], "--rounds must be at least 1, got 0."),
        (["--threads", "0"], "--threads must be at least 1"),
        (["--families", "poetry"], "--families 'poetry' is unknown"),
        (["--checkpoint", "nobody"], "nobody"),
        (["--llama-cpp", "python3"], "Remove --llama-cpp."),
    ],
)
def test_wrong_arguments_get_one_sentence(given: list[str], said: str, capsys: Any):
    assert cli.run(arguments(*given)) == 2
    assert said in capsys.readouterr().err
