"""Contexts of lm-eval become ids, and questions never control tokens; log-probabilities of given
texts: a scripted model by hand, small real weights against one row at a time."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from helpers import ScriptedModel
from hypothesis import given
from hypothesis import strategies as st
from scripted_text import write_tokenizer

from mars_runtime.lab.harness import texts as under_test
from mars_runtime.lab.harness.texts import (
    encode_context,
    encode_pair,
    render,
    score_all,
    shortened,
)
from mars_runtime.model.load import load_checkpoint
from mars_runtime.text import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Say <|im_end|>."},
]


def test_a_conversation_is_the_template_by_id(tokenizer: Tokenizer) -> None:
    actual = encode_context(tokenizer, render(TURNS, is_open=False))
    assert actual == tokenizer.encode_chat([("system", "Be brief."), ("user", "Say <|im_end|>.")])
    assert actual.count(tokenizer.im_end_id) == 2


def test_an_answer_that_is_begun_is_gone_on_with(tokenizer: Tokenizer) -> None:
    begun = [*TURNS, {"role": "assistant", "content": "Here:\n"}]
    request = encode_context(tokenizer, render(TURNS, is_open=False))
    actual = encode_context(tokenizer, render(begun, is_open=True))
    assert actual == [*request, *tokenizer.encode("Here:\n")]


def test_plain_text_has_no_template(tokenizer: Tokenizer) -> None:
    assert encode_context(tokenizer, "2 + 2 =") == tokenizer.encode("2 + 2 =")


@given(context=st.text(max_size=20), continuation=st.text(min_size=1, max_size=20))
def test_a_pair_is_all_of_its_text_and_something_is_scored(
    tokenizer: Tokenizer, context: str, continuation: str
) -> None:
    ids, first = encode_pair(tokenizer, context, continuation)
    assert 1 <= first < len(ids)
    written = ids[1:] if not context else ids
    assert tokenizer.decode(written) == tokenizer.decode(tokenizer.encode(context + continuation))


def test_spaces_before_the_continuation_belong_to_it(tokenizer: Tokenizer) -> None:
    ids, first = encode_pair(tokenizer, "The sky is ", "blue")
    assert tokenizer.decode(ids[first:]) == " blue"


def test_what_does_not_fit_is_left_out_at_the_beginning() -> None:
    assert shortened([1, 2, 3, 4], 3) == [2, 3, 4]
    assert shortened([1, 2], 3) == [1, 2]


def likes_the_next(prefix: tuple[int, ...]) -> list[float]:
    """Three times as likely as all others together: the token after the last one."""
    logits = [0.0] * 18
    logits[(prefix[-1] + 1) % 18] = math.log(3 * 17)
    return logits


def test_sums_and_greediness_by_hand() -> None:
    texts = [([3, 4, 5], 1), ([7, 3], 1), ([9, 1, 2, 3, 4], 3)]
    actual = dict(score_all(ScriptedModel(likes_the_next), texts, batch_size=2))
    liked, other = math.log(3 / 4), math.log(1 / (4 * 17))
    assert actual[0].log_probability == pytest.approx(2 * liked)
    assert actual[1].log_probability == pytest.approx(other)
    assert actual[2].log_probability == pytest.approx(2 * liked)
    assert [actual[n].is_greedy for n in range(3)] == [True, False, True]


def test_nothing_is_masked_and_every_row_is_fed_once() -> None:
    model = ScriptedModel(likes_the_next)
    list(score_all(model, [([3, 4, 5], 1), ([7, 8], 1)], batch_size=2))
    assert model.forwards == [[[7, 8], [3, 4]]]


def test_batches_and_chunks_change_nothing(
    random_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_checkpoint(str(random_folder), device="cpu").model
    generator = torch.Generator().manual_seed(0)
    lengths = [2, 5, 17, 33, 40]
    texts = [
        (torch.randint(10, 200, (n,), generator=generator).tolist(), max(1, n // 2))
        for n in lengths
    ]
    alone = dict(score_all(model, texts, batch_size=1))
    monkeypatch.setattr(under_test, "CHUNK", 7)
    monkeypatch.setattr(under_test, "HEAD_CHUNK", 3)
    together = dict(score_all(model, texts, batch_size=5))
    for number in range(len(texts)):
        assert together[number].log_probability == pytest.approx(
            alone[number].log_probability, abs=1e-4
        )
