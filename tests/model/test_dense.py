"""Dense weights on a CPU: quantised as they are read, in 8 bits unless fp32 is faster, and a folder
laid out as the authors of the paper publish theirs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mars_runtime.model.load import load_checkpoint
from mars_runtime.model.native.model import NativeModel
from mars_runtime.model.registry import registry
from tests.published import write_published


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_published(tmp_path_factory.mktemp("published") / "MARS")


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


def test_bundled_checkpoints_stay_in_what_their_figures_were_measured_in() -> None:
    pinned = {name for name, entry in registry().items() if entry.dtype}
    assert pinned == {name for name, entry in registry().items() if entry.path}
    assert load_checkpoint("mars-tiny-draft", device="cpu").model.arithmetic == "float32"
    request = load_checkpoint("mars-tiny-draft", device="cpu", dtype="int8")
    assert request.model.arithmetic.startswith("int8")
