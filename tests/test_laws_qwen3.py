"""The laws on Qwen3, which norms its heads and has heads wider than its hidden states: in fp32,
and in the native forward with 4 and 8 bits.

The laws are those of ``test_laws.py``. Their bitwise forms run on a Qwen3 in test_law_bitwise.py.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from helpers import qwen3_config, steps_of, tokens_of, train_foreseeing, write_checkpoint
from law_checkpoints import draft_of, load, plain, run, word_prompts
from test_laws import CHANGES, EXACT, FREE, check_law_1, check_law_3, check_law_8, check_same

from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.model.native.model import NativeModel
from mars_runtime.settings import DecodeSettings
from tests import slow_twin

pytestmark = pytest.mark.usefixtures("each_forward")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_foreseeing(tmp_path_factory.mktemp("qwen3"), make_config=qwen3_config)


@pytest.fixture(scope="module")
def exact(folder: Path) -> Checkpoint:
    return load(str(folder))


@pytest.fixture(scope="module", params=["fp32", "int8", "int4"])
def checkpoint(request: pytest.FixtureRequest, folder: Path) -> Checkpoint:
    return load_checkpoint(str(folder), device="cpu", dtype=request.param)


@pytest.mark.parametrize("changes", [{}, CHANGES["repetition"]])
def test_law_1_ar_equals_transformers(exact: Checkpoint, changes: dict[str, float]) -> None:
    check_law_1(exact, word_prompts(exact, 40), 24, **changes)


@pytest.mark.parametrize("is_tied", [True, False])
def test_law_1_on_random_weights(tmp_path: Path, is_tied: bool) -> None:
    write_checkpoint(tmp_path, make_config=qwen3_config, tie_word_embeddings=is_tied)
    random = load(str(tmp_path))
    check_law_1(random, word_prompts(random, 40), 24)


@pytest.mark.parametrize("way", EXACT)
def test_law_3_exact_methods_write_what_ar_writes(
    checkpoint: Checkpoint, exact: Checkpoint, way: str
) -> None:
    prompts = word_prompts(checkpoint, 16, seed=21)
    tpf = check_law_3(checkpoint, prompts, 24, EXACT[way], exact)
    assert tpf > (1.0 if way == "jacobi" else 1.02)
    check_law_3(checkpoint, prompts[:4], 24, EXACT[way], exact, **CHANGES["drawn with all"])


@pytest.mark.parametrize("way", ["unverified", "masks", "mask groups and lookup"])
def test_law_2_cached_equals_full_recomputation(exact: Checkpoint, way: str) -> None:
    prompts = word_prompts(exact, 3, seed=5)
    run_settings = DecodeSettings(tau=0.4, block_size=5, max_new_tokens=20, **(FREE | EXACT)[way])
    cached = run(exact, prompts, run_settings)
    slow = list(
        slow_twin.decode(
            exact.model, exact.tokenizer, prompts, partial(replace, run_settings), draft_of(exact)
        )
    )
    for row in range(len(prompts)):
        check_same(steps_of(cached, row), steps_of(slow, row))


def test_law_2_a_row_equals_the_row_alone(checkpoint: Checkpoint) -> None:
    prompts = word_prompts(checkpoint, 4, seed=3)
    for way in ({}, EXACT["masks"], EXACT["mask groups"]):
        run_settings = DecodeSettings(tau=0.4, block_size=6, max_new_tokens=24, **way)
        together = tokens_of(run(checkpoint, prompts, run_settings), len(prompts))
        alone = [tokens_of(run(checkpoint, [prompt], run_settings))[0] for prompt in prompts]
        assert together == alone


def test_law_8_one_token_a_forward(exact: Checkpoint) -> None:
    check_law_8(exact, word_prompts(exact, 6, seed=2))


def test_few_bits_are_computed_by_the_native_forward(folder: Path, exact: Checkpoint) -> None:
    """And write nearly what fp32 writes: a head normed wrongly would not."""
    prompts = word_prompts(exact, 40)
    wanted = [plain(exact, [prompt], 12)[0] for prompt in prompts]
    for dtype, least in (("int8", 0.8), ("int4", 0.4)):
        few = load_checkpoint(str(folder), device="cpu", dtype=dtype)
        assert isinstance(few.model, NativeModel)
        written = [plain(few, [prompt], 12)[0] for prompt in prompts]
        num_same = sum(
            expected[:6] == actual[:6] for expected, actual in zip(wanted, written, strict=True)
        )
        assert num_same > least * len(prompts)
