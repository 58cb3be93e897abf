"""The captured step, loading, prefill and the cache on a GPU that is not there.

Under FakeTensorMode tensors have shapes and devices and no numbers. Everything stands on ``cuda``,
so a tensor that was left on the CPU is refused beside the others, and a number that is read back to
the host is refused because there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    FakeTensor,
    FakeTensorMode,
)
from torch.overrides import TorchFunctionMode

from mars_runtime.cache import BlockKVCache
from mars_runtime.decoders.static.batch import CapturedRow, read_settings, shape_for
from mars_runtime.decoders.static.state import Shape, State
from mars_runtime.decoders.static.step import StaticStep
from mars_runtime.methods import METHODS
from mars_runtime.model import build
from mars_runtime.model.config import expected_names, expected_shape
from mars_runtime.model.qwen2 import Qwen2
from mars_runtime.model.shapes import ShapeVocabulary
from mars_runtime.settings import METRICS, DecodeSettings, captured

CONFIG = replace(build.CHECKED, max_positions=512)
CAPACITY, MASK = 256, 3
UNLIKE_CAPTURED = [
    ("groups", "every"),
    ("lookup", True),
    ("threshold", "entropy"),
    ("threshold", "agreement"),
]
STATE = ("numbers", "pending", "wholes", "reals", "ring", "tick")


class Operators(TorchFunctionMode):
    """``x[...]``, ``~x``, ``contiguous`` and ``copy_`` by the operators behind them: as they are,
    they ask for a GPU before they ask the mode."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is Tensor.__getitem__:
            return _taken(*args)
        if func is Tensor.__setitem__:
            x, index, value = args
            place = _taken(x, index)
            return _copied(place, value) if isinstance(value, Tensor) else place.fill_(value)
        if func is Tensor.copy_:
            return _copied(*args)
        if func is Tensor.contiguous:
            return torch.ops.aten.clone.default(*args, memory_format=torch.contiguous_format)
        if func is Tensor.__invert__:
            return torch.bitwise_not(*args)
        return func(*args, **(kwargs or {}))


def _copied(x: Tensor, source: Tensor) -> Tensor:
    copied: Tensor = torch.ops.aten.copy_.default(x, source)
    return copied


def _taken(x: Tensor, index: Any) -> Tensor:
    tensors: list[Tensor | None] = []
    dim = 0
    parts = index if isinstance(index, tuple) else (index,)
    for place, each in enumerate(parts):
        if each is Ellipsis:
            skipped = x.dim() - dim - sum(part is not None for part in parts[place + 1 :])
            tensors += [None] * skipped
            dim += skipped
            continue
        if isinstance(each, int):
            x = x.select(dim, each)
            continue
        if each is None:
            x = x.unsqueeze(dim)
        elif isinstance(each, slice):
            x = torch.ops.aten.slice.Tensor(x, dim, each.start, each.stop, each.step or 1)
        tensors.append(each if isinstance(each, Tensor) else None)
        dim += 1
    is_plain = all(each is None for each in tensors)
    return x if is_plain else torch.ops.aten.index.Tensor(x, tensors)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    # Tensors of one number would be kept as they are, and moved to a GPU in earnest.
    monkeypatch.setattr("torch._subclasses.fake_tensor.CONSTANT_NUMEL_LIMIT", -1)
    with FakeTensorMode(), Operators(), torch.inference_mode():
        yield torch.device("cuda:0")


def model_on(device: torch.device) -> Qwen2:
    """Loaded as from a file, whose tensors lie on the CPU."""
    weights = {name: torch.empty(expected_shape(name, CONFIG)) for name in expected_names(CONFIG)}
    return Qwen2(CONFIG, weights, device=device, dtype=torch.bfloat16)


def step_on(
    model: Qwen2, num_rows: int, mask_id: int | None = MASK
) -> tuple[StaticStep, State, BlockKVCache]:
    vocabulary = ShapeVocabulary(size=CONFIG.vocab_size, mask_id=mask_id)
    state = State.new(num_rows, 2, model.device)
    cache = model.new_cache(num_rows, CAPACITY)
    return StaticStep(model, vocabulary, cache, state), state, cache


def test_loading_leaves_nothing_on_the_cpu(device: torch.device) -> None:
    model = model_on(device)
    assert {weight.device for weight in model.weights()} == {device}
    assert {weight.dtype for weight in model.weights()} == {torch.bfloat16}


@pytest.mark.parametrize("num_rows", [1, 4])
def test_prefill_and_its_cache_stay_on_the_gpu(device: torch.device, num_rows: int) -> None:
    model = model_on(device)
    cache = model.new_cache(num_rows, CAPACITY)
    tokens = torch.zeros(num_rows, 9, dtype=torch.long, device=device)
    hidden = model.hidden(tokens, cache)
    cache.cursors[:] = [9] * num_rows
    logits = model.logits(model.hidden(tokens, cache), slice(8, 9))
    assert hidden.shape == (num_rows, 9, CONFIG.hidden_size)
    assert logits.shape == (num_rows, 1, CONFIG.vocab_size)
    kept = [value for value in vars(cache).values() if isinstance(value, FakeTensor)]
    assert kept
    assert {each.device for each in (hidden, logits, *kept)} == {device}


@pytest.mark.parametrize("num_rows", [1, 4])
@pytest.mark.parametrize(
    ("num_queries", "num_slots", "more"),
    [
        (1, 1, {}),  # AR
        (4, 4, {}),  # MARS, B = 4, nothing to verify
        (7, 7, {"is_lossless": True}),
        (7, 7, {"is_lossless": True, "is_entropy": True, "is_drawn": True}),
    ],
)
def test_a_step_stays_on_the_gpu(
    device: torch.device,
    num_rows: int,
    num_queries: int,
    num_slots: int,
    more: dict[str, bool],
) -> None:
    step, state, _ = step_on(model_on(device), num_rows)
    step(Shape(num_rows, num_queries, num_slots, CAPACITY, **more))
    assert {getattr(state, name).device for name in STATE} == {device}


WAYS = [
    *[DecodeSettings(method=name) for name in METHODS if name in ("mars", "ar", "jacobi")],  # type: ignore[arg-type]
    *[
        DecodeSettings(metric=each, lossless=is_exact)
        for each in METRICS
        for is_exact in (False, True)
    ],
    *[DecodeSettings(block_size=size, lossless=True) for size in (1, 5, 16)],
    *[DecodeSettings(temperature=0.7, top_p=top_p, lossless=True) for top_p in (0.5, 1.0)],
    *[DecodeSettings(**{name: value}) for name, value in UNLIKE_CAPTURED],
]


@pytest.mark.parametrize("settings", WAYS, ids=repr)
def test_every_setting_leads_to_a_step_that_stays_on_the_gpu(
    device: torch.device, settings: DecodeSettings
) -> None:
    row = CapturedRow(0, lambda: settings, 99, first=5, unread=[], cursor=20)
    in_force = read_settings([row], None, has_mask=True)
    step, state, _ = step_on(model_on(device), 1)
    step(shape_for(in_force, 1, 1, CAPACITY))
    assert {getattr(state, name).device for name in STATE} == {device}
    assert in_force[row].settings == captured(settings)


def test_a_tensor_left_on_the_cpu_fails_the_step(device: torch.device) -> None:
    step, _, _ = step_on(model_on(device), 1)
    step._forbidden = step._forbidden.cpu()
    with pytest.raises(RuntimeError, match="device"):
        step(Shape(1, 4, 4, CAPACITY))


def test_a_number_read_back_fails_the_step(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, state, _ = step_on(model_on(device), 1)
    forward_at = Qwen2.forward_at

    def reading(self: Qwen2, *args: Any) -> Tensor:
        assert not bool(state.tick.any())
        return forward_at(self, *args)

    monkeypatch.setattr(Qwen2, "forward_at", reading)
    with pytest.raises(DataDependentOutputException):
        step(Shape(1, 4, 4, CAPACITY))
