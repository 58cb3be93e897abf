"""The numbers of a tree of masks, written out by hand."""

from __future__ import annotations

import torch

from mars_runtime.model.forward import Branches, Layout


def test_a_group_after_every_pending_token() -> None:
    """[a b c | x x | y y | z z]: a had left, b and c are drafts; fed one token longer."""
    layout = Layout(3, (2, 2, 2))
    assert layout.num_fed == 9
    positions, roots, starts = layout.numbers(10)
    assert positions == [0, 1, 2, 1, 2, 2, 3, 3, 4, 5]
    assert roots == [0, 1, 2, 1, 1, 2, 2, 3, 3, 3]
    assert starts == [0, 1, 2, 3, 3, 5, 5, 7, 7, 7]


def test_tokens_that_had_left_have_no_group() -> None:
    """[a b c | x | y y]: groups belong to the last pending tokens."""
    positions, roots, starts = Layout(3, (1, 2)).numbers(6)
    assert positions == [0, 1, 2, 2, 3, 4]
    assert roots == [0, 1, 2, 2, 3, 3]
    assert starts == [0, 1, 2, 3, 4, 4]


def test_masks_behind_the_last_token_alone_are_plain_causal() -> None:
    for layout in (Layout(3, (2,)), Layout(3, (0, 0, 2)), Layout(2, ()), Layout(2, (0,))):
        assert layout.numbers(5)[0] == [0, 1, 2, 3, 4]
    positions, roots, starts = Layout(3, (0, 0, 2)).numbers(6)
    assert positions == [0, 1, 2, 3, 4, 5]
    assert roots == starts == [0, 1, 2, 3, 3, 3]


def test_rows_of_one_forward_are_filled_up_to_its_width() -> None:
    branches = Branches.of([Layout(2, (1, 1)), Layout(1, (2,))], 4, torch.device("cpu"))
    assert branches.positions.tolist() == [[0, 1, 1, 2], [0, 1, 2, 3]]
    assert branches.roots.tolist() == [[0, 1, 1, 2], [0, 1, 1, 1]]
    assert branches.starts.tolist() == [[0, 1, 2, 3], [0, 1, 1, 1]]


def test_a_block_is_seen_whole_by_each_of_its_own_and_by_no_token_before_it() -> None:
    branches = Branches.of_block(2, 3, torch.device("cpu"))
    assert branches.ends is not None
    assert branches.ends.tolist() == [[0, 1, 4, 4, 4]]
    assert branches.positions.tolist() == [[0, 1, 2, 3, 4]]
