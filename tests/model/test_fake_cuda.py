"""Loading, prefill and whole steps of ``CursorBatch`` on a fake CUDA device; failed captures.

Under FakeTensorMode tensors have shapes and devices and no numbers. An operation that mixes a
tensor on the CPU with one on ``cuda`` fails, and so does reading a number back to the host. In a
step one read is allowed: that of the results, which is counted and gives ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from helpers import Ids, run_again
from native_models import random_adapter
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.overrides import TorchFunctionMode

from mars_runtime.decoders.cursor import CursorBatch
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.model import build
from mars_runtime.model.captured import GraphRecorder
from mars_runtime.model.config import expected_names, expected_shape
from mars_runtime.model.transformer import Transformer
from mars_runtime.settings import MAX_FED, DecodeSettings
from tests.decoders.test_obeyed import VALUES

CONFIG = replace(build.CHECKED, max_positions=512)
CAPACITY, MASK = 256, 3


class Operators(TorchFunctionMode):
    """``x[...]``, ``~x``, ``contiguous`` and ``copy_`` as the operators behind them: the methods
    themselves look for a GPU before they ask the mode. ``num_reads`` counts
    copies to the host."""

    num_reads = 0

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
        if func is Tensor.isfinite:  # asked of weights, which have no numbers here
            return SimpleNamespace(all=lambda: True)
        if func is Tensor.pin_memory:  # needs a real GPU
            return args[0]
        if func is Tensor.__invert__:
            return torch.bitwise_not(*args)
        if func is Tensor.cpu and args[0].is_cuda:
            self.num_reads += 1
            return np.ones(tuple(args[0].shape))  # which has tolist() too
        if func is Tensor.to and not isinstance(args[0], FakeTensor):
            return torch.empty_like(args[0], device=args[1])
        return func(*args, **(kwargs or {}))


def _copied(x: Tensor, source: Tensor) -> Tensor:
    copied: Tensor = torch.ops.aten.copy_.default(x, source)
    return copied


def _taken(x: Tensor, index: Any) -> Tensor:
    tensors: list[Tensor | None] = []
    dim = 0
    parts = index if isinstance(index, tuple) else (index,)
    for place, part in enumerate(parts):
        if part is Ellipsis:
            skipped = x.dim() - dim - sum(part is not None for part in parts[place + 1 :])
            tensors += [None] * skipped
            dim += skipped
            continue
        if isinstance(part, int):
            x = x.select(dim, part)
            continue
        if part is None:
            x = x.unsqueeze(dim)
        elif isinstance(part, slice):
            x = torch.ops.aten.slice.Tensor(x, dim, part.start, part.stop, part.step or 1)
        tensors.append(part if isinstance(part, Tensor) else None)
        dim += 1
    is_plain = all(tensor is None for tensor in tensors)
    return x if is_plain else torch.ops.aten.index.Tensor(x, tensors)


def real_from_numpy(array: Any, make: Any = torch.from_numpy) -> Tensor:
    """A real tensor with numbers that the host may read."""
    with unset_fake_temporarily():
        actual: Tensor = make(array)
        return actual


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch) -> Iterator[Operators]:
    # Without this, tensors of one number stay real and are moved to a real GPU.
    monkeypatch.setattr("torch._subclasses.fake_tensor.CONSTANT_NUMEL_LIMIT", -1)
    monkeypatch.setattr(torch, "from_numpy", real_from_numpy)
    # The twin of a capture: it runs the captured function on the same buffers.
    monkeypatch.setattr("mars_runtime.model.transformer.GraphRecorder", lambda device: run_again)
    with FakeTensorMode(allow_non_fake_inputs=True), Operators() as actual, torch.inference_mode():
        yield actual


@pytest.fixture
def device(operators: Operators) -> torch.device:
    return torch.device("cuda:0")


def model_on(device: torch.device, **more: Any) -> Transformer:
    """A model loaded from weights on the CPU, as from a file."""
    weights = {name: torch.empty(expected_shape(name, CONFIG)) for name in expected_names(CONFIG)}
    return Transformer(CONFIG, weights, device=device, dtype=torch.bfloat16, **more)


def test_loading_leaves_nothing_on_the_cpu(device: torch.device) -> None:
    model = model_on(device)
    assert {weight.device for weight in model.weights()} == {device}
    assert {weight.dtype for weight in model.weights()} == {torch.bfloat16}


@pytest.mark.parametrize("num_rows", [1, 4])
@pytest.mark.parametrize("length", [9, MAX_FED + 1], ids=["captured", "too long to capture"])
def test_prefill_and_its_cache_stay_on_the_gpu(device, num_rows, length) -> None:
    model = model_on(device)
    cache = model.new_cache(num_rows, CAPACITY)
    tokens = torch.zeros(num_rows, length, dtype=torch.long)
    hidden = model.hidden(tokens, cache)
    cache.cursors[:] = [length] * num_rows
    logits = model.logits(model.hidden(tokens, cache), slice(length - 1, length))
    assert hidden.shape == (num_rows, length, CONFIG.hidden_size)
    assert logits.shape == (num_rows, 1, CONFIG.vocab_size)
    remaining = [value for value in vars(cache).values() if isinstance(value, FakeTensor)]
    assert remaining
    assert {item.device for item in (hidden, logits, *remaining)} == {device}


def test_a_tensor_left_on_the_cpu_and_a_number_read_back_fail(device: torch.device) -> None:
    """What the other tests rely on."""
    model = model_on(device)
    hidden = model.hidden(torch.zeros(1, 4, dtype=torch.long), model.new_cache(1, CAPACITY))
    with pytest.raises(RuntimeError, match="device"):
        model.logits(torch.empty(1, 4, CONFIG.hidden_size), slice(0, 4))
    with pytest.raises(DataDependentOutputException):
        bool(hidden.any())


BASES = (
    DecodeSettings(tau=0.0, block_size=4, max_new_tokens=12),
    DecodeSettings(tau=0.0, block_size=4, max_new_tokens=12, lossless=True, lookup=True),
    DecodeSettings(block_size=3, max_new_tokens=12, temperature=0.8, top_p=0.9),
)
CHANGES = [(name, value) for name, values in VALUES.items() for value in values]
COSTS = ForwardCosts(8, {1: (1.0, 1.1, 1.2, 1.3)})


@pytest.mark.parametrize("number", range(len(BASES)))
def test_a_step_reads_from_the_device_once_under_every_setting(device, operators, number) -> None:
    """A batch has a row for each setting."""
    changes = CHANGES[number :: len(BASES)]
    adapter = random_adapter(CONFIG, sampler_width=8)
    model = model_on(device, adapter=adapter, mask_id=MASK)
    vocabulary = Ids(size=CONFIG.vocab_size, mask_id=MASK, eos_ids=frozenset({2}))
    batch = CursorBatch(model, vocabulary, len(changes), 64, COSTS)
    for row, (name, value) in enumerate(changes):
        settings = replace(BASES[number], **{name: value})
        batch.add(row, [5, 6, 7, 5, 6, *range(8, 8 + row)], lambda now=settings: now)
    assert operators.num_reads == 0
    for count in range(1, 4):
        batch.step()
        assert operators.num_reads == count


class Failing(GraphRecorder):
    """A recorder without a device, with captures that raise ``error``."""

    def __init__(self, error: Exception) -> None:
        self.reason, self.num_graphs, self._error = "", 0, error

    def _capture(self, function: object) -> torch.cuda.CUDAGraph:
        raise self._error


def test_a_failed_capture_is_logged_once_and_forwards_run_without_graphs(caplog) -> None:
    record = Failing(RuntimeError("operation not permitted when stream is capturing\nmore"))
    count = torch.zeros(1)
    for _ in range(3):
        record(lambda: count.add_(1))()
    assert count.item() == 3
    assert record.num_graphs == 0
    assert record.reason == "operation not permitted when stream is capturing"
    (line,) = caplog.messages
    assert record.reason in line


def test_a_device_without_memory_raises() -> None:
    record = Failing(torch.cuda.OutOfMemoryError("out of memory"))
    with pytest.raises(torch.cuda.OutOfMemoryError):
        record(lambda: None)
    assert record.reason == ""
