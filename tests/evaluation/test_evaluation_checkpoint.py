"""A real checkpoint of toy size behind the functions that evaluation sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from mars_runtime.lab.evaluation.measure import decode_in_batches
from mars_runtime.lab.evaluation.run import Subject
from mars_runtime.lab.evaluation.subject import subject_of
from mars_runtime.model.load import load_checkpoint
from mars_runtime.settings import DecodeSettings

LIMIT = 24
AR = DecodeSettings(method="ar", tau=1.0, block_size=1, max_new_tokens=LIMIT)
LOSSLESS = DecodeSettings(tau=0.0, block_size=4, lossless=True, max_new_tokens=LIMIT)


@pytest.fixture(scope="module")
def subject(foreseeing_folder: Path) -> Subject:
    return subject_of(load_checkpoint(str(foreseeing_folder), device="cpu"))


@pytest.fixture(scope="module")
def prompts(subject: Subject) -> list[list[int]]:
    return [list(subject.encode_prompt("word " * count)) for count in (1, 5, 2, 9, 3, 7, 4)]


def test_lossless_gives_the_tokens_of_ar_in_fewer_forwards(
    subject: Subject, prompts: list[list[int]]
):
    ar = decode_in_batches(subject.decode, prompts, AR, 4)
    lossless = decode_in_batches(subject.decode, prompts, LOSSLESS, 4)
    assert [one.tokens for one in lossless] == [one.tokens for one in ar]
    assert all(one.num_forwards == len(one.tokens) for one in ar)
    assert sum(one.num_forwards for one in lossless) < sum(one.num_forwards for one in ar)


@pytest.mark.parametrize("settings", [AR, LOSSLESS, DecodeSettings(max_new_tokens=LIMIT)])
def test_the_batch_size_changes_no_output(
    subject: Subject, prompts: list[list[int]], settings: DecodeSettings
):
    alone = decode_in_batches(subject.decode, prompts, settings, 1)
    assert decode_in_batches(subject.decode, prompts, settings, 3) == alone


def test_text_ends_before_eos(subject: Subject):
    ids = list(subject.encode_prompt("fox"))
    assert "<|im_end|>" not in subject.to_text(ids[-1:] + ids)


def test_the_fingerprint_follows_the_weights(subject: Subject, random_folder: Path):
    other = subject_of(load_checkpoint(str(random_folder), device="cpu"))
    assert other.fingerprint != subject.fingerprint
    assert subject.dtype == "float32"
