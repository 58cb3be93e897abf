"""Decoding on a CUDA device: the text of the CPU in fp32, and a published shape in bf16.

Run with ``python -m pytest -m gpu``; without a CUDA device these tests are skipped.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import run_again, tokens_of, word_sequence
from torch import Tensor

from mars_runtime.decoders.cursor import CursorBatch, decode
from mars_runtime.model.captured import GraphRecorder
from mars_runtime.model.config import ModelConfig
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.model.transformer import Transformer
from mars_runtime.settings import DecodeSettings
from tools.measure_gpu import SHAPES, VOCABULARY, ForcedModel, random_weights

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
LIMIT = 24
AR = DecodeSettings(method="ar", max_new_tokens=LIMIT)
LOSSLESS = DecodeSettings(tau=0.0, block_size=8, lossless=True, max_new_tokens=LIMIT)
EVERY_DRAFT = DecodeSettings(
    tau=0.0, block_size=4, lossless=True, mask_layout="every", lookup=True, max_new_tokens=LIMIT
)
WAYS = {
    "AR": AR,
    "MARS": DecodeSettings(tau=0.5, block_size=4, max_new_tokens=LIMIT),
    "margin": DecodeSettings(tau=0.9, block_size=3, metric="margin", max_new_tokens=LIMIT),
    "entropy": DecodeSettings(tau=0.9, block_size=3, metric="entropy", max_new_tokens=LIMIT),
    "drawn": DecodeSettings(
        tau=0.5, block_size=4, temperature=0.8, top_p=0.9, seed=5, max_new_tokens=LIMIT
    ),
    "adaptive": DecodeSettings(tau=0.3, block_size=4, tau_policy="agreement", max_new_tokens=LIMIT),
    "Jacobi": DecodeSettings("jacobi", block_size=5, max_new_tokens=LIMIT),
    "lossless": LOSSLESS,
    "groups and lookup": EVERY_DRAFT,
    "penalties": DecodeSettings(
        tau=0.0,
        block_size=4,
        lossless=True,
        mask_layout="every",
        repetition_penalty=1.2,
        presence_penalty=0.5,
        frequency_penalty=0.5,
        logit_bias=((7, 1.0),),
        max_new_tokens=LIMIT,
    ),
}


@pytest.fixture(scope="module")
def host(foreseeing_folder: Path) -> Checkpoint:
    return load_checkpoint(str(foreseeing_folder), device="cpu", dtype="fp32")


@pytest.fixture(scope="module")
def fp32(foreseeing_folder: Path) -> Iterator[Checkpoint]:
    was_allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield load_checkpoint(str(foreseeing_folder), device="cuda", dtype="fp32")
    torch.backends.cuda.matmul.allow_tf32 = was_allowed


def written(checkpoint: Checkpoint, settings: DecodeSettings) -> list[list[int]]:
    """The answers to four ragged prompts, decoded as one batch."""
    rng, eos = random.Random(3), checkpoint.tokenizer.end_id
    rows = [word_sequence(rng, rng.choice((1, 3, 9, 26)), eos) for _ in range(16)]
    prompts = [row for row in rows if eos not in row][:4]
    run = decode(checkpoint.model, checkpoint.tokenizer, prompts, lambda: settings)
    return tokens_of(run, 4)


@pytest.mark.parametrize("name", WAYS)
def test_the_gpu_writes_what_the_cpu_writes(fp32: Checkpoint, host: Checkpoint, name: str) -> None:
    assert written(fp32, WAYS[name]) == written(host, WAYS[name])


@pytest.mark.parametrize("name", WAYS)
def test_a_step_waits_for_the_device_once(fp32, monkeypatch, name) -> None:
    """The copy of the results is the one wait; any other one is an error here."""
    reads: list[int] = []

    def counted(tensor: Tensor, *args: Any, copy: Any = Tensor.cpu) -> Tensor:
        if not tensor.is_cuda:
            return copy(tensor, *args)  # type: ignore[no-any-return]
        reads.append(tensor.numel())
        torch.cuda.set_sync_debug_mode("default")
        actual: Tensor = copy(tensor, *args)
        torch.cuda.set_sync_debug_mode("error")
        return actual

    batch = CursorBatch(fp32.model, fp32.tokenizer, 1, 64)
    batch.add(0, [11, 12, 13, 11, 12], lambda: WAYS[name])
    batch.step()
    batch.step()  # the buckets of the next steps are mostly captured
    monkeypatch.setattr(Tensor, "cpu", counted)
    monkeypatch.setattr(fp32.model, "record", run_again)  # a capture waits, and rightly so
    for count in range(1, 4):
        if not batch.rows:
            break
        torch.cuda.set_sync_debug_mode("error")
        try:
            batch.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert len(reads) == count


def test_the_chat_adapter_with_groups_lookup_and_a_penalty(smollm2_file: Path) -> None:
    """Lossless text is AR's in fp32, up to near ties; the sampler head ranks on the device."""
    chat = load_checkpoint("mars-smollm2", device="cuda", dtype="fp32")
    prompt = chat.tokenizer.encode_prompt("Name three colours, then name them again.")
    shared = {"repetition_penalty": 1.1, "max_new_tokens": 48}
    ways = [
        DecodeSettings("ar", **shared),
        DecodeSettings(
            tau=0.0, block_size=4, lossless=True, mask_layout="every", lookup=True, **shared
        ),
    ]
    left, right = (
        tokens_of(decode(chat.model, chat.tokenizer, [prompt], lambda settings=way: settings))[0]  # type: ignore[misc]
        for way in ways
    )
    assert left[:24] == right[:24]


@pytest.mark.parametrize("shape", ["qwen2.5-0.5b", "qwen2.5-7b"])
def test_a_shape_runs_with_forced_acceptance(shape: str) -> None:
    """Two layers of a published shape, its vocabulary and heads, in bf16, by CUDA graphs."""
    config = ModelConfig.from_dict(SHAPES[shape] | {"num_hidden_layers": 2})
    device = torch.device("cuda")
    weights = random_weights(config, device, torch.bfloat16)
    model = Transformer(config, weights, device=device, dtype=torch.bfloat16)
    settings = DecodeSettings(tau=1.0, block_size=4, max_new_tokens=128)
    prompts = [list(range(1000, 1000 + length)) for length in (5, 60, 17, 100)]
    run = decode(ForcedModel(model), VOCABULARY, prompts, lambda: settings)  # type: ignore[arg-type]
    assert [len(row) for row in tokens_of(run, 4)] == [128] * 4
    recorder = model.record
    assert isinstance(recorder, GraphRecorder)
    assert (recorder.reason, recorder.num_graphs > 0) == ("", True)
