"""Ablations of toy size: a start checkpoint, texts and settings that train in a second."""

from __future__ import annotations

import argparse
import dataclasses
import json

import pytest
import torch
from accelerate.state import AcceleratorState

from mars_runtime.lab.ablation import cli, jobs, measure, variants
from mars_runtime.lab.training.data import Corpus
from mars_runtime.lab.training.recipe import Shape, Stage
from mars_runtime.lab.training.tokenizer import save_tokenizer, train_tokenizer
from mars_runtime.lab.training.train import new_model
from mars_runtime.text import Tokenizer

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
    draft = dataclasses.replace(TOY, tokenizer=str(start), shape=Shape(320, 16, 24, 1, 1, 1))
    monkeypatch.setattr(jobs, "DRAFT", draft)
    monkeypatch.setattr(jobs, "TWIN", dataclasses.replace(TOY, tokenizer=str(start)))
    monkeypatch.setattr(cli, "SHARD_EXAMPLES", TOY.shard_examples)
    monkeypatch.setattr(measure, "MAX_NEW_TOKENS", 3)
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
