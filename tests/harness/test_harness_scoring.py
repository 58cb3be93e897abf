"""Log-probabilities of given texts: a scripted model by hand, small real weights against one row
at a time."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from helpers import ScriptedModel

from mars_runtime.lab.harness import scoring
from mars_runtime.lab.harness.scoring import score_all
from mars_runtime.model.load import load_checkpoint


def likes_the_next(prefix: tuple[int, ...]) -> list[float]:
    """Three times as likely as all others together: the token after the last one."""
    logits = [0.0] * 18
    logits[(prefix[-1] + 1) % 18] = math.log(3 * 17)
    return logits


def test_sums_and_greediness_by_hand() -> None:
    texts = [([3, 4, 5], 1), ([7, 3], 1), ([9, 1, 2, 3, 4], 3)]
    found = dict(score_all(ScriptedModel(likes_the_next), texts, batch_size=2))
    liked, other = math.log(3 / 4), math.log(1 / (4 * 17))
    assert found[0].log_probability == pytest.approx(2 * liked)
    assert found[1].log_probability == pytest.approx(other)
    assert found[2].log_probability == pytest.approx(2 * liked)
    assert [found[n].is_greedy for n in range(3)] == [True, False, True]


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
    monkeypatch.setattr(scoring, "CHUNK", 7)
    monkeypatch.setattr(scoring, "HEAD_CHUNK", 3)
    together = dict(score_all(model, texts, batch_size=5))
    for number in range(len(texts)):
        assert together[number].log_probability == pytest.approx(
            alone[number].log_probability, abs=1e-4
        )
