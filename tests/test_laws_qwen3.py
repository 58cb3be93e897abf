"""The laws on a Qwen3 that is trained for seconds: norms on queries and keys, wide heads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from helpers import qwen3_config, train_foreseeing, write_checkpoint
from law_checkpoints import load, plain, word_prompts
from test_laws import CHANGES, EXACT, check_law_1, check_law_2, check_law_3

from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.model.native.model import NativeModel
from mars_runtime.settings import DecodeSettings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_foreseeing(tmp_path_factory.mktemp("qwen3"), make_config=qwen3_config)


@pytest.fixture(scope="module")
def exact(folder: Path) -> Checkpoint:
    return load(str(folder))


@pytest.mark.parametrize("changes", ["greedy", "repetition"])
def test_law_1_ar_equals_transformers(exact: Checkpoint, changes: str) -> None:
    check_law_1(exact, word_prompts(exact, 30), 24, **CHANGES[changes])


@pytest.mark.parametrize("is_tied", [True, False])
def test_law_1_on_random_weights(tmp_path: Path, is_tied: bool) -> None:
    write_checkpoint(tmp_path, make_config=qwen3_config, tie_word_embeddings=is_tied)
    random = load(str(tmp_path))
    check_law_1(random, word_prompts(random, 30), 24)


@pytest.mark.parametrize("dtype", ["fp32", "int8", "int4"])
def test_law_3_exact_methods_write_what_ar_writes(
    folder: Path, exact: Checkpoint, dtype: str
) -> None:
    checkpoint = load_checkpoint(str(folder), device="cpu", dtype=dtype)
    prompts = word_prompts(checkpoint, 8, seed=21)
    for name, way in EXACT.items():
        tpf = check_law_3(checkpoint, prompts, 24, way, exact)
        assert tpf > (1.0 if name == "jacobi" else 1.02)
        check_law_3(checkpoint, prompts[:2], 24, way, exact, **CHANGES["drawn with all"])


def test_law_2_cached_equals_full_recomputation(exact: Checkpoint) -> None:
    settings = DecodeSettings(tau=0.4, block_size=5, max_new_tokens=20)
    settings = replace(settings, **EXACT["mask groups and lookup"])
    check_law_2(exact, word_prompts(exact, 3, seed=5), settings, exact)


def test_few_bits_are_computed_by_the_native_forward(folder: Path, exact: Checkpoint) -> None:
    """And write nearly what fp32 writes: a head normed wrongly would not."""
    prompts = word_prompts(exact, 40)
    wanted = [plain(exact, [prompt], 12)[0] for prompt in prompts]
    for dtype, least in (("int8", 0.8), ("int4", 0.4)):
        few = load_checkpoint(str(folder), device="cpu", dtype=dtype)
        assert isinstance(few.model, NativeModel)
        written = [plain(few, [prompt], 12)[0] for prompt in prompts]
        pairs = zip(wanted, written, strict=True)
        assert sum(ours[:6] == theirs[:6] for ours, theirs in pairs) > least * len(prompts)
