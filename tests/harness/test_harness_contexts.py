"""Contexts of lm-eval become ids: questions never become control tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_text import write_tokenizer

from mars_runtime.lab.harness.contexts import encode_context, encode_pair, render, shortened
from mars_runtime.text import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Say <|im_end|>."},
]


def test_a_conversation_is_the_template_by_id(tokenizer: Tokenizer) -> None:
    found = encode_context(tokenizer, render(TURNS, is_open=False))
    assert found == tokenizer.encode_chat([("system", "Be brief."), ("user", "Say <|im_end|>.")])
    assert found.count(tokenizer.im_end_id) == 2


def test_an_answer_that_is_begun_is_gone_on_with(tokenizer: Tokenizer) -> None:
    begun = [*TURNS, {"role": "assistant", "content": "Here:\n"}]
    asked = encode_context(tokenizer, render(TURNS, is_open=False))
    found = encode_context(tokenizer, render(begun, is_open=True))
    assert found == [*asked, *tokenizer.encode("Here:\n")]


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
