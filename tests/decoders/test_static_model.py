"""Static steps with real weights, fp32 on a CPU: the events of the cursor batch, rounding apart."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers import steps_of, tokens_of, word_sequence
from static_scripted import outlines
from tiny_checkpoint import write_checkpoint

from mars_runtime.decoders import CursorBatch
from mars_runtime.decoders.base import decode_on
from mars_runtime.decoders.static.batch import StaticBatch, StepProbe
from mars_runtime.events import RowStep
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.settings import METRICS, DecodeSettings
from tests.methods import decode_as

LIMIT = 24


@pytest.fixture(scope="module")
def foreseeing(foreseeing_folder: Path) -> Checkpoint:
    return load_checkpoint(str(foreseeing_folder), device="cpu", dtype="fp32")


def prompts_for(checkpoint: Checkpoint, count: int) -> list[list[int]]:
    rng, eos = random.Random(3), checkpoint.tokenizer.im_end_id
    rows = [word_sequence(rng, rng.choice((1, 3, 9, 26)), eos) for _ in range(4 * count)]
    return [row for row in rows if eos not in row][:count]


def batch_on(checkpoint: Checkpoint, kind: type, num_rows: int = 3, **options: int):
    return kind(checkpoint.model, checkpoint.tokenizer, num_rows, 26 + LIMIT, **options)


def exactly(step: RowStep) -> RowStep:
    """All but what rounding may touch."""
    bare = tuple(slot._replace(confidence=0.0, runners_up=()) for slot in step.proposals)
    return replace(step, proposals=bare)


def check_equal(left: Sequence[list], right: Sequence[list]) -> None:
    assert [[exactly(row) for row in step] for step in left] == [
        [exactly(row) for row in step] for step in right
    ]
    for ours, theirs in zip(left, right, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            for slot, twin in zip(one.proposals, other.proposals, strict=True):
                assert slot.confidence == pytest.approx(twin.confidence, abs=1e-4)
                best, twins = dict(slot.runners_up), dict(twin.runners_up)
                assert all(
                    best[id] == pytest.approx(twins.get(id, best[id]), abs=1e-4) for id in best
                )


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("lossless", [False, True])
@pytest.mark.parametrize(("tau", "block_size"), [(0.0, 4), (0.5, 8), (0.9, 2), (0.95, 16)])
def test_events_equal_those_of_the_cursor_batch(
    foreseeing: Checkpoint, tau: float, block_size: int, lossless: bool, metric: str
) -> None:
    settings = DecodeSettings(
        tau=tau, block_size=block_size, lossless=lossless, metric=metric, max_new_tokens=LIMIT
    )
    prompts = prompts_for(foreseeing, 3)
    found = [
        outlines(decode_on(batch_on(foreseeing, kind), prompts, lambda: settings))
        for kind in (CursorBatch, StaticBatch)
    ]
    check_equal(*found)
    tokens = sum(len(row.accepted) for step in found[1] for row in step)
    assert tau > 0.5 or tokens > 1.3 * sum(map(len, found[1]))  # it is no test of AR steps alone


def test_ar_and_lossless_write_the_same_as_the_decoder_ar(foreseeing: Checkpoint) -> None:
    prompts = prompts_for(foreseeing, 3)
    plain = DecodeSettings(method="ar", max_new_tokens=LIMIT)
    tokenizer = foreseeing.tokenizer
    expected = tokens_of(decode_as("ar", foreseeing.model, tokenizer, prompts, lambda: plain), 3)
    bold = DecodeSettings(tau=0.0, block_size=8, lossless=True, max_new_tokens=LIMIT)
    for settings in (plain, bold):
        batch = batch_on(foreseeing, StaticBatch, steps_per_read=4)
        events = list(decode_on(batch, prompts, lambda now=settings: now))
        assert tokens_of(events, 3) == expected
        if settings is plain:
            assert {step.num_fed for row in range(3) for step in steps_of(events, row)} == {1}


def test_rows_of_a_used_batch_never_see_who_was_there_before(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(str(write_checkpoint(tmp_path)), device="cpu")
    settings = DecodeSettings(tau=0.0, block_size=4, max_new_tokens=12)
    prompts = [[5, 9, 11], [20] * 20, [7], [8, 30, 31, 32]]
    alone = [
        tokens_of(decode_on(batch_on(checkpoint, StaticBatch, 1), [prompt], lambda: settings))[0]
        for prompt in prompts
    ]
    batch = batch_on(checkpoint, StaticBatch, 2, steps_per_read=3)
    batch.cache.store.fill_(float("nan"))
    events, waiting = [], list(enumerate(prompts))
    while waiting or batch.rows:
        while waiting and len(batch.rows) < 2:
            batch.add(*waiting.pop(0), lambda: settings)
        events.append(batch.step())
    assert tokens_of(events, 4) == alone


def test_the_forward_on_the_device_is_the_forward(tmp_path: Path) -> None:
    model = load_checkpoint(str(write_checkpoint(tmp_path)), device="cpu").model
    torch.manual_seed(0)
    caches = [model.new_cache(4, 64) for _ in range(2)]
    for cache in caches:
        cache.cursors[:] = [7, 0, 19, 3]
        cache.store.normal_(generator=torch.Generator().manual_seed(1))
    tokens, head = torch.randint(5, 60, (3, 5)), torch.tensor([[0, 1], [3, 4], [2, 2]])
    expected = model.forward(tokens, caches[0], head)
    for context in (24, 40, 64):
        found = model.forward_at(tokens, caches[1], head, torch.tensor([7, 0, 19]), context)
        assert torch.allclose(found, expected, atol=1e-5)
        assert torch.allclose(caches[0].store, caches[1].store, atol=1e-5)


def test_a_probe_runs_steps_of_any_width(tmp_path: Path) -> None:
    model = load_checkpoint(str(write_checkpoint(tmp_path)), device="cpu").model
    seen = []
    forward_at = model.forward_at
    model.forward_at = lambda tokens, cache, head, cursors, context: (
        seen.append((*tokens.shape, head.shape[1], context))
        or forward_at(tokens, cache, head, cursors, context)
    )
    probe = StepProbe(model, 3, 200)
    for width in (1, 4, 7, 31):
        probe.run(width)
    assert seen == [(3, 1, 1, 256), (3, 4, 2, 256), (3, 7, 4, 256), (3, 31, 16, 256)]
