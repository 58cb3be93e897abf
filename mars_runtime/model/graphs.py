"""Runs one function on a device again and again: captured as CUDA graphs where that is possible.

A capture records the kernels that a function starts, and a replay starts them all at once, which
spares the host hundreds of launches. It asks that the function works on the same memory with the
same shapes each time and never waits for the device. Where capture is not possible the function
simply runs, and the log says why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

import torch
from torch import Tensor

LOG = logging.getLogger(__name__)
NUM_WARM_UPS = 2
"""Runs before a capture: libraries choose kernels and take workspaces at the first."""


class Arrival(Protocol):
    """Numbers on their way to the host."""

    def wait(self) -> list[float]:
        """Return them once they are there."""


class Runner(Protocol):
    """Runs functions on a device and brings numbers back."""

    @property
    def reason(self) -> str:
        """Why functions run without a graph; empty while graphs are used."""

    def run(self, key: Hashable, function: Callable[[], None]) -> None:
        """Run ``function`` once. The same key promises the same kernels on the same memory."""

    def fetch(self, numbers: Tensor) -> Arrival:
        """Start to copy ``numbers`` [N]; they must stay as they are until they have arrived."""


def new_runner(device: torch.device, changed: Sequence[Tensor]) -> Runner:
    """Graphs on CUDA, else plain runs.

    changed: tensors that a run changes and that count; a capture puts back what its warm-up did.
    """
    if device.type == "cuda":
        return GraphRunner(device, changed)
    return EagerRunner("CUDA graphs need a CUDA device")


class EagerRunner:
    """Runs the function as it is."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        LOG.info("Steps run without graphs: %s.", reason)

    def run(self, key: Hashable, function: Callable[[], None]) -> None:
        """Run ``function``."""
        function()

    def fetch(self, numbers: Tensor) -> Arrival:
        """On a CPU the numbers are there already; later steps must not change them."""
        return _Here(numbers.clone())


class GraphRunner:
    """Captures a function at the first meeting of its key, then replays it.

    All captures share one memory pool: they never run at the same time, and nothing in the pool
    outlives a run. Copies to the host go by a stream of their own, so that the next run starts
    while they are under way.
    """

    def __init__(self, device: torch.device, changed: Sequence[Tensor]) -> None:
        self.reason = ""
        self._changed = tuple(changed)
        self._device = device
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._capture_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._copy_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @property
    def num_graphs(self) -> int:
        """Captures so far."""
        return len(self._graphs)

    def run(self, key: Hashable, function: Callable[[], None]) -> None:
        """Replay, or capture and replay, or run without a graph after a capture that failed."""
        if self.reason:
            function()
            return
        if key not in self._graphs:
            try:
                self._graphs[key] = self._capture(function)
            except torch.cuda.OutOfMemoryError:
                raise  # it would fail without a graph as well: the caller decides
            except RuntimeError as error:
                self.reason = f"capture failed ({str(error).splitlines()[0]})"
                LOG.warning("Steps run without graphs: %s.", self.reason)
                function()
                return
        self._graphs[key].replay()

    def fetch(self, numbers: Tensor) -> Arrival:
        """Copy into pinned memory when all work so far is done."""
        here = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
        self._copy_stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._copy_stream):
            here.copy_(numbers, non_blocking=True)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record()
        return _OnItsWay(here, done)

    def _capture(self, function: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Warm up and capture on a stream of its own; whatever happens, the state is put back."""
        torch.cuda.synchronize(self._device)
        saved = [tensor.clone() for tensor in self._changed]
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.stream(self._capture_stream):
                for _ in range(NUM_WARM_UPS):
                    function()
            torch.cuda.synchronize(self._device)
            # cuBLAS is to take its workspace anew, out of the graphs' own pool: others that capture
            # (torch.compile) give back those there are, and a replay would write into their memory.
            torch._C._cuda_clearCublasWorkspaces()
            # Other threads may use other models on this device meanwhile.
            with torch.cuda.graph(
                graph,
                pool=self._pool,
                stream=self._capture_stream,
                capture_error_mode="thread_local",
            ):
                function()
        finally:
            torch.cuda.synchronize(self._device)
            torch._C._cuda_clearCublasWorkspaces()
            for tensor, before in zip(self._changed, saved, strict=True):
                tensor.copy_(before)
        return graph


class _Here:
    def __init__(self, numbers: Tensor) -> None:
        self._numbers = numbers

    def wait(self) -> list[float]:
        found: list[float] = self._numbers.tolist()
        return found


class _OnItsWay:
    def __init__(self, numbers: Tensor, done: torch.cuda.Event) -> None:
        self._numbers = numbers
        self._done = done

    def wait(self) -> list[float]:
        self._done.synchronize()
        found: list[float] = self._numbers.tolist()
        return found
