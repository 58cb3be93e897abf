"""The engine on static steps, as on CUDA but without graphs: company changes no run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_checkpoint import write_checkpoint

from mars_runtime.decoders import CursorBatch, factory
from mars_runtime.decoders.base import decode_on
from mars_runtime.engine import Engine, Request
from mars_runtime.events import Event, Step
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.settings import METRICS, DecodeSettings

WAYS = [
    DecodeSettings(method="ar", max_new_tokens=14),
    DecodeSettings(tau=0.0, block_size=4, max_new_tokens=20),
    DecodeSettings(tau=0.0, block_size=8, lossless=True, max_new_tokens=17),
    *[DecodeSettings(tau=0.4, block_size=3, metric=each, max_new_tokens=9) for each in METRICS],
    DecodeSettings(tau=0.3, temperature=0.9, seed=4, max_new_tokens=12),
]


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkpoint:
    monkeypatch.setattr(factory, "_is_static", lambda model, forced=None: True)
    return load_checkpoint(str(write_checkpoint(tmp_path)), device="cpu", dtype="fp32")


def tokens(events: list[Event]) -> list[tuple[int, ...]]:
    """Of one run, step by step."""
    return [event.rows[0].accepted for event in events if isinstance(event, Step)]


def alone(checkpoint: Checkpoint, ids: list[int], settings: DecodeSettings) -> list[Event]:
    """By exact steps on a batch of its own."""
    capacity = len(ids) + settings.max_new_tokens
    batch = CursorBatch(checkpoint.model, checkpoint.tokenizer, 1, capacity)
    return list(decode_on(batch, [ids], lambda: settings))


def test_runs_in_company_equal_the_cursor_decoder_alone(checkpoint: Checkpoint) -> None:
    tokenizer = checkpoint.tokenizer
    asked = [
        (tokenizer.encode_prompt("Hello " * (1 + 9 * (number % 3))), replace(way, seed=number))
        for number, way in enumerate(WAYS * 2)
    ]
    with Engine(checkpoint, max_runs=4) as engine:
        runs = [engine.submit(Request(ids, settings)) for ids, settings in asked]
        assert all(run.wait(120) for run in runs)
    for (ids, settings), run in zip(asked, runs, strict=True):
        assert tokens(run.events_since(0)) == tokens(alone(checkpoint, ids, settings))


def test_a_race_decodes_on_batches_that_are_kept(checkpoint: Checkpoint) -> None:
    ids = checkpoint.tokenizer.encode_prompt("Hello")
    with Engine(checkpoint) as engine:
        for _ in range(2):
            runs = engine.race([Request(ids, way) for way in WAYS[:2]])
            assert all(run.wait(120) for run in runs)
            for way, run in zip(WAYS, runs, strict=False):
                assert tokens(run.events_since(0)) == tokens(alone(checkpoint, ids, way))
    assert 1 <= len(checkpoint.model.kept["idle batches"]) <= factory.MAX_KEPT
