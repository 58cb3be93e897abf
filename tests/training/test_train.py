"""Tokenizer, data order and the loop on a recipe of toy size, with data files made here."""

from __future__ import annotations

import argparse
import dataclasses
import json
import lzma
import os
import signal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mars_runtime.lab.training import cli, train
from mars_runtime.lab.training.data import Corpus, encode, encoded, in_batches
from mars_runtime.lab.training.recipe import CPU, RECIPES, Shape, Stage
from mars_runtime.lab.training.tokenizer import SPECIAL_TOKENS, save_tokenizer, train_tokenizer
from mars_runtime.text import Tokenizer

TOY = dataclasses.replace(
    CPU, name="toy", shape=Shape(320, 32, 48, 2, 2, 1, max_positions=256),
    ar=Stage(40_000, 512, 3e-3, 1_000), mars=Stage(6_000, 512, 1e-3, 500),
    mixture=(("formats", 0.5), ("symbolic", 0.4), ("tales", 0.1)),
    block_size=4, max_length=96, shard_examples=40, compile=False,
)  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer(texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    trained = train_tokenizer(Corpus(texts, TOY).texts(2), TOY.shape.vocab_size)
    save_tokenizer(trained, folder, TOY.shape.max_positions)
    return folder


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(RECIPES, "toy", TOY)
    torch.set_num_threads(1)


def arguments(*words) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers())
    return parser.parse_args(["train", "--recipe", "toy", *map(str, words)])


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
@settings(max_examples=150, deadline=None)
def test_every_string_round_trips(tokenizer, text):
    ours = Tokenizer.from_dir(tokenizer)
    assert ours.decode(ours.encode(text)) == text


def test_tokenizer_is_standard_and_agrees_with_ours(tokenizer):
    from transformers import AutoTokenizer

    theirs, ours = AutoTokenizer.from_pretrained(str(tokenizer)), Tokenizer.from_dir(tokenizer)
    assert len(theirs) == ours.size == TOY.shape.vocab_size
    assert theirs.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == [0, 1, 2, 3]
    messages = [{"role": "user", "content": "Sort 12, 305 and 7 \U0001f98a"}]
    text = theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    ids = theirs(text, add_special_tokens=False)["input_ids"]
    assert ids == ours.encode_prompt(messages[0]["content"])
    assert [ours.decode([i]) for i in ours.encode("305")] == ["3", "0", "5"]
    assert theirs.mask_token_id == ours.mask_id
    assert theirs.eos_token_id in ours.eos_ids


def test_shards_are_the_same_every_time_and_fill_their_batches(texts, tokenizer):
    ours = Tokenizer.from_dir(tokenizer)

    def batches(shard):
        return in_batches(encoded(Corpus(texts, TOY), ours, TOY, shard), 512, f"7/{shard}/order")

    first = batches(3)
    assert first == batches(3)
    assert first != batches(4)
    for batch in first:
        assert len(batch) * max(len(e.ids) for e in batch) <= 512
        assert all(1 < e.response_start < len(e.ids) <= TOY.max_length for e in batch)


def test_examples_end_in_eos_unless_cut(tokenizer):
    ours = Tokenizer.from_dir(tokenizer)
    whole = encode("Say yes", "yes", ours, 96)
    assert whole.ids[-1] == ours.end_id
    assert ours.decode(whole.ids[whole.response_start : -1]) == "yes"
    assert encode("Say yes", "yes " * 200, ours, 96).ids[-1] != ours.end_id


@pytest.mark.usefixtures("toy")
def test_the_stages_learn_and_save_plain_checkpoints(texts, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    ar, mars = tmp_path / "ar", tmp_path / "mars"
    assert cli.run(arguments("--stage", "ar", "--data", texts, "--out", ar)) == 0
    log = [json.loads(line) for line in (ar / "log-ar.jsonl").read_text().splitlines()]
    assert log[-1]["loss"] < log[0]["loss"] - 0.2
    assert cli.run(arguments("--stage", "mars", "--data", texts, "--out", mars, "--from", ar)) == 0
    model = AutoModelForCausalLM.from_pretrained(str(mars))
    assert not list(mars.glob("*index*"))
    assert model.config.model_type == "qwen2"
    assert model.config.mars_block_size == 4
    assert AutoTokenizer.from_pretrained(str(mars)).chat_template
    assert model.config.vocab_size == Tokenizer.from_dir(mars).size
    saved = json.loads((mars / "recipe.json").read_text())
    assert (saved["stage"], saved["block_size"], saved["name"]) == ("mars", 4, "toy")
    weights = ar / "model.safetensors"  # from here on stored as the bundled ones are
    weights.with_name("model.safetensors.xz").write_bytes(lzma.compress(weights.read_bytes()))
    weights.unlink()
    twin = tmp_path / "twin"
    words = ("--stage", "block_diffusion", "--data", texts, "--out", twin)
    assert cli.run(arguments(*words, "--from", ar)) == 0
    assert json.loads((twin / "config.json").read_text())["block_diffusion_size"] == 4
    saved = json.loads((twin / "recipe.json").read_text())
    assert saved["stage"] == "block_diffusion"
    assert saved["tokens_read"] >= TOY.mars.tokens


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--stage", "ar", "--data", "/nowhere", "--out", "x"], "--data"),
        (["--stage", "mars", "--data", ".", "--out", "x"], "--from"),
        (["--stage", "mars", "--data", ".", "--out", "x", "--from", "/nowhere"], "config.json"),
        (["--stage", "ar", "--data", ".", "--out", "/nowhere", "--resume"], "--resume"),
        (["--stage", "ar", "--data", "TEXTS", "--out", "DAMAGED", "--resume"], "damaged"),
    ],
)
@pytest.mark.usefixtures("toy")
def test_mistakes_are_one_sentence(words, sentence, texts, tmp_path, capsys):
    save = tmp_path / "resume.pt"
    save.write_bytes(b"half a fi")
    places = {"TEXTS": texts, "DAMAGED": tmp_path}
    assert cli.run(arguments(*(places.get(word, word) for word in words))) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert save.read_bytes() == b"half a fi"


@pytest.mark.usefixtures("toy")
def test_ctrl_c_saves_and_the_run_resumes_to_the_same_weights(texts, tmp_path, monkeypatch, capsys):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    words = ("--stage", "ar", "--data", texts, "--out")
    assert cli.run(arguments(*words, whole)) == 0
    step = train.Trainer.step

    def interrupted(trainer, examples):
        if trainer.progress.step == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return step(trainer, examples)

    monkeypatch.setattr(train.Trainer, "step", interrupted)
    assert cli.run(arguments(*words, stopped)) == 130
    assert "Add --resume to continue" in capsys.readouterr().err
    saved = torch.load(stopped / "resume.pt", weights_only=False)
    assert saved["progress"]["step"] == 4
    monkeypatch.setattr(train.Trainer, "step", step)
    assert cli.run(arguments(*words, stopped, "--resume")) == 0
    first, two = (torch.load(out / "resume.pt", weights_only=False) for out in (whole, stopped))
    assert first["progress"] == two["progress"]
    for name, weight in first["model"].items():
        torch.testing.assert_close(two["model"][name], weight)
