"""The command from arguments to files and exit codes, on a checkpoint of toy size."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from mars_runtime.lab.verification import cli, evidence, laws


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers(dest="command"))
    return parser.parse_args(["verify", *given])


def small(promise: str, folder: Path, out: Path) -> argparse.Namespace:
    return arguments(
        *(promise, "--checkpoint", str(folder), "--families", "chat", "maths"),
        *("--prompts", "3", "--max-new-tokens", "6", "--dtype", "fp32", "--out", str(out)),
    )


def test_lossless_is_held_in_every_way(foreseeing_folder: Path, tmp_path: Path):
    out = tmp_path / "deep" / "lossless.json"
    assert cli.run(small("lossless", foreseeing_folder, out)) == 0
    document = json.loads(out.read_text())
    assert {"date", "commit", "hardware", "versions"} <= set(document)
    assert (document["num_prompts"], document["num_mismatches"]) == (6, 0)
    assert len(document["ways"]) == 1 + 2 * len(laws.ways(6))
    assert {way["batch_size"] for way in document["ways"]} == {1, 4}
    assert document["num_answers"] == 6 * len(document["ways"])
    assert str(tmp_path) not in out.read_text()


def test_a_broken_promise_is_an_exit_code(
    foreseeing_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    unverified = [laws.DecodeSettings(tau=0.0, block_size=8, max_new_tokens=6)]
    monkeypatch.setattr(laws, "ways", lambda limit: unverified)
    out = tmp_path / "lossless.json"
    assert cli.run(small("lossless", foreseeing_folder, out)) == 1
    assert json.loads(out.read_text())["num_mismatches"] > 0
    assert "differ from AR's" in " ".join(capsys.readouterr().out.split())


def test_logits_and_greedy_text_are_transformers(foreseeing_folder: Path, tmp_path: Path):
    out = tmp_path / "logits.json"
    assert cli.run(small("logits", foreseeing_folder, out)) == 0
    document = json.loads(out.read_text())
    assert document["logits"]["max_difference"] < 1e-3
    assert document["logits"]["top_agreement"] == 1.0
    assert document["greedy_fp32"]["mismatches"] == []
    assert document["greedy_fp32"]["num_tokens"] > 6


def test_draws_are_ar_s_and_follow_its_probabilities(
    foreseeing_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(evidence, "NUM_DRAWS", 20)
    monkeypatch.setattr(laws, "ROUNDS", 100)
    out = tmp_path / "sampling.json"
    assert cli.run(small("sampling", foreseeing_folder, out)) == 0
    document = json.loads(out.read_text())
    assert document["num_mismatches"] == 0
    for warmth in document["warmths"]:
        assert [place["place"] for place in warmth["places"]] == list(range(6))
        assert warmth["places"][0]["num_draws"] == 6 * 20


def test_draws_from_another_distribution_are_an_exit_code(
    foreseeing_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(evidence, "NUM_DRAWS", 20)
    monkeypatch.setattr(laws, "ROUNDS", 100)
    true = laws.shares
    cold = lambda logits, temperature, top_p: true(logits, temperature / 4, top_p)  # noqa: E731
    monkeypatch.setattr(laws, "shares", cold)
    assert cli.run(small("sampling", foreseeing_folder, tmp_path / "sampling.json")) == 1


def test_greedy_text_that_differs_is_an_exit_code(
    foreseeing_folder: Path, random_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    other = evidence.load_checkpoint(str(random_folder), device="cpu")
    theirs = evidence.loader(other)
    monkeypatch.setattr(evidence, "loader", lambda checkpoint: theirs)
    assert cli.run(small("logits", foreseeing_folder, tmp_path / "logits.json")) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--families", "poetry"], "--families 'poetry' is unknown"),
        (["--prompts", "0"], "--prompts must be at least 1"),
        (["--max-new-tokens", "0"], "--max-new-tokens must be at least 1"),
        (["--threads", "-5"], "--threads must be at least 1, got -5."),
        (["--out", "/proc/nowhere/l.json"], "cannot be written"),
        (["--checkpoint", "nobody"], "nobody"),
    ],
)
def test_wrong_arguments_get_one_sentence(
    given: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert cli.run(arguments("lossless", "--out", str(tmp_path / "l.json"), *given)) == 2
    assert said in capsys.readouterr().err
