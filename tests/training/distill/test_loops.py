"""Repetition loops in hand-made token lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.lab.training.distill.loops import MAX_PERIOD, MIN_REPEATED, find_loop


def test_a_text_without_repetition_has_no_loop() -> None:
    assert find_loop(range(300)) is None
    assert find_loop([]) is None


def test_one_token_repeated_keeps_its_first_copy() -> None:
    assert find_loop([1, 2, 3, *[7] * 30]) == 4


def test_a_phrase_repeated_keeps_its_first_copy() -> None:
    start, phrase = list(range(100, 110)), [1, 2, 3, 4, 5]
    assert find_loop(start + phrase * 6) == len(start) + len(phrase)


@pytest.mark.parametrize("repeated", [MIN_REPEATED - 1, MIN_REPEATED])
def test_a_loop_needs_enough_repeated_tokens(repeated: int) -> None:
    found = find_loop([1, 2, 3] + [9] * (1 + repeated))
    assert found == (4 if repeated == MIN_REPEATED else None)


def test_a_long_sentence_must_come_twice_in_full() -> None:
    sentence = list(range(40))
    assert find_loop(sentence + sentence[:39]) is None
    assert find_loop(sentence + sentence) == 40


def test_what_is_longer_than_the_longest_period_is_no_loop() -> None:
    paragraph = list(range(MAX_PERIOD + 1))
    assert find_loop(paragraph * 3) is None


@given(st.lists(st.integers(0, 3), max_size=120))
def test_what_is_kept_has_no_loop_itself(ids: list[int]) -> None:
    found = find_loop(ids)
    if found is not None:
        assert 0 < found < len(ids)
        assert find_loop(ids[:found]) is None
