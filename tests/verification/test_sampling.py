"""Distances of drawn tokens from the probabilities they were drawn with, by hand."""

from __future__ import annotations

import pytest
import torch

from mars_runtime.lab.verification.sampling import distance, part, shares, total_variation

HALVES = torch.tensor([[0.5, 0.5, 0.0]] * 4)


def test_total_variation_by_hand():
    assert total_variation(torch.tensor([0, 1, 0, 1]), HALVES) == 0.0
    assert total_variation(torch.tensor([0, 0, 0, 1]), HALVES) == 0.25
    assert total_variation(torch.tensor([2, 2, 2, 2]), HALVES) == 1.0
    mixed = torch.tensor([[1.0, 0.0, 0.0]] * 2 + [[0.0, 0.0, 1.0]] * 2)
    assert total_variation(torch.tensor([0, 0, 2, 2]), mixed) == 0.0


def test_shares_by_hand():
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    assert shares(logits, 1.0, 0.6)[0].tolist() == pytest.approx([0.625, 0.375, 0.0])
    assert shares(logits, 0.5, 1.0)[0].tolist() == pytest.approx([25 / 38, 9 / 38, 4 / 38])


def test_draws_lie_where_chance_puts_them_and_others_do_not():
    """With equal halves and four draws the distance is 0, 1/4 or 1/2, by 6, 8 and 2 of 16."""
    fair = distance(3, [part(torch.tensor([0, 1, 1, 0]), HALVES, 1)] * 2)
    assert (fair.place, fair.num_draws, fair.seen) == (3, 8, 0.0)
    assert fair.by_chance == pytest.approx(8 / 16 / 4 + 2 / 16 / 2, abs=0.02)
    assert fair.rare == 0.5
    assert fair.is_chance
    assert not distance(0, [part(torch.tensor([2] * 4), HALVES, 1)]).is_chance
