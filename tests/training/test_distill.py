"""The base's answers to train on: prompts, their order and which are left out; the Llama that is
trained agrees with transformers, and generation with AR; the file of answers survives a kill."""

from __future__ import annotations

import json
import random
import shutil
from itertools import islice
from pathlib import Path

import pytest
import torch
from tiny_base import VOCABULARY, write_base

from mars_runtime.decoders.base import forbidden_ids
from mars_runtime.lab.commands import UsageError
from mars_runtime.lab.training.adapter.streams import read_clean
from mars_runtime.lab.training.backbone import Backbone, read_base
from mars_runtime.lab.training.distill import requests, store
from mars_runtime.lab.training.distill.cli import parse_part
from mars_runtime.lab.training.distill.mixture import (
    SHARES,
    Prompt,
    benchmark_runs,
    interleave,
    mixture,
    runs,
)
from mars_runtime.lab.training.distill.run import generate, open_user_turn, with_roles
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.settings import DecodeSettings

FOURTEEN = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"


def test_a_shared_run_of_thirteen_words_is_found_and_twelve_are_not() -> None:
    actual = runs(FOURTEEN)
    assert actual & runs("So: ONE, two, three " + FOURTEEN[14:])
    twelve = " ".join(FOURTEEN.split()[:12])
    assert not actual & runs(f"{twelve} and something else altogether")


def test_benchmarks_are_read_from_nested_json_lines(tmp_path: Path) -> None:
    line = {"prompt": {"inner": ["short", FOURTEEN]}, "number": 3}
    (tmp_path / "some.jsonl").write_text(json.dumps(line) + "\n")
    assert benchmark_runs(tmp_path) == runs(FOURTEEN)


def test_every_prefix_holds_each_kind_in_its_share() -> None:
    sources = {kind: iter([(f"{kind} {i}",) for i in range(100)]) for kind in "ab"}
    prompts = list(interleave(sources, {"a": 0.75, "b": 0.25}))
    assert [p.kind for p in prompts[:8]].count("a") == 6
    assert len(prompts) == 200


def test_about_one_prompt_in_fifty_is_held_out_and_always_the_same() -> None:
    remaining = [Prompt("a", (f"prompt {i}",)).is_held_out for i in range(5000)]
    assert 60 <= sum(remaining) <= 140
    assert remaining == [Prompt("b", (f"prompt {i}",)).is_held_out for i in range(5000)]


@pytest.mark.parametrize("drawn", [requests.code_requests, requests.chat_requests])
def test_drawn_requests_are_many_whole_and_repeatable(drawn: object) -> None:
    assert callable(drawn)
    first = list(islice(drawn(random.Random(1)), 2000))
    assert first == list(islice(drawn(random.Random(1)), 2000))
    assert len(set(first)) > 1000
    for turns in first:
        assert len(turns) % 2 == 1
        assert all(text.strip() for text in turns)


def test_the_mixture_leaves_benchmark_texts_out(tmp_path: Path) -> None:
    write = lambda name, rows: (tmp_path / name).write_text(  # noqa: E731
        "".join(json.dumps(row) + "\n" for row in rows)
    )
    passage = " ".join(f"The {word} met another {word} on the road." for word in ("fox", "hen") * 5)
    write("chat_prompts_train.jsonl", [{"prompt": FOURTEEN}, {"prompt": "Tell me a joke."}])
    write("gsm8k_train.jsonl", [{"question": f"What is {i} and {i}?"} for i in range(50)])
    write("fairytale_sections_train.jsonl", [{"tale": "t", "section": 1, "text": passage}])
    write(
        "fairytale_questions_train.jsonl",
        [{"tale": "t", "sections": "1", "question": "Who?", "answer": "a fox"}],
    )
    (tmp_path / "childrens_classics.txt").write_text(f"<<<BOOK a/b>>>\n{passage}\n\nshort\n")
    prompts = mixture(tmp_path, ["Own prompt."], runs(FOURTEEN), 1, 200)
    body = {prompt.turns[0] for prompt in prompts}
    assert len(prompts) == 200
    assert {"Tell me a joke.", "Own prompt."} <= body
    assert FOURTEEN not in body
    assert {prompt.kind for prompt in prompts} <= SHARES.keys()


RECORD = store.DistillRecord("k", "chat", False, (1, 2), (3, 4), "eos")


def test_half_a_line_is_passed_over_and_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "answers-1-of-1.jsonl"
    store.AnswerFile(path).append([RECORD])
    with path.open("a") as file:
        file.write('{"key": "half')
    assert list(store.read(tmp_path)) == [RECORD]
    store.AnswerFile(path).append([RECORD])
    assert list(store.read(tmp_path)) == [RECORD, RECORD]


def test_parts_are_one_of_several() -> None:
    assert parse_part("2/3") == (2, 3)
    for text in ("0/2", "3/2", "2", "a/b", ""):
        with pytest.raises(UsageError, match="must be K/N"):
            parse_part(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base"), vocab_size=384)


@pytest.fixture(scope="module")
def model(folder: Path) -> Backbone:
    return Backbone(read_base(str(folder)), torch.float32)


def _prompts(count: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(3, 20, (count,), generator=generator).tolist()
    return [torch.randint(5, VOCABULARY, (n,), generator=generator).tolist() for n in lengths]


@pytest.mark.parametrize("kind", ["Llama", "Qwen2", "Qwen3"])
def test_logits_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    folder = write_base(tmp_path, vocab_size=384, kind=kind)
    model = Backbone(read_base(str(folder)), torch.float32)
    ids = torch.tensor([prompt[:3] for prompt in _prompts(4)])
    theirs = AutoModelForCausalLM.from_pretrained(folder)(ids).logits
    hidden = read_clean(model, ids).hidden
    ours = model.head(model.normed(hidden.flatten(0, 1))).view(theirs.shape)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.fixture(scope="module")
def checkpoint(folder: Path) -> Checkpoint:
    return load_checkpoint(str(folder), device="cpu", dtype="fp32")


def test_answers_are_the_greedy_ones_of_each_prompt_alone(
    model: Backbone, checkpoint: Checkpoint
) -> None:
    prompts = _prompts(23)
    settings = DecodeSettings("ar", 1.0, 1, max_new_tokens=45, stop_loops=True)
    forbidden = forbidden_ids(checkpoint.tokenizer, checkpoint.model)
    actual = {item.index: item for item in generate(checkpoint, prompts, settings, rows=5)}
    assert sorted(actual) == list(range(23))
    for index, prompt in enumerate(prompts):
        ids = list(prompt)
        with torch.no_grad():
            for _ in actual[index].ids:
                hidden = read_clean(model, torch.tensor([ids])).hidden[:, -1]
                logits = model.head(model.normed(hidden)).index_fill(-1, forbidden, -torch.inf)
                ids.append(int(logits.argmax()))
        assert tuple(ids[len(prompt) :]) == actual[index].ids
        is_eos = actual[index].ids[-1] in checkpoint.tokenizer.eos_ids
        assert (actual[index].end == "eos") == is_eos
        assert actual[index].end == "loop" or is_eos or len(actual[index].ids) == 45


def test_sampled_prompts_differ_and_are_repeatable(checkpoint: Checkpoint) -> None:
    settings = DecodeSettings("ar", 1.0, 1, max_new_tokens=8, temperature=1.0, seed=5)
    first, again = (list(generate(checkpoint, [[5, 6, 7]] * 4, settings, 2)) for _ in range(2))
    assert first == again
    assert len({item.ids for item in first}) > 1


def test_greedy_compares_near_ties_in_float32(model: Backbone) -> None:
    weights = {"model.embed_tokens.weight": torch.randn(9600, 32).bfloat16()}
    weights["model.norm.weight"] = torch.ones(32)
    big = object.__new__(Backbone)
    big.__dict__.update(model.__dict__)
    big.embedding = weights["model.embed_tokens.weight"]
    x = torch.randn(64, 32)
    exact = (big.normed(x) @ big.embedding.float().T).argmax(-1)
    assert torch.equal(big.greedy(x), exact)


@pytest.mark.parametrize(
    ("key", "value"), [("tie_word_embeddings", False), ("model_type", "mistral")]
)
def test_other_models_are_refused_in_a_sentence(
    folder: Path, tmp_path: Path, key: str, value: object
) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, key: value}))
    with pytest.raises(CheckpointError, match=r"[Cc]hoose a"):
        read_base(str(tmp_path))


def test_a_folder_without_a_model_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint"):
        read_base(str(tmp_path))


def test_a_user_turn_is_left_open(folder: Path) -> None:
    tokenizer = read_base(str(folder)).tokenizer
    opened = open_user_turn(tokenizer)
    whole = tokenizer.encode_chat(with_roles(("A small fox",)))
    assert whole[: len(opened)] == opened
    assert with_roles(("a", "b", "c"))[1:] == [("assistant", "b"), ("user", "c")]
