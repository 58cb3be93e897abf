"""The native forward against plain PyTorch on the same numbers, and where it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_models import (
    CONFIGS,
    LLAMA,
    MASK_ID,
    TARGETS,
    library_for,
    native_model,
    random_adapter,
    random_weights,
)

from mars_runtime.cache import PackedKVCache
from mars_runtime.errors import DecodeError
from mars_runtime.model.adapter import Adapter, Update
from mars_runtime.model.build import build_model, check_library, native_library
from mars_runtime.model.config import (
    CheckpointError,
    RopeScaling,
    expected_names,
    expected_shape,
)
from mars_runtime.model.forward import SamplingMetadata
from mars_runtime.model.native.library import CompileError, LayerStruct
from mars_runtime.model.native.model import NativeModel
from mars_runtime.model.native.weights import LOW_BITS, LayerWeights
from mars_runtime.model.quantized import GROUP_SIZE, GroupedMatrix
from mars_runtime.model.transformer import Transformer
from mars_runtime.settings import MAX_FED

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[2]
FORBIDDEN = torch.tensor([0, MASK_ID])
STRETCHED = replace(LLAMA, rope_scaling=RopeScaling(8.0, 1.0, 4.0, 32), rope_theta=500000.0)


def ids_of(*shape: int) -> torch.Tensor:
    return torch.randint(5, 140, shape, generator=torch.Generator().manual_seed(3))


def relative_error(actual: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((actual - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("name", [*sorted(CONFIGS), "stretched"])
def test_logits_are_those_of_the_same_weights_in_fp32_up_to_8_bits(name: str, bits: int) -> None:
    config = STRETCHED if name == "stretched" else CONFIGS[name]
    weights = random_weights(config, bits)
    plain = Transformer(config, weights)
    native = NativeModel(config, weights, library_for("this processor"))
    ids = ids_of(2, 70)
    actual = native.forward(ids, native.new_cache(2, 80), slice(None))
    wanted = plain.forward(ids, plain.new_cache(2, 80), slice(None))
    assert 0 < relative_error(actual, wanted) < 0.1


def as_kept(adapter: Adapter) -> Adapter:
    """What is left of an adapter once its matrices are rounded to a few bits."""

    def kept(matrix: torch.Tensor) -> torch.Tensor:
        padded = torch.nn.functional.pad(matrix, (0, -matrix.shape[1] % GROUP_SIZE))
        return GroupedMatrix.quantize(padded, LOW_BITS).dense()[:, : matrix.shape[1]]

    layers = tuple(
        {part: Update(kept(update.a), kept(update.b)) for part, update in layer.items()}
        for layer in adapter.layers
    )
    return replace(adapter, layers=layers)


@pytest.mark.parametrize("bits", [4, 8])
def test_an_adapter_moves_masks_as_in_the_plain_forward_and_nothing_else(bits: int) -> None:
    weights, adapter = random_weights(LLAMA, bits), random_adapter(LLAMA)
    native = native_model("llama", bits, has_adapter=True)
    plain, exact = (
        Transformer(LLAMA, weights, adapter=item, mask_id=MASK_ID)
        for item in (as_kept(adapter), adapter)
    )
    bare = native_model("llama", bits)
    ids = torch.cat([ids_of(1, 20), torch.full((1, 4), MASK_ID)], 1)
    actual, wanted, unrounded = (
        model.hidden(ids, model.new_cache(1, 32)) for model in (native, plain, exact)
    )
    error = relative_error(actual[:, 20:], wanted[:, 20:])
    assert error < 0.1
    assert error < 0.4 * relative_error(actual[:, 20:], unrounded[:, 20:])
    untouched = bare.hidden(ids, bare.new_cache(1, 32))
    assert torch.equal(actual[:, :20], untouched[:, :20])
    assert relative_error(actual[:, 20:], untouched[:, 20:]) > 0.2


@settings(max_examples=20)
@given(
    metric=st.sampled_from(["probability", "margin", "entropy"]),
    name=st.sampled_from(["llama", "untied"]),
    count=st.integers(1, 30),
)
def test_readings_are_those_of_the_logits(metric: str, name: str, count: int) -> None:
    model = native_model(name)
    hidden = model.hidden(ids_of(1, count), model.new_cache(1, 32))
    sampling = SamplingMetadata(FORBIDDEN, [metric])
    actual = model.predict(hidden, slice(0, count), sampling)[0]
    wanted = sampling.proposals(model.logits(hidden, slice(0, count)))[0]
    for ours, theirs in zip(actual, wanted, strict=True):
        assert ours.token == theirs.token
        assert ours.confidence == pytest.approx(theirs.confidence, abs=1e-5)
        assert [item for item, _ in ours.runners_up] == [entry for entry, _ in theirs.runners_up]
        for (_, first), (_, other) in zip(ours.runners_up, theirs.runners_up, strict=True):
            assert first == pytest.approx(other, abs=1e-6)


def test_with_all_but_one_token_forbidden_that_one_is_sure() -> None:
    model = native_model("untied")
    hidden = model.hidden(ids_of(1, 1), model.new_cache(1, 8))
    forbidden = torch.tensor([i for i in range(149) if i != 148])
    (slot,) = model.predict(hidden, slice(0, 1), SamplingMetadata(forbidden, ["probability"]))[0]
    assert (slot.token, slot.confidence, slot.runners_up) == (148, 1.0, ())


def test_what_is_no_number_names_its_row() -> None:
    model = native_model("llama")
    hidden = model.hidden(ids_of(3, 2), model.new_cache(3, 8))
    hidden[1, 1, 5] = torch.nan
    with pytest.raises(DecodeError) as error:
        model.predict(hidden, slice(0, 2), SamplingMetadata(FORBIDDEN, ["probability"] * 3))
    assert error.value.rows == (1,)


def test_what_does_not_fit_or_does_not_exist_is_refused() -> None:
    model = native_model("llama")
    cache = model.new_cache(1, 8)
    with pytest.raises(ValueError, match="needs 9 slots"):
        model.hidden(ids_of(1, 9), cache)
    for wrong in (-1, LLAMA.vocab_size):
        with pytest.raises(IndexError, match="token ids must be between"):
            model.hidden(torch.tensor([[wrong]]), cache)
    weights = random_weights(LLAMA, 4)
    del weights["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(CheckpointError, match="up_proj"):
        NativeModel(LLAMA, weights, library_for("this processor"))
    weights["model.layers.1.mlp.up_proj.weight"] = GroupedMatrix.quantize(torch.ones(32, 32), 4)
    with pytest.raises(CheckpointError, match="shape"):
        NativeModel(LLAMA, weights, library_for("this processor"))


@pytest.mark.parametrize("change", [{"hidden_size": 80}, {"head_dim": 16, "num_heads": 12}])
def test_shapes_it_can_not_run_go_to_the_plain_forward(change, caplog) -> None:
    config = replace(LLAMA, **change)
    weights = {name: torch.randn(expected_shape(name, config)) for name in expected_names(config)}
    model = build_model(config, weights, device=CPU)
    assert isinstance(model, Transformer)
    assert "multiples of 32" in caplog.text
    with pytest.raises(CheckpointError, match="multiples of 32"):
        build_model(config, weights, device=CPU, dtype="int8")


def test_weights_are_converted_to_the_bits_that_are_asked_for() -> None:
    weights = random_weights(LLAMA, 4)
    kinds = {
        kind: build_model(LLAMA, weights, device=CPU, dtype=kind)
        for kind in ("auto", "int4", "int8", "fp32")
    }
    assert [isinstance(item, NativeModel) for item in kinds.values()] == [True, True, True, False]
    sizes = {
        kind: sum(map(torch.numel, checkpoint.weights())) for kind, checkpoint in kinds.items()
    }
    assert sizes["auto"] == sizes["int4"] < sizes["int8"]
    assert kinds["int8"].arithmetic == "int8 weights, int8 products"
    mixed = weights | {"model.layers.0.self_attn.v_proj.weight": torch.randn(64, 96)}
    assert build_model(LLAMA, mixed, device=CPU).arithmetic.startswith("int4 and int8 weights")


def test_rows_of_a_cache_move_with_all_they_hold() -> None:
    model, ids = native_model("llama"), ids_of(3, 70)
    cache: PackedKVCache = model.new_cache(3, 70 + MAX_FED)
    for row in range(3):
        model.hidden(ids[row : row + 1, : 40 + row], cache.row(row))
        cache.cursors[row] = 40 + row
    wanted = [model.hidden(ids[row : row + 1, 50:53], cache.row(row))[0] for row in range(3)]
    cache.swap(0, 2)
    cache.move(1, 0)
    assert cache.cursors == [41, 41, 40]
    for row, source in ((0, 1), (2, 0)):
        actual = model.hidden(ids[source : source + 1, 50:53], cache.row(row))[0]
        assert torch.equal(actual, wanted[source])
    cache.clear(2)
    assert cache.cursors[2] == 0
    assert not cache.store[:, 2].any()
    assert cache.num_bytes == cache.store.numel() * 2


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_the_check_at_load_passes_on_every_kind_of_processor(target: str) -> None:
    check_library(library_for(target))


def test_the_check_at_load_notices_that_head_norms_are_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer_of = NativeModel._layer

    def without_head_norms(self: NativeModel, layer: LayerWeights) -> LayerStruct:
        struct = layer_of(self, layer)
        struct.query_norm = struct.key_norm = None
        return struct

    monkeypatch.setattr(NativeModel, "_layer", without_head_norms)
    with pytest.raises(CompileError, match="computes wrong results"):
        check_library(native_library())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_of_a_fork_runs_forwards_of_its_own() -> None:
    model, ids = native_model("llama"), ids_of(1, 5)
    torch.set_num_threads(2)
    try:
        wanted = model.hidden(ids, model.new_cache(1, 8))
        child = os.fork()
        if child == 0:
            is_equal = torch.equal(model.hidden(ids, model.new_cache(1, 8)), wanted)
            os._exit(0 if is_equal else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        torch.set_num_threads(1)


ENDING = """
import atexit, os, threading, torch
from tests.native_models import native_model

steps = threading.Semaphore(0)

def work():
    model, ids = native_model("llama"), torch.full((1, 64), 7)
    while True:
        model.forward(ids, model.new_cache(1, 128), slice(None))
        steps.release()

threading.Thread(target=work, daemon=True).start()
for _ in range(3):
    steps.acquire()
atexit._run_exitfuncs()
for _ in range(9):  # forwards continue meanwhile
    steps.acquire(timeout=1.0)
os._exit(0)
"""


def test_a_process_may_end_in_the_middle_of_a_forward() -> None:
    """As ``app.py`` ends, while a thread decodes."""
    command = [sys.executable, "-c", ENDING]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, b"")
