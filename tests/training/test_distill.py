"""The base's answers to train on: prompts, their order and which are left out; the base of an
adapter agrees with transformers, and generation with AR; the file of answers survives a kill."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_base import VOCABULARY, write_base

from mars_runtime.decoders.base import forbidden_ids
from mars_runtime.lab.commands import UsageError
from mars_runtime.lab.training.adapter.base import read_base
from mars_runtime.lab.training.adapter.loss import propose
from mars_runtime.lab.training.distill import requests, run, store
from mars_runtime.lab.training.distill.cli import parse_part
from mars_runtime.lab.training.distill.mixture import (
    SHARES,
    Prompt,
    benchmark_runs,
    interleave,
    mixture,
    runs,
    without_near_duplicates,
)
from mars_runtime.lab.training.distill.run import Completion, generate
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.settings import DecodeSettings
from tests.training.conftest import BENCHMARK


def test_a_shared_run_of_thirteen_words_is_found_and_twelve_are_not(texts: Path) -> None:
    actual = benchmark_runs(texts / "benchmarks")
    assert actual == runs(BENCHMARK)
    assert actual & runs("So: ONE, two, three " + BENCHMARK[14:])
    twelve = " ".join(BENCHMARK.split()[:12])
    assert not actual & runs(f"{twelve} and something else altogether")


def test_every_prefix_holds_each_kind_in_its_share() -> None:
    sources = {kind: iter([(f"{kind} {i}",) for i in range(100)]) for kind in "ab"}
    prompts = list(interleave(sources, {"a": 0.75, "b": 0.25}))
    assert [p.kind for p in prompts[:8]].count("a") == 6
    assert len(prompts) == 200


def test_shares_of_prompts_are_held_out_and_have_another_system_prompt() -> None:
    prompts = [Prompt.of("a", (f"prompt {i}",)) for i in range(5000)]
    assert 60 <= sum(prompt.is_held_out for prompt in prompts) <= 140
    again = [Prompt.of("b", (f"prompt {i}",)) for i in range(5000)]
    follow_ups = [replace(prompt, turns=(*prompt.turns, "yes", "why")) for prompt in prompts]
    for others in (again, follow_ups):
        assert [p.is_held_out for p in prompts] == [p.is_held_out for p in others]
    others = [prompt for prompt in prompts if prompt.system is not None]
    assert 1000 <= len(others) <= 1500
    assert {prompt.system for prompt in others} == set(requests.SYSTEMS)
    assert all(p.conversation[0] == ("system", p.system) for p in others)
    assert all(len(p.conversation) == 1 for p in prompts if p.system is None)


def test_texts_that_begin_alike_or_have_the_same_words_are_near_duplicates() -> None:
    long = "What are the main differences between cats and dogs"
    texts = [long, f"{long}, and birds?", "Why is it so?", "so: why IS it", "Why is it not so?"]
    assert list(without_near_duplicates(texts)) == [long, "Why is it so?", "Why is it not so?"]


@pytest.mark.parametrize("drawn", [requests.code_requests, requests.chat_requests])
def test_drawn_requests_are_many_whole_and_repeatable(drawn: Any) -> None:
    first = list(islice(drawn(random.Random(1)), 2000))
    assert first == list(islice(drawn(random.Random(1)), 2000))
    assert len(set(first)) > 1000
    for turns in first:
        assert len(turns) % 2 == 1
        assert all(text.strip() for text in turns)


def test_the_mixture_leaves_benchmark_texts_out(texts: Path) -> None:
    prompts = mixture(texts, ["Own prompt."], runs(BENCHMARK), 1, 200)
    body = {prompt.turns[0] for prompt in prompts}
    assert len(prompts) == 200
    assert {"Tell me a joke.", "Explain Ohm's law.", "Own prompt."} <= body
    assert BENCHMARK not in body
    assert {prompt.kind for prompt in prompts} <= SHARES.keys()


def test_own_prompts_are_enough(tmp_path: Path) -> None:
    own = json.dumps({"prompt": "Explain our returns policy."})
    (tmp_path / "chat_prompts_train.jsonl").write_text(own)
    prompts = mixture(tmp_path, [], set(), 1, 50)
    assert "Explain our returns policy." in {prompt.turns[0] for prompt in prompts}
    assert {prompt.kind for prompt in prompts} == {"chat", "code"}


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


def _prompts(count: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(3, 20, (count,), generator=generator).tolist()
    return [torch.randint(5, VOCABULARY, (n,), generator=generator).tolist() for n in lengths]


@pytest.mark.parametrize("kind", ["Llama", "Qwen2", "Qwen3"])
def test_the_base_has_the_logits_of_transformers(kind: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    write_base(tmp_path, vocab_size=384, kind=kind)
    ids = torch.tensor([prompt[:3] for prompt in _prompts(4)])
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path)(ids).logits
    ours = read_base(str(tmp_path), torch.float32).model(ids).logits
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.fixture(scope="module")
def checkpoint(folder: Path) -> Checkpoint:
    return load_checkpoint(str(folder), device="cpu", dtype="fp32")


def test_answers_are_the_greedy_ones_of_each_prompt_alone(
    folder: Path, checkpoint: Checkpoint
) -> None:
    from transformers import AutoModelForCausalLM

    prompts, theirs = _prompts(23), AutoModelForCausalLM.from_pretrained(folder)
    settings = DecodeSettings("ar", 1.0, 1, max_new_tokens=45, stop_loops=True)
    forbidden = forbidden_ids(checkpoint.tokenizer, checkpoint.model)
    actual = {item.index: item for item in generate(checkpoint, prompts, settings, rows=5)}
    assert sorted(actual) == list(range(23))
    for index, prompt in enumerate(prompts):
        answer = actual[index].ids
        logits = theirs(torch.tensor([[*prompt, *answer[:-1]]])).logits[0, len(prompt) - 1 :]
        greedy = logits.index_fill(-1, forbidden, -torch.inf).argmax(-1)
        assert tuple(greedy.tolist()) == answer
        is_eos = answer[-1] in checkpoint.tokenizer.eos_ids
        assert (actual[index].end == "eos") == is_eos
        assert actual[index].end == "loop" or is_eos or len(answer) == 45


def test_sampled_prompts_differ_and_are_repeatable(checkpoint: Checkpoint) -> None:
    settings = DecodeSettings("ar", 1.0, 1, max_new_tokens=8, temperature=1.0, seed=5)
    first, again = (list(generate(checkpoint, [[5, 6, 7]] * 4, settings, 2)) for _ in range(2))
    assert first == again
    assert len({item.ids for item in first}) > 1


def test_proposals_compare_near_ties_in_float32(folder: Path) -> None:
    base = read_base(str(folder), torch.bfloat16)
    base.model.set_input_embeddings(torch.nn.Embedding(9600, 32, dtype=torch.bfloat16))
    h = torch.randn(64, 32)
    exact = (h @ base.embedding.float().T).argmax(-1)
    assert torch.equal(propose(base, None, h, h), exact)


@pytest.mark.parametrize(
    "changes", [{"tie_word_embeddings": False}, {"model_type": "mistral"}, None], ids=str
)
def test_other_models_are_refused_in_a_sentence(
    folder: Path, tmp_path: Path, changes: dict[str, object] | None
) -> None:
    if changes is not None:
        shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
        config = json.loads((folder / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(CheckpointError, match=r"[Cc]hoose a|no checkpoint"):
        read_base(str(tmp_path), torch.float32)


def test_every_fifth_conversation_goes_on_and_stored_answers_are_kept(
    folder: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generated: list[int] = []
    written: dict[tuple[int, ...], tuple[int, ...]] = {}

    def answer_all(
        checkpoint: Checkpoint, prompts: list[list[int]], settings: DecodeSettings, rows: int
    ) -> Iterator[Completion]:
        generated.append(len(prompts))
        for index in reversed(range(len(prompts))):
            ids = checkpoint.tokenizer.encode(f" this is request {index:03}")
            written[tuple(prompts[index])] = (*ids, min(checkpoint.tokenizer.eos_ids))
            yield Completion(index, written[tuple(prompts[index])], "eos")

    monkeypatch.setattr(run, "generate", answer_all)
    monkeypatch.setattr(run, "MAX_PROMPT", 4000)

    def distil() -> dict[str, store.DistillRecord]:
        run.Distiller(str(folder), texts, tmp_path, (1, 1), 16, 40, "cpu").run(60, 30)
        return {record.key: record for record in store.read(tmp_path)}

    records = distil()
    assert all(record.response == written[record.prompt] for record in records.values())
    assert generated[:2] == [30, 60]
    assert generated[2] == generated[3] == len(records) - 60 > 0
    first, second = list(records.values())[:60], list(records.values())[60:]
    for record in second:
        before = next(r for r in first if record.prompt[: len(r.prompt)] == r.prompt)
        assert int(before.key, 16) % run.SECOND_TURN_ONE_IN == 0
        assert record.prompt[len(before.prompt) :][: len(before.response)] == before.response
        assert record.held_out == before.held_out
    assert distil() == records
    assert generated[4:] == [0, generated[2], 0]
