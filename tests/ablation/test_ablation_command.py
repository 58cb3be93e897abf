"""The command at toy size: every variant, what is passed over, and the end of the time."""

from __future__ import annotations

import argparse
import dataclasses
import json

import pytest
import torch
from accelerate.state import AcceleratorState

from mars_runtime.lab.ablation import cli, jobs, variants
from mars_runtime.lab.ablation.jobs import WAYS
from mars_runtime.lab.ablation.variants import VARIANTS
from mars_runtime.lab.training.data import Corpus
from mars_runtime.lab.training.recipe import Shape, Stage
from mars_runtime.lab.training.tokenizer import save_tokenizer, train_tokenizer
from mars_runtime.lab.training.train import new_model
from mars_runtime.text import Tokenizer

pytestmark = pytest.mark.usefixtures("toy")

MIXTURE = (("formats", 0.5), ("symbolic", 0.5))
TOY = dataclasses.replace(
    variants.ABLATION,
    shape=Shape(320, 32, 48, 2, 2, 1, max_positions=512),
    ar=Stage(2_000, 512, 3e-3, 100),
    mars=Stage(2_000, 512, 1e-3, 100),
    mixture=MIXTURE,
    max_length=96,
    shard_examples=40,
)


def make_start(data, folder):
    """An untrained AR checkpoint with a tokenizer of its own."""
    folder.mkdir()
    trained = train_tokenizer(Corpus(data, TOY).texts(2), TOY.shape.vocab_size)
    save_tokenizer(trained, folder, TOY.shape.max_positions)
    new_model(TOY, Tokenizer.from_dir(folder)).save_pretrained(str(folder))
    return folder


def make_data(folder):
    """The three files of texts, nearly empty."""
    section = {"tale": "A tale", "section": 1, "text": "The fox came home to the mill. " * 30}
    (folder / "fairytale_sections_train.jsonl").write_text(json.dumps(section))
    question = {"tale": "A tale", "sections": "1", "question": "Who?", "answer": "the fox"}
    (folder / "fairytale_questions_train.jsonl").write_text(json.dumps(question))
    (folder / "childrens_classics.txt").write_text("<<<BOOK A/B>>>\n## One\n\nThe fox.\n")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def start(data, tmp_path_factory):
    return make_start(data, tmp_path_factory.mktemp("start") / "ar")


@pytest.fixture
def toy(start, monkeypatch):
    """Everything that decides how long it takes, made small."""
    monkeypatch.setattr(jobs, "start_folder", lambda name: start)
    for module in (jobs, variants):
        monkeypatch.setattr(module, "ABLATION", TOY)
    monkeypatch.setattr(cli, "SHARD_EXAMPLES", TOY.shard_examples)
    monkeypatch.setattr(jobs, "MAX_NEW_TOKENS", 3)
    torch.set_num_threads(1)
    # One process keeps one precision; other tests train in another.
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def ablate(data, out, *words) -> int:
    """Run the command with one prompt of each family."""
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers())
    usual = ["--data", data, "--out", out, "--prompts", 1, "--shards", 2, "--device", "cpu"]
    few = ["--budget-tokens", 1_000, "--seeds", 1]
    return cli.run(parser.parse_args(["ablate", *map(str, [*usual, *few, *words])]))


@pytest.mark.slow
def test_every_kind_of_variant_is_trained_measured_and_gathered(data, tmp_path):
    # Variants that differ only in a number run the same code.
    numbers = ("mars-b4", "mars-b16", "no-sft", "weight")
    chosen = [item for item in VARIANTS if not item.name.startswith(numbers)]
    assert ablate(data, tmp_path, "--only", *(entry.name for entry in chosen)) == 0
    document = json.loads((tmp_path / "ablations.json").read_text())
    runs = {run["variant"]: run for run in document["runs"]}
    assert set(runs) == {variant.name for variant in chosen}
    for variant in chosen:
        run = runs[variant.name]
        assert (run["tokens"] >= 1_000) == variant.is_trained
        assert len(run["ways"]) == (1 if variant.stage == "ar" else len(WAYS))
        for families in run["ways"].values():
            assert len(families) == 6
            assert all(
                family["num_tokens"] >= family["num_forwards"] > 0 for family in families.values()
            )


def test_what_is_finished_is_passed_over(data, tmp_path, capsys):
    words = ("--only", "mars-b8", "--seeds")
    assert ablate(data, tmp_path, *words, 1) == 0
    result = tmp_path / "runs/mars-b8-0/result.json"
    before = result.stat().st_mtime_ns
    capsys.readouterr()
    assert ablate(data, tmp_path, *words, 2) == 0
    assert "seed 0" not in capsys.readouterr().out
    assert result.stat().st_mtime_ns == before
    assert (tmp_path / "runs/mars-b8-1/result.json").exists()


def test_when_the_time_is_over_trainings_are_given_up_and_none_begins(
    data,
    tmp_path,
    monkeypatch,
    capsys,
):
    clock = [0.0]
    monkeypatch.setattr(jobs.time, "monotonic", lambda: clock[0])
    step = jobs.Trainer.step

    def slow(trainer, examples):
        clock[0] += 40.0
        return step(trainer, examples)

    monkeypatch.setattr(jobs.Trainer, "step", slow)
    words = ("--only", "start", "mars-b8", "ar", "--minutes", 1, "--budget-tokens", 100_000)
    assert ablate(data, tmp_path, *words) == 0
    out = capsys.readouterr().out
    assert "start, seed 0: 0 tokens" in out
    assert "mars-b8, seed 0: stopped at" in out
    assert "ar, seed 0: not started" in out
    document = json.loads((tmp_path / "ablations.json").read_text())
    assert [run["variant"] for run in document["runs"]] == ["start"]
    assert [weight["checkpoint"] for weight in document["weights"]] == [document["start"]]


def test_a_budget_of_seconds_ends_each_training_with_its_schedule(
    data,
    tmp_path,
    monkeypatch,
):
    clock = [0.0]
    monkeypatch.setattr(jobs.time, "monotonic", lambda: clock[0])
    step, rates = jobs.Trainer.step, []

    def slow(trainer, examples):
        clock[0] += 10.0
        terms = step(trainer, examples)
        rates.append(trainer.optimizer.param_groups[0]["lr"])
        return terms

    monkeypatch.setattr(jobs.Trainer, "step", slow)
    words = ("--only", "mars-b8", "--budget-seconds", 60, "--budget-tokens", 100_000)
    assert ablate(data, tmp_path, *words) == 0
    document = json.loads((tmp_path / "ablations.json").read_text())
    assert [run["steps"] for run in document["runs"]] == [6]
    assert rates[-1] < rates[1] / 3
    assert document["seconds"] == 60


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--only", "mars-b9"], "'mars-b9' is unknown"),
        (["--minutes", 0], "--minutes must be above 0, got 0."),
        (["--budget-seconds", 0], "--budget-seconds must be"),
        (["--workers", 0], "--workers must be at least 1, got 0."),
    ],
)
def test_mistakes_are_one_sentence(data, tmp_path, words, sentence, capsys):
    assert ablate(data, tmp_path, *words) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
