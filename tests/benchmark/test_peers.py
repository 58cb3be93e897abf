"""Peers on a checkpoint of toy size: the same tokens, and times that add up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mars_runtime.lab.benchmark.answer import Answer
from mars_runtime.lab.benchmark.contenders import Contenders, Target
from mars_runtime.lab.benchmark.memory import highest, peak_bytes
from mars_runtime.lab.benchmark.paired import Question
from mars_runtime.lab.benchmark.plan import BATCHING, GENERATE, LOOKUP, runtime_ways
from mars_runtime.lab.benchmark.subjects import checkpoint_target
from mars_runtime.model.load import load_checkpoint

LIMIT = 20
TEXTS = ("fox", "A small fox ran over the hills.", "a b c a b c")


@pytest.fixture(scope="module")
def target(foreseeing_folder: Path) -> Target:
    return checkpoint_target(load_checkpoint(str(foreseeing_folder), device="cpu"))


@pytest.fixture(scope="module")
def contenders(target: Target) -> Iterator[Contenders]:
    with Contenders(target, runtime_ways([0.9], [4], [0.0], [4], LIMIT)) as found:
        yield found


def ask_all(contenders: Contenders, target: Target, *texts: str) -> dict[str, Answer]:
    prompts = tuple(tuple(target.tokenizer.encode_prompt(text)) for text in texts)
    asks = contenders.of(len(prompts), max(map(len, prompts)))
    return {name: ask(Question("symbolic", prompts)) for name, ask in asks.items()}


@pytest.mark.parametrize("texts", [TEXTS[:1], TEXTS[1:2], TEXTS])
def test_all_peers_answer_alike_and_time_themselves(
    contenders: Contenders, target: Target, texts: tuple[str, ...]
):
    answers = ask_all(contenders, target, *texts)
    expected = {GENERATE, "AR", "MARS τ=0.9 B=4", "lossless τ=0 B=4"}
    assert expected <= set(answers)
    assert (LOOKUP if len(texts) == 1 else BATCHING) in answers
    exact = [answer for name, answer in answers.items() if not name.startswith("MARS")]
    assert len({answer.output_id for answer in exact}) == 1
    assert answers["AR"].num_forwards == answers[GENERATE].num_forwards
    assert answers["AR"].num_forwards == max(len(row.tokens) for row in answers["AR"].rows)
    for answer in answers.values():
        assert len(answer.rows) == len(texts)
        assert 0 < answer.first_seconds <= answer.seconds
        for row in answer.rows:
            assert sum(chunk.num_tokens for chunk in row.chunks) == len(row.tokens)


def test_lossless_counts_only_what_could_leave(contenders: Contenders, target: Target):
    row = ask_all(contenders, target, TEXTS[0])["lossless τ=0 B=4"].rows[0]
    assert row.chunks[0].num_offered == 1
    assert all(chunk.num_tokens <= chunk.num_offered <= 4 for chunk in row.chunks)


def test_other_caches_answer_as_the_cursor_does_where_one_token_leaves(
    contenders: Contenders, target: Target
):
    ways = runtime_ways([1.0], [2], [], [], LIMIT)
    prompts = tuple(tuple(target.tokenizer.encode_prompt(text)) for text in TEXTS)
    asks = contenders.other_caches(ways["MARS τ=1 B=2"], [4, 16])
    assert list(asks) == ["block cache 4", "block cache 16", "no cache"]
    answers = {name: ask(Question("mixed", prompts)) for name, ask in asks.items()}
    assert len({answer.output_id for answer in answers.values()}) == 1


def test_peak_memory_is_that_of_what_was_alive_at_once():
    def work() -> None:
        first = torch.empty(1000)
        second = torch.empty(500)
        del first
        torch.empty(500).add_(second)

    assert peak_bytes(work, torch.device("cpu")) == 6000
    assert highest([4, 2, -4, 1]) == 6
    assert highest([]) == 0
