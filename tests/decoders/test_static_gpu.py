"""Captured steps on CUDA: the events of plain steps, no waiting for the device, no new captures.

Run with ``python -m pytest -m gpu``; without a CUDA device they are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from helpers import tokens_of
from static_scripted import outlines
from test_static_model import check_equal, prompts_for

from mars_runtime.decoders import CursorBatch, decode
from mars_runtime.decoders.base import decode_on
from mars_runtime.decoders.forced import ForcedAcceptance
from mars_runtime.decoders.static.batch import StaticBatch
from mars_runtime.model.config import ModelConfig
from mars_runtime.model.graphs import EagerRunner
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.model.shapes import SHAPES, ShapeVocabulary, random_model, random_prompts
from mars_runtime.settings import METRICS, DecodeSettings

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
LIMIT = 24
SHORT = DecodeSettings(tau=0.5, block_size=4, max_new_tokens=LIMIT)
WAYS = [
    DecodeSettings(method="ar", max_new_tokens=LIMIT),
    SHORT,
    DecodeSettings(tau=0.0, block_size=8, lossless=True, max_new_tokens=LIMIT),
    DecodeSettings(tau=0.9, block_size=3, metric="margin", max_new_tokens=LIMIT),
    DecodeSettings(tau=0.9, block_size=3, metric="entropy", max_new_tokens=LIMIT),
    DecodeSettings(tau=0.5, block_size=4, temperature=0.8, seed=5, max_new_tokens=LIMIT),
    DecodeSettings("jacobi", block_size=5, max_new_tokens=LIMIT),
]


@pytest.fixture(scope="module")
def fp32(foreseeing_folder: Path) -> Iterator[Checkpoint]:
    was_allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield load_checkpoint(str(foreseeing_folder), device="cuda", dtype="fp32")
    torch.backends.cuda.matmul.allow_tf32 = was_allowed


@pytest.fixture(scope="module")
def bf16(foreseeing_folder: Path) -> Checkpoint:
    return load_checkpoint(str(foreseeing_folder), device="cuda", dtype="bf16")


def batch_on(checkpoint: Checkpoint, num_rows: int = 4, **options: int) -> StaticBatch:
    return StaticBatch(checkpoint.model, checkpoint.tokenizer, num_rows, 26 + LIMIT, **options)


def plain(batch: StaticBatch) -> StaticBatch:
    """The same steps without graphs."""
    batch.runner.reason = "the twin of the captured steps"
    return batch


@pytest.mark.parametrize("steps_per_read", [1, 4])
@pytest.mark.parametrize("settings", WAYS, ids=str)
def test_captured_steps_equal_plain_ones(
    fp32: Checkpoint, settings: DecodeSettings, steps_per_read: int
) -> None:
    prompts = prompts_for(fp32, 3)
    captured = batch_on(fp32, steps_per_read=steps_per_read)
    twin = plain(batch_on(fp32, steps_per_read=steps_per_read))
    found = [outlines(decode_on(each, prompts, lambda: settings)) for each in (captured, twin)]
    assert captured.runner.reason == ""
    assert captured.runner.num_graphs > 0
    check_equal(*found)


@pytest.mark.parametrize("settings", WAYS, ids=str)
def test_captured_steps_equal_the_cursor_batch(fp32: Checkpoint, settings: DecodeSettings) -> None:
    prompts = prompts_for(fp32, 3)
    exact = CursorBatch(fp32.model, fp32.tokenizer, 4, 26 + LIMIT)
    batches = (exact, batch_on(fp32))
    check_equal(*[outlines(decode_on(each, prompts, lambda: settings)) for each in batches])


@pytest.mark.parametrize("settings", [WAYS[0], WAYS[2]], ids=str)
def test_the_gpu_writes_what_the_cpu_writes(
    fp32: Checkpoint, foreseeing_folder: Path, settings: DecodeSettings
) -> None:
    host = load_checkpoint(str(foreseeing_folder), device="cpu", dtype="fp32")
    prompts = prompts_for(host, 3)
    exact = CursorBatch(host.model, host.tokenizer, 4, 26 + LIMIT)
    expected = tokens_of(decode_on(exact, prompts, lambda: settings), 3)
    assert tokens_of(decode_on(batch_on(fp32), prompts, lambda: settings), 3) == expected


def test_bf16_lossless_agrees_with_ar_for_the_most_part(bf16: Checkpoint) -> None:
    """Not always: rounding differs with the number of tokens fed, and bf16 logits tie."""
    prompts = prompts_for(bf16, 4)
    ways = (WAYS[0], WAYS[2])
    answers = [
        tokens_of(decode_on(batch_on(bf16), prompts, lambda now=way: now), 4) for way in ways
    ]
    same = [left == right for left, right in zip(*answers, strict=True)]
    print(f"bf16 agreement with AR: {sum(same)} of {len(same)} rows")
    assert any(same)


def test_no_step_waits_for_the_device(bf16: Checkpoint) -> None:
    batch = batch_on(bf16, steps_per_read=4)
    prompts = prompts_for(bf16, 3)
    list(decode_on(batch, prompts, lambda: SHORT))  # all captures
    for row, prompt in enumerate(prompts):
        batch.add(row, prompt, lambda: SHORT)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            batch.step()
        with pytest.raises(RuntimeError, match="synchroniz"):  # the mode does catch waiting
            torch.ones(1, device="cuda").item()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_captured_steps_keep_their_workspace_when_others_give_back_theirs(
    bf16: Checkpoint,
) -> None:
    """``torch.compile`` gives back all workspaces of cuBLAS when it captures; what comes then
    lies where they were."""
    prompts = prompts_for(bf16, 3)
    batch = batch_on(bf16)
    expected = tokens_of(decode_on(batch, prompts, lambda: SHORT), 3)
    torch._C._cuda_clearCublasWorkspaces()
    others = [torch.zeros(1 << 20, device="cuda") for _ in range(64)]
    assert tokens_of(decode_on(batch, prompts, lambda: SHORT), 3) == expected
    assert not any(bool(each.any()) for each in others)


def test_sliders_need_no_new_capture(bf16: Checkpoint) -> None:
    batch, prompts = batch_on(bf16), prompts_for(bf16, 3)
    list(decode_on(batch, prompts, lambda: SHORT))
    before = batch.runner.num_graphs
    for tau in (0.0, 0.3, 0.95):
        for metric in METRICS[:2]:
            moved = DecodeSettings(tau=tau, block_size=4, metric=metric, max_new_tokens=20)
            list(decode_on(batch, prompts, lambda now=moved: now))
    assert batch.runner.num_graphs == before


def test_a_capture_leaves_the_rows_where_they_were(fp32: Checkpoint) -> None:
    """A new shape in the middle of a run: its warm-up must not count as steps."""
    moves = [SHORT, WAYS[2], WAYS[4], WAYS[0]]

    def tokens(batch: StaticBatch) -> list[list[int]]:
        events = []
        for row, prompt in enumerate(prompts_for(fp32, 3)):
            batch.add(row, prompt, lambda: moves[len(events) // 2 % len(moves)])
        while batch.rows:
            events.append(batch.step())
        return tokens_of(events, 3)

    captured = batch_on(fp32)
    assert tokens(captured) == tokens(plain(batch_on(fp32)))
    assert captured.runner.num_graphs > 2
    assert not isinstance(captured.runner, EagerRunner)


def test_a_shape_runs_with_forced_acceptance() -> None:
    """Two layers of the 0.5B shape, its vocabulary and heads, in bf16."""
    config = ModelConfig.from_dict(SHAPES["qwen2.5-0.5b"] | {"num_hidden_layers": 2})
    model = random_model(config, torch.device("cuda"), torch.bfloat16)
    vocabulary = ShapeVocabulary(size=151666, mask_id=151665)
    forced = ForcedAcceptance((0.55, 0.23, 0.10, 0.12))
    settings = DecodeSettings(tau=1.0, block_size=4, max_new_tokens=128)
    prompts = random_prompts(vocabulary, [5, 60, 17, 100])
    for _ in range(2):
        run = decode(model, vocabulary, prompts, lambda: settings, steps_per_read=4, forced=forced)
        assert [len(row) for row in tokens_of(run, 4)] == [128] * 4
    ((_, batch),) = model.kept["idle batches"]
    assert batch.runner.reason == ""
