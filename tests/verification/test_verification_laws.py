"""The laws by hand: decoders that keep and break the lossless one, drawn tokens compared with their
probabilities, differences of logits; and real logits from a small checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mars_runtime.events import Event, RowStep, Step
from mars_runtime.lab.benchmark.elsewhere import loader
from mars_runtime.lab.evaluation.measure import decode_in_batches
from mars_runtime.lab.verification import laws
from mars_runtime.lab.verification.laws import (
    LogitAgreement,
    Mismatch,
    agreement,
    compare_with_ar,
    distance,
    first_difference,
    greedy_difference,
    pooled,
    prompt_distance,
    shares,
    ways,
)
from mars_runtime.model.load import load_checkpoint
from mars_runtime.settings import DecodeSettings

AR = DecodeSettings("ar", 1.0, 1)
LOSSLESS = DecodeSettings(tau=0.0, lossless=True)
PROMPTS = [[1, 2, 3], [4, 5], [6, 7, 8, 9]]


def echo(prompts: Sequence[Sequence[int]], settings: DecodeSettings) -> Iterator[Event]:
    """One forward that repeats the prompt; in company, lossless gets the 5 wrong."""
    is_wrong = settings.lossless and len(prompts) > 1
    for number, prompt in enumerate(prompts):
        tokens = tuple(50 if is_wrong and token == 5 else token for token in prompt)
        step = RowStep(number, 0, 0, 1, 1, (), tokens, 0, settings, "eos")
        yield Step((step,))


def test_a_law_that_is_kept_has_no_mismatch():
    expected = decode_in_batches(echo, PROMPTS, AR, 1)
    held = compare_with_ar(echo, PROMPTS, LOSSLESS, 1, expected)
    assert (held.num_prompts, held.num_tokens, held.num_forwards) == (3, 9, 3)
    assert held.mismatches == ()


def test_a_law_that_is_broken_says_where():
    expected = decode_in_batches(echo, PROMPTS, AR, 1)
    heard: list[int] = []
    held = compare_with_ar(echo, PROMPTS, LOSSLESS, 4, expected, heard.append)
    assert held.mismatches == (Mismatch(prompt=1, place=1, expected=5, found=50),)
    assert sum(heard) == 3


def test_a_text_that_ends_early_parts_at_its_end():
    assert first_difference(7, [1, 2], [1, 2, 3]) == Mismatch(7, 2, None, 3)
    assert first_difference(7, [1, 2], []) == Mismatch(7, 0, 1, None)
    assert first_difference(7, [1, 2], [1, 2]) is None


def test_ways_are_many_different_and_lossless():
    actual = ways(24)
    assert len(set(actual)) == len(actual) >= 3
    assert all(way.lossless and way.max_new_tokens == 24 for way in actual)
    assert len({way.block_size for way in actual}) >= 3
    assert len({way.tau for way in actual}) >= 3


HALVES = torch.tensor([[0.5, 0.5, 0.0]] * 4)


def seen(tokens: list[int], chances: Tensor) -> float:
    return prompt_distance(torch.tensor(tokens), chances, 0).seen


def test_total_variation_by_hand():
    assert seen([0, 1, 0, 1], HALVES) == 0.0
    assert seen([0, 0, 0, 1], HALVES) == 0.25
    assert seen([2, 2, 2, 2], HALVES) == 1.0
    mixed = torch.tensor([[1.0, 0.0, 0.0]] * 2 + [[0.0, 0.0, 1.0]] * 2)
    assert seen([0, 0, 2, 2], mixed) == 0.0


def test_shares_by_hand():
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    assert shares(logits, 1.0, 0.6)[0].tolist() == pytest.approx([0.625, 0.375, 0.0])
    assert shares(logits, 0.5, 1.0)[0].tolist() == pytest.approx([25 / 38, 9 / 38, 4 / 38])


def test_draws_lie_where_chance_puts_them_and_others_do_not():
    """With equal halves and four draws the distance is 0, 1/4 or 1/2, by 6, 8 and 2 of 16."""
    fair = distance(3, [prompt_distance(torch.tensor([0, 1, 1, 0]), HALVES, 1)] * 2)
    assert (fair.place, fair.num_draws, fair.seen) == (3, 8, 0.0)
    assert fair.by_chance == pytest.approx(8 / 16 / 4 + 2 / 16 / 2, abs=0.02)
    assert fair.rare == 0.5
    assert fair.is_chance
    assert not distance(0, [prompt_distance(torch.tensor([2] * 4), HALVES, 1)]).is_chance


def logits(*rows: list[float]) -> Tensor:
    return torch.tensor(rows)


def test_equal_logits_do_not_differ():
    ours = logits([0.0, 1.0], [3.0, -2.0])
    assert agreement(ours, ours) == LogitAgreement(2, 0.0, 0.0, 1.0, 0.0, 0.0)


def test_differences_by_hand():
    # Halves against a quarter and three quarters: KL = log(1/2) + log(4/3) ... = log(2/sqrt(3)).
    theirs, ours = logits([0.0, 0.0]), logits([0.0, math.log(3.0)])
    actual = agreement(ours, theirs)
    assert actual.max_difference == pytest.approx(math.log(3.0))
    assert actual.mean_difference == pytest.approx(math.log(3.0) / 2)
    assert actual.mean_divergence == pytest.approx(math.log(2 / math.sqrt(3)))
    assert actual.top_agreement == 0.0


def test_a_shift_of_all_logits_is_no_divergence():
    actual = agreement(logits([1.0, 2.0]), logits([4.0, 5.0]))
    assert actual.max_difference == pytest.approx(3.0)
    assert actual.mean_divergence == pytest.approx(0.0, abs=1e-12)


def test_other_shapes_are_refused():
    with pytest.raises(ValueError, match="the same shape"):
        agreement(logits([1.0, 2.0]), logits([1.0], [2.0]))
    with pytest.raises(ValueError, match="no comparisons"):
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
    actual = logits([0.0, 2.0, 1.0], [3.0, 2.0, 1.0], [0.0, 0.0, 9.0])
    assert greedy_difference(4, actual, [1, 0, 2], []) is None
    assert greedy_difference(4, actual, [1, 2, 2], []) == Mismatch(4, 1, 0, 2)
    assert greedy_difference(4, actual, [1, 1, 2], [0]) is None


def test_logits_of_a_checkpoint_are_transformers(
    foreseeing_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(laws, "CHUNK", 4)
    checkpoint = load_checkpoint(str(foreseeing_folder), device="cpu", dtype="fp32")
    tokens = checkpoint.tokenizer.encode_prompt("A small fox ran.")
    theirs = loader(checkpoint)()
    for first in (0, 3, 4, len(tokens) - 1):
        ours = laws.runtime_logits(checkpoint.model, tokens, first)
        reference = laws.transformers_logits(theirs, tokens, first)
        assert ours.shape == reference.shape == (len(tokens) - first, reference.shape[1])
        assert agreement(ours, reference).max_difference < 1e-3
