"""Replay the layers of forward passes as CUDA graphs, one graph per bucket of rows, tokens and
context.

Inputs are padded to the next larger bucket. Padding tokens write their keys and values to slots
that no row reads: after the tokens of their own row, or, in rows that are all padding, into the
last slots. The host launches the rest of a pass while the device still runs the layers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mars_runtime.model.forward import Branches
from mars_runtime.settings import MAX_FED

LOG = logging.getLogger(__name__)

TOKENS = (1, 2, 4, 8, 16, 32, MAX_FED)  # per row of a bucket
FIRST_CONTEXT = 256  # slots that attention reads in the smallest bucket; doubled for the next
NUM_WARM_UPS = 2  # before a capture, so that libraries choose kernels and allocate workspaces

Record = Callable[[Callable[[], None]], Callable[[], None]]
"""Takes a function and returns another one that replays it on the same memory."""
Run = Callable[[Tensor, Tensor, Branches, int], Tensor]
"""The function to record, of tokens [R, Q], cursors [R], branches and the number of slots that
attention reads. Returns the hidden states. The host must not wait for the device."""


class Bucket(NamedTuple):
    """context: number of cache slots that attention reads."""

    num_rows: int
    num_tokens: int
    context: int


class GraphRecorder:
    """All graphs share a memory pool: they never run at the same time, and each copies its result
    out of the pool. After a failed capture, functions run without graphs. Raises
    torch.cuda.OutOfMemoryError.
    """

    def __init__(self, device: torch.device) -> None:
        self.reason = ""  # why functions run without graphs
        self.num_graphs = 0
        self._device = device
        self._pool: Any = None
        self._stream: Any = None

    def __call__(self, function: Callable[[], None]) -> Callable[[], None]:
        if self.reason:
            return function
        try:
            graph = self._capture(function)
        except torch.cuda.OutOfMemoryError:
            raise  # the function would fail without a graph too, so the caller must handle this
        except RuntimeError as error:
            self.reason = str(error).splitlines()[0]
            LOG.warning(
                "Forward passes run without CUDA graphs, because a capture failed (%s).",
                self.reason,
            )
            return function
        self.num_graphs += 1
        return graph.replay

    def _capture(self, function: Callable[[], None]) -> torch.cuda.CUDAGraph:
        if self._stream is None:
            self._pool = torch.cuda.graph_pool_handle()
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.stream(self._stream):
                for _ in range(NUM_WARM_UPS):
                    function()
            torch.cuda.synchronize(self._device)
            # This call makes cuBLAS allocate a workspace for the capture, in the graphs' pool.
            # Other captures (torch.compile) can free a shared workspace that replays still use.
            torch._C._cuda_clearCublasWorkspaces()
            # "thread_local", because other threads may use this device during the capture.
            with torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            ):
                function()
        finally:
            torch.cuda.synchronize(self._device)
            torch._C._cuda_clearCublasWorkspaces()
        return graph


class CapturedForward:
    """The recorded forward passes of one KV cache."""

    def __init__(
        self, rows: int, capacity: int, hidden_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._rows, self._capacity = rows, capacity
        size = rows * (1 + 5 * MAX_FED)
        self._numbers = torch.zeros(size, dtype=torch.long, device=device)
        self._states = torch.zeros(rows * MAX_FED, hidden_size, dtype=dtype, device=device)
        # Two buffers: one can be filled while the other is still being transferred.
        self._host_buffers = [torch.zeros(size, dtype=torch.long) for _ in range(2)]
        if device.type == "cuda":
            self._host_buffers = [buffer.pin_memory() for buffer in self._host_buffers]
        self._replays: dict[Bucket, Callable[[], None]] = {}

    def bucket(self, num_rows: int, num_tokens: int, cursors: Sequence[int]) -> Bucket | None:
        """Return None if no bucket fits the tokens and the cache."""
        fitting = [size for size in TOKENS if size >= num_tokens]
        if not fitting or max(cursors) + fitting[0] > self._capacity:
            return None
        context = FIRST_CONTEXT
        while context < max(cursors) + fitting[0]:
            context *= 2
        rows = 1 << (num_rows - 1).bit_length()
        return Bucket(min(rows, self._rows), fitting[0], min(context, self._capacity))

    def __call__(
        self,
        bucket: Bucket,
        tokens: Tensor,
        cursors: Sequence[int],
        branches: Branches | None,
        make_run: Callable[[], Run],
        record: Record,
    ) -> Tensor:
        """tokens: [R, Q], on the host. Returns states [R, Q, hidden] as a view that the next
        forward pass on this cache overwrites.
        """
        rows, width = tokens.shape
        self._send(bucket, tokens, cursors, branches)
        if bucket not in self._replays:
            self._replays[bucket] = record(partial(self._fill, bucket, make_run()))
        self._replays[bucket]()
        return self._out(bucket)[:rows, :width]

    def _send(
        self, bucket: Bucket, tokens: Tensor, cursors: Sequence[int], branches: Branches | None
    ) -> None:
        rows, width = tokens.shape
        source = self._host_buffers[0]
        self._host_buffers.reverse()
        padded_cursors, parts = _split(source, bucket)
        padded_cursors.fill_(self._capacity - bucket.num_tokens)
        padded_cursors[:rows] = torch.tensor(cursors)
        slots = torch.arange(bucket.num_tokens)
        parts[0] = 0
        parts[1:] = slots  # padding tokens are causal
        parts[0, :rows, :width] = tokens
        for part, values in zip(parts[1:], branches.parts if branches else (), strict=False):
            part[:rows, :width] = values
        size = bucket.num_rows * (1 + 5 * bucket.num_tokens)
        self._numbers[:size].copy_(source[:size], non_blocking=True)

    def _fill(self, bucket: Bucket, run: Run) -> None:
        cursors, (tokens, *parts) = _split(self._numbers, bucket)
        states = run(tokens, cursors, Branches(*parts), bucket.context)
        self._out(bucket).copy_(states)

    def _out(self, bucket: Bucket) -> Tensor:
        count = bucket.num_rows * bucket.num_tokens
        return self._states[:count].view(bucket.num_rows, bucket.num_tokens, -1)


def _split(numbers: Tensor, bucket: Bucket) -> tuple[Tensor, Tensor]:
    """Return views: cursors [R], and [5, R, Q]: the token ids, then the parts of ``Branches``."""
    rows, width = bucket.num_rows, bucket.num_tokens
    parts = numbers[rows : rows + 5 * rows * width]
    return numbers[:rows], parts.view(5, rows, width)
