"""The parts of a static step against their twins: judgement, reading, the best of many, shapes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from mars_runtime.acceptance import Draw, judge, num_proposals, read
from mars_runtime.decoders.static import batch
from mars_runtime.decoders.static.batch import (
    BLOCKS,
    CapturedRow,
    InForce,
    StepProbe,
    block_bucket,
    context_bucket,
    row_bucket,
    shape_for,
)
from mars_runtime.decoders.static.state import IS_LIVE, STOPS, Shape, State
from mars_runtime.decoders.static.step import Reading, best_of, judge_rows, plan_rows, read_slots
from mars_runtime.events import Proposal
from mars_runtime.model.load import load_checkpoint
from mars_runtime.settings import METRICS, DecodeSettings

EOS_IDS = frozenset({0})


@st.composite
def predictions(draw: st.DrawFn) -> tuple:
    """A row before a step: settings, drafts that were fed, and what the slots say."""
    settings = DecodeSettings(
        method=draw(st.sampled_from(("ar", "mars", "jacobi"))),
        tau=draw(st.sampled_from((0.0, 0.5, 1.0))),
        block_size=draw(st.integers(1, 5)),
        lossless=draw(st.booleans()),
        max_new_tokens=draw(st.integers(1, 12)),
    )
    num_emitted = draw(st.integers(0, settings.max_new_tokens - 1))
    drafts = draw(st.lists(st.integers(0, 2), max_size=4))
    slots = [(draw(st.integers(0, 2)), draw(st.sampled_from((0.2, 0.5, 0.9)))) for _ in range(9)]
    return settings, num_emitted, drafts, slots


@profile(max_examples=150)
@given(predictions())
def test_the_judgement_is_that_of_the_pure_function(row: tuple) -> None:
    settings, num_emitted, drafts, slots = row
    remaining = settings.max_new_tokens - num_emitted
    guesses = settings.num_guesses if settings.method == "jacobi" else -1
    most = len(drafts) if guesses < 0 else guesses
    kept = drafts[: min(most, remaining - 1)] if settings.is_verified else []
    num_slots = len(kept) + num_proposals(settings, remaining, len(kept))
    proposals = [Proposal(token, confidence, ()) for token, confidence in slots[:num_slots]]
    at = len(kept) + 1
    groups = [*[[]] * len(kept), proposals[at:]]
    expected = judge(proposals[:at], groups, kept, settings, remaining, EOS_IDS)

    state = State.new(1, 1, torch.device("cpu"))
    pending = [2, *drafts]
    state.numbers[0] = torch.tensor([1, 7, len(pending), len(drafts), num_emitted])
    lossless = int(settings.is_verified)
    limit = settings.max_new_tokens
    state.wholes[0] = torch.tensor([limit, settings.num_proposals, 0, lossless, 0, 0, 1, guesses])
    state.reals[0, 0] = settings.tau
    shape = Shape(1, 9, 9, 64, is_lossless=True)
    plan = plan_rows(state, shape)
    assert (int(plan.num_slots), int(plan.num_drafts)) == (num_slots, len(kept))
    fed = torch.tensor([pending + [1] * (9 - len(pending))])
    tokens = torch.tensor([[token for token, _ in slots]])
    sure = torch.tensor([[confidence for _, confidence in slots]], dtype=torch.float64)
    reading = Reading(tokens, sure, sure[..., None], tokens[..., None], torch.zeros(1).bool())
    found = judge_rows(reading, fed, plan, state, shape, torch.tensor(sorted(EOS_IDS)), None)
    accepted, end = int(found.num_accepted), int(found.num_kept)
    assert tokens[0, :accepted].tolist() == expected.emitted
    assert tokens[0, accepted:end].tolist() == expected.drafts
    assert STOPS[int(found.stop)] == expected.stop
    if expected.stop not in ("eos", "limit"):
        assert int(found.num_agreed) == expected.num_agreed


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("metric", METRICS)
def test_the_reading_is_that_of_the_pure_function(metric: str, temperature: float) -> None:
    torch.manual_seed(0)
    logits, forbidden = torch.randn(3, 5, 300) * 4, torch.tensor([2, 299])
    draws = [
        Draw(temperature, row, range(10 * row, 10 * row + 99)) if temperature else None
        for row in range(3)
    ]
    expected = read(logits, forbidden, [metric] * 3, draws)
    state = State.new(3, 1, torch.device("cpu"))
    state.wholes[:, 2] = METRICS.index(metric)
    state.wholes[:, 4] = torch.arange(3)
    state.reals[:, 1] = temperature
    shape = Shape(3, 5, 5, 64, is_entropy=metric == "entropy", is_drawn=temperature > 0)
    found = read_slots(logits.clone(), forbidden, state, 10 * torch.arange(3), shape)
    assert found.tokens.tolist() == [[slot.token for slot in row] for row in expected]
    assert found.confidences.tolist() == [[slot.confidence for slot in row] for row in expected]
    assert not found.is_broken.any()


@pytest.mark.parametrize("size", [5000, 8192, 151936, 152064])
def test_the_best_of_many_are_those_of_topk(size: int) -> None:
    table = torch.randn(2, 3, size, generator=torch.Generator().manual_seed(size))
    best, ids = best_of(table, 4)
    expected = table.topk(4)
    assert torch.equal(best, expected.values)
    assert torch.equal(ids, expected.indices)


def test_a_broken_row_is_seen_among_strips() -> None:
    table = torch.zeros(2, 8192)
    table[1, 4000] = float("nan")
    best, ids = best_of(table.softmax(-1), 4)
    assert best[:, 0].isnan().tolist() == [False, True]
    assert int(ids.max()) < 8192


@given(st.lists(st.tuples(st.integers(1, 16), st.integers(1, 16)), min_size=1, max_size=4))
def test_a_block_bucket_has_room_for_every_row(rows: list[tuple[int, int]]) -> None:
    block = block_bucket([n for n, _ in rows], [b for _, b in rows])
    assert block in BLOCKS
    assert all(b <= block and n + b - 1 <= 2 * block - 1 for n, b in rows)


def test_buckets() -> None:
    assert [row_bucket(count, 6) for count in (1, 2, 3, 5)] == [1, 2, 4, 6]
    sizes = {context_bucket(needed, 2000) for needed in range(1, 2000)}
    assert sorted(sizes) == [128, 192, 256, 384, 512, 768, 1024, 1536, 2000]
    assert all(context_bucket(needed, 2000) >= needed for needed in range(1, 2000))


def test_plain_ar_asks_for_one_token_and_one_prediction() -> None:
    settings = DecodeSettings(method="ar")
    row = CapturedRow(0, lambda: settings, 20, 3, [], cursor=30)
    assert shape_for({row: InForce(settings, 1)}, 1, 4, 256) == Shape(1, 1, 1, 128)


def test_a_slider_within_a_bucket_asks_for_no_other_shape() -> None:
    shapes = set()
    for tau in (0.0, 0.5, 0.9):
        for block_size, limit in ((5, 20), (6, 300)):
            settings = DecodeSettings(tau=tau, block_size=block_size, max_new_tokens=limit)
            row = CapturedRow(0, lambda now=settings: now, 20, 3, [], cursor=30, num_pending=4)
            shapes.add(shape_for({row: InForce(settings, block_size)}, 1, 4, 256))
    assert len(shapes) == 1


def test_bounds_hold_while_steps_are_under_way() -> None:
    narrow, wide = DecodeSettings(block_size=2), DecodeSettings(block_size=8)
    row = CapturedRow(0, lambda: wide, 100, 3, [], cursor=30, num_pending=3)
    assert (row.furthest_cursor, row.most_pending) == (30, 3)
    row.under_way.append(InForce(wide, 8))
    assert (row.furthest_cursor, row.most_pending) == (33, 8)
    row.under_way.append(InForce(narrow, 2))
    assert (row.furthest_cursor, row.most_pending) == (41, 2)


def test_places_without_rows_are_not_live() -> None:
    assert not State.new(4, 2, torch.device("cpu")).numbers[:, IS_LIVE].any()


class Restoring:
    """Runs a function and puts back what it changed, in place."""

    def __init__(self, device: torch.device, changed: Sequence[torch.Tensor]) -> None:
        self._changed = changed

    def run(self, key: Hashable, function: Callable[[], None]) -> None:
        saved = [tensor.clone() for tensor in self._changed]
        function()
        for tensor, before in zip(self._changed, saved, strict=True):
            tensor.copy_(before)


def test_state_made_in_inference_mode_is_put_back(
    random_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "new_runner", Restoring)
    model = load_checkpoint(str(random_folder), device="cpu", dtype="fp32").model
    StepProbe(model, 2, 16).run(3)  # type: ignore[arg-type]
