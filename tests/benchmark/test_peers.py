"""Peers on a checkpoint of toy size: the same tokens, and times that add up."""

from __future__ import annotations

from pathlib import Path

import pytest

from mars_runtime.benchmark.peers import runtime_answer, transformers_answer
from mars_runtime.evaluation.subject import subject_of
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.settings import DecodeSettings

LIMIT = 20


@pytest.fixture(scope="module")
def checkpoint(foreseeing_folder: Path) -> Checkpoint:
    return load_checkpoint(str(foreseeing_folder), device="cpu")


@pytest.mark.parametrize("text", ["fox", "A small fox ran over the hills."])
def test_all_peers_answer_alike_and_time_themselves(checkpoint: Checkpoint, text: str):
    ids = checkpoint.tokenizer.encode_prompt(text)
    decode, device = subject_of(checkpoint).decode, checkpoint.model.device
    ar = DecodeSettings(method="ar", tau=1.0, block_size=1, max_new_tokens=LIMIT)
    lossless = DecodeSettings(tau=0.0, block_size=4, lossless=True, max_new_tokens=LIMIT)
    answers = [
        transformers_answer(checkpoint, LIMIT)(ids),
        runtime_answer(decode, ar, device)(ids),
        runtime_answer(decode, lossless, device)(ids),
    ]
    assert len({answer.tokens for answer in answers}) == 1
    assert answers[0].num_forwards == answers[1].num_forwards == len(answers[0].tokens)
    assert answers[2].num_forwards <= answers[1].num_forwards
    for answer in answers:
        assert 0 < answer.first_seconds <= answer.seconds
        assert 1 <= answer.num_first <= len(answer.tokens)
