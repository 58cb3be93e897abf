"""Decoding on a CUDA device (``-m gpu``): the text of the CPU in fp32, and published shapes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import run_again, tokens_of, word_sequence
from torch import Tensor

from mars_runtime.decoders.cursor import CursorBatch, decode
from mars_runtime.decoders.methods import Method
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


def way(method: Method = "mars", **changes: Any) -> DecodeSettings:
    values = {"tau": 0.5, "block_size": 4, "max_new_tokens": LIMIT, **changes}
    return DecodeSettings(method, **values)


EVERY_DRAFT = way(tau=0.0, lossless=True, mask_layout="every", lookup=True)
WAYS = {
    "AR": way("ar"),
    "MARS": way(),
    "margin": way(tau=0.9, block_size=3, metric="margin"),
    "entropy": way(tau=0.9, block_size=3, metric="entropy"),
    "drawn": way(temperature=0.8, top_p=0.9, seed=5),
    "adaptive": way(tau=0.3, tau_policy="agreement"),
    "Jacobi": way("jacobi", block_size=5),
    "lossless": way(tau=0.0, block_size=8, lossless=True),
    "groups and lookup": EVERY_DRAFT,
    "penalties": replace(
        EVERY_DRAFT, lookup=False, repetition_penalty=1.2, presence_penalty=0.5,
        frequency_penalty=0.5, logit_bias=((7, 1.0),),
    ),
}  # fmt: skip


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
    changes = {"repetition_penalty": 1.1, "max_new_tokens": 48}
    ways = [way("ar", **changes), replace(EVERY_DRAFT, **changes)]
    left, right = (
        tokens_of(decode(chat.model, chat.tokenizer, [prompt], lambda settings=settings: settings))[
            0
        ]  # type: ignore[misc]
        for settings in ways
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
