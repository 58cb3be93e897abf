"""Differences of logits on numbers written by hand, and of real logits from a small checkpoint."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mars_runtime.lab.benchmark.elsewhere import loader
from mars_runtime.lab.verification import agreement as under_test
from mars_runtime.lab.verification.agreement import Agreement, agreement, greedy_difference, pooled
from mars_runtime.lab.verification.lossless import Mismatch
from mars_runtime.model.load import load_checkpoint


def logits(*rows: list[float]) -> Tensor:
    return torch.tensor(rows)


def test_equal_logits_do_not_differ():
    one = logits([0.0, 1.0], [3.0, -2.0])
    assert agreement(one, one) == Agreement(2, 0.0, 0.0, 1.0, 0.0, 0.0)


def test_differences_by_hand():
    # Halves against a quarter and three quarters: KL = log(1/2) + log(4/3) ... = log(2/sqrt(3)).
    theirs, ours = logits([0.0, 0.0]), logits([0.0, math.log(3.0)])
    found = agreement(ours, theirs)
    assert found.max_difference == pytest.approx(math.log(3.0))
    assert found.mean_difference == pytest.approx(math.log(3.0) / 2)
    assert found.mean_divergence == pytest.approx(math.log(2 / math.sqrt(3)))
    assert found.top_agreement == 0.0


def test_a_shift_of_all_logits_is_no_divergence():
    found = agreement(logits([1.0, 2.0]), logits([4.0, 5.0]))
    assert found.max_difference == pytest.approx(3.0)
    assert found.mean_divergence == pytest.approx(0.0, abs=1e-12)


def test_other_shapes_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        agreement(logits([1.0, 2.0]), logits([1.0], [2.0]))
    with pytest.raises(ValueError, match="nothing"):
        pooled([])


def test_pooling_is_comparing_at_once():
    ours = torch.randn(7, 5, generator=torch.Generator().manual_seed(1))
    theirs = ours + 0.3 * torch.randn(7, 5, generator=torch.Generator().manual_seed(2))
    whole = agreement(ours, theirs)
    parts = pooled([agreement(ours[:2], theirs[:2]), agreement(ours[2:], theirs[2:])])
    assert parts.num_positions == 7
    assert parts.max_difference == whole.max_difference
    for name in ("mean_difference", "top_agreement", "mean_divergence", "max_divergence"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name))


def test_greedy_text_parts_where_another_token_is_likelier():
    found = logits([0.0, 2.0, 1.0], [3.0, 2.0, 1.0], [0.0, 0.0, 9.0])
    assert greedy_difference(4, found, [1, 0, 2], []) is None
    assert greedy_difference(4, found, [1, 2, 2], []) == Mismatch(4, 1, 0, 2)
    assert greedy_difference(4, found, [1, 1, 2], [0]) is None


def test_logits_of_a_checkpoint_are_transformers(
    foreseeing_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(under_test, "CHUNK", 4)
    checkpoint = load_checkpoint(str(foreseeing_folder), device="cpu", dtype="fp32")
    tokens = checkpoint.tokenizer.encode_prompt("A small fox ran.")
    theirs = loader(checkpoint)()
    for first in (0, 3, 4, len(tokens) - 1):
        ours = under_test.runtime_logits(checkpoint.model, tokens, first)
        reference = under_test.transformers_logits(theirs, tokens, first)
        assert ours.shape == reference.shape == (len(tokens) - first, reference.shape[1])
        assert agreement(ours, reference).max_difference < 1e-3
