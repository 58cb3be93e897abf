"""Dense weights on a CPU: quantised as they are read, in 8 bits unless fp32 is faster, and a folder
laid out as the authors of the paper publish theirs."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from mars_runtime.model import build
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.load import load_checkpoint
from mars_runtime.model.native.library import CompileError
from mars_runtime.model.native.model import NativeModel
from mars_runtime.model.native.weights import Arena, DenseRows, pack, packed_bytes
from mars_runtime.model.quantized import GroupedMatrix
from mars_runtime.model.registry import registry
from tests.native_models import library_for
from tests.published import write_published

FLOATS = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_published(tmp_path_factory.mktemp("published") / "MARS")


@pytest.mark.parametrize("target", ["this processor", "AVX2", "plain"])
@settings(max_examples=20, deadline=None)
@given(
    bits=st.sampled_from([4, 8]),
    dtype=st.sampled_from(FLOATS),
    rows=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    width=st.sampled_from([32, 64, 160]),
    spread=st.sampled_from([0.0, 1e-6, 0.02, 30.0]),
    seed=st.integers(0, 999),
)
def test_the_library_quantises_and_packs_as_the_plain_code_does(
    target: str,
    bits: int,
    dtype: torch.dtype,
    rows: list[int],
    width: int,
    spread: float,
    seed: int,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    parts = [(torch.randn(n, width, generator=generator) * spread).to(dtype) for n in rows]
    parts[0][0, :32] = 1.0  # a group without any spread
    order = torch.randperm(sum(rows), generator=generator)
    matrix = DenseRows(tuple(parts), bits, "w", order)
    plain = GroupedMatrix.quantize(torch.cat(parts).float(), bits).rows(order)
    packed = Arena(packed_bytes(matrix), library_for(target)).put(matrix)
    wanted = pack(plain).flatten()
    # Zero may be written with either sign where all of a group is zero.
    same = (packed == wanted) | (wanted == 0) & (packed == 128) | (wanted == 128) & (packed == 0)
    assert bool(same.all())
    assert matrix.shape == plain.shape


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("bits", [4, 8])
def test_numbers_that_are_none_are_found_while_packing(odd: float, bits: int) -> None:
    weight = torch.randn(40, 64)
    weight[37, 63] = odd
    matrix = DenseRows((weight,), bits, "model.layers.0.mlp.up_proj.weight")
    with pytest.raises(CheckpointError, match=r"up_proj\.weight is not finite"):
        Arena(packed_bytes(matrix), library_for("this processor")).put(matrix)


def test_a_published_folder_is_computed_in_int8_by_the_native_forward(published: Path) -> None:
    messages: list[str] = []
    checkpoint = load_checkpoint(str(published), device="cpu", progress=messages.append)
    assert isinstance(checkpoint.model, NativeModel)
    assert checkpoint.model.is_bitwise
    assert checkpoint.model.arithmetic == "int8 weights, int8 products"
    assert messages[0] == "Reading MARS…"
    assert messages[-1] == "Packing the weights of MARS for this processor: 67%"
    body = {kind: load_checkpoint(str(published), device="cpu", dtype=kind) for kind in
             ("int4", "int8", "fp32", "bf16")}  # fmt: skip
    assert body["int4"].model.arithmetic.startswith("int4")
    assert body["bf16"].model.arithmetic == "bfloat16"
    ids = torch.randint(5, 300, (1, 30), generator=torch.Generator().manual_seed(1))
    logits = {
        kind: item.model.logits(item.model.hidden(ids, item.model.new_cache(1, 32)), slice(None))
        for kind, item in body.items()
    }
    model = checkpoint.model
    actual = model.logits(model.hidden(ids, model.new_cache(1, 32)), slice(None))
    assert torch.equal(actual, logits["int8"])
    assert (actual - logits["fp32"]).norm() < 0.05 * logits["fp32"].norm()


def test_without_a_compiler_dense_weights_are_fp32_and_one_sentence_says_so(
    published: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise CompileError("This machine has no C++ compiler.")

    monkeypatch.setattr(build, "native_library", refuse)
    with caplog.at_level(logging.WARNING):
        checkpoint = load_checkpoint(str(published), device="cpu")
    assert checkpoint.model.arithmetic == "float32"
    (said,) = [
        record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
    ]
    assert said.startswith("This machine has no C++ compiler. Dense weights are computed in fp32,")


def test_bundled_checkpoints_stay_in_what_their_figures_were_measured_in() -> None:
    pinned = {name for name, entry in registry().items() if entry.dtype}
    assert pinned == {name for name, entry in registry().items() if entry.path}
    assert load_checkpoint("mars-tiny-draft", device="cpu").model.arithmetic == "float32"
    request = load_checkpoint("mars-tiny-draft", device="cpu", dtype="int8")
    assert request.model.arithmetic.startswith("int8")


def test_weights_of_several_kinds_in_one_part_are_joined(published: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    for file in published.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights = load_file(folder / "model.safetensors")
    name = "model.layers.0.self_attn.k_proj.weight"
    weights[name] = weights[name].float()
    save_file(weights, folder / "model.safetensors")
    kinds = [load_checkpoint(str(item), device="cpu").model for item in (published, folder)]
    ids = torch.arange(5, 25).unsqueeze(0)
    first, other = (model.hidden(ids, model.new_cache(1, 32)) for model in kinds)
    assert torch.equal(first, other)
