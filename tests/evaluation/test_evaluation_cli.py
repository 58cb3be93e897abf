"""The command from arguments to files, with a scripted decoder in place of a checkpoint."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from scripted_decoder import ScriptedDecoder, subject

from mars_runtime.lab.evaluation import cli
from mars_runtime.lab.evaluation.prompts import PromptError, load_prompts


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch) -> ScriptedDecoder:
    found = ScriptedDecoder()
    monkeypatch.setattr(cli, "_load", lambda name, args: (subject(found, name), 8))
    return found


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers(dest="command"))
    return parser.parse_args(["evaluate", *given])


def small(out: Path, *more: str) -> argparse.Namespace:
    return arguments(
        *("--checkpoints", "one", "--families", "symbolic", "natural", "--prompts", "3"),
        *("--taus", "0.95", "--block-sizes", "2", "--out", str(out), *more),
    )


def test_results_hold_figures_and_where_they_come_from(decoder: ScriptedDecoder, tmp_path: Path):
    out = tmp_path / "results.json"
    assert cli.run(small(out)) == 0
    found = json.loads(out.read_text())
    assert {"date", "commit", "hardware", "versions", "asked"} <= set(found)
    assert found["asked"]["seed"] == 0
    assert [one["settings"]["method"] for one in found["averages"]] == ["ar", "mars", "mars"]
    assert len(found["cells"]) == 6
    lossless = found["averages"][2]
    assert lossless["settings"]["lossless"] is True
    assert lossless["agreement"] == 1.0
    assert lossless["tpf"]["value"] > 4
    assert str(tmp_path) not in out.read_text()


def test_a_second_run_measures_nothing_again(decoder: ScriptedDecoder, tmp_path: Path):
    out = tmp_path / "results.json"
    cli.run(small(out))
    num_batches = len(decoder.batches)
    cli.run(small(out, "--taus", "0.95", "0.2"))
    assert len(decoder.batches) == num_batches + 2
    cli.run(small(out, "--restart"))
    assert len(decoder.batches) == 2 * num_batches + 2


def test_a_stopped_run_goes_on_where_it_was(
    decoder: ScriptedDecoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "results.json"
    whole = ScriptedDecoder.__call__

    def stop_at_third(self: ScriptedDecoder, prompts, settings):
        if len(self.batches) == 2:
            raise KeyboardInterrupt
        return whole(self, prompts, settings)

    monkeypatch.setattr(ScriptedDecoder, "__call__", stop_at_third)
    assert cli.run(small(out)) == 130
    assert not out.exists()
    monkeypatch.setattr(ScriptedDecoder, "__call__", whole)
    assert cli.run(small(out)) == 0
    assert len(decoder.batches) == 6


def test_what_was_not_trained_is_left_out_and_said(
    decoder: ScriptedDecoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    cli.run(small(tmp_path / "results.json", "--block-sizes", "2", "16"))
    printed = capsys.readouterr().out
    assert "one was trained for B up to 8: larger B are left out." in printed
    assert "B=16" not in printed


def test_markdown_is_printed_for_a_card(
    decoder: ScriptedDecoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    cli.run(small(tmp_path / "results.json", "--markdown", "--details"))
    printed = capsys.readouterr().out
    assert "| one · MARS τ=0.95 B=2 |" in printed
    assert printed.count("**") == 6


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--taus", "nan"], "τ must be a number"),
        (["--block-sizes", "99"], "whole number from 1"),
        (["--families", "poetry"], "no family 'poetry'"),
        (["--prompts", "0"], "at least one prompt"),
        (["--batch-size", "0"], "at least 1"),
    ],
)
def test_wrong_arguments_get_one_sentence(
    given: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    args = arguments("--out", str(tmp_path / "r.json"), *given)
    assert cli.run(args) == 2
    assert said in capsys.readouterr().err


def test_prompts_are_held_out_seeded_and_different():
    one, again = (load_prompts(["symbolic", "natural"], 3, 20) for _ in range(2))
    assert one == again
    assert one != load_prompts(["symbolic", "natural"], 4, 20)
    for prompts in one:
        texts = [task.prompt for task in prompts.tasks]
        assert len(set(texts)) == len(texts)
    with pytest.raises(PromptError):
        load_prompts(["poetry"], 0, 1)


def test_reference_answers_are_right_and_natural_text_is_not_judged():
    symbolic, natural = load_prompts(["symbolic", "natural"], 0, 5)
    assert all(symbolic.judge(i, task.answer) for i, task in enumerate(symbolic.tasks))
    assert symbolic.judge(0, "") is False
    assert natural.judge(0, "anything") is None
