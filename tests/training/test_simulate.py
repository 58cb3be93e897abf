"""Forwards of lossless decoding counted from which masks are right, against hand-made cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.lab.training.adapter.held_out import (
    forwards_every,
    forwards_one,
    right_by_position,
    tokens_per_forward,
)

TEXTS = st.lists(st.integers(0, 7), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("right", "block_size", "every", "one"),
    [
        # No mask is ever right. A forward without drafts commits a token and leaves a wrong draft;
        # the next one verifies it, commits its own token and leaves none.
        ([0, 0, 0, 0], 2, 4, 4),
        # Every mask is right: two tokens per forward, with one group only after the first.
        ([1, 1, 1, 1], 2, 2, 3),
        # B = 3, all right: three per forward.
        ([2, 2, 2, 2, 2, 2], 3, 2, 3),
        # The first group holds two right drafts, the others none. Every: 3 + 1 + 1 + 1.
        # One: [token], [2 drafts + token, and drafts again since all were right], [miss], [token].
        ([2, 0, 0, 0, 0, 0], 3, 4, 4),
        # A miss in the middle leaves the next forward of one group without drafts.
        ([1, 1, 1, 1, 1, 1], 3, 3, 4),
        ([5], 8, 1, 1),
    ],
)
def test_forwards_of_hand_made_texts(
    right: list[int], block_size: int, every: int, one: int
) -> None:
    assert forwards_every(right, block_size) == every
    assert forwards_one(right, block_size) == one


@given(TEXTS)
def test_without_masks_each_token_is_a_forward(right: list[int]) -> None:
    assert forwards_every(right, 1) == len(right)


@given(TEXTS, st.integers(2, 8))
def test_a_forward_commits_one_to_b_tokens(right: list[int], block_size: int) -> None:
    for forwards in (forwards_every(right, block_size), forwards_one(right, block_size)):
        assert len(right) / block_size <= forwards <= len(right)


def test_tokens_per_forward_and_positions() -> None:
    texts = [[1, 1, 1, 1], [0, 0]]
    one, every = tokens_per_forward(texts, 2)
    assert one == pytest.approx(6 / 5)
    assert every == pytest.approx(6 / 4)
    assert right_by_position(texts, 2) == [pytest.approx(4 / 6), 0.0]
