"""Replay a model's forward as CUDA graphs: one for each bucket of rows, tokens and context.

A capture records the kernels that a forward starts. A replay starts all of them at once, on the
same memory, which saves the host hundreds of launches. Shapes are fixed in a capture, so a forward
is padded up to the next bucket. Padding tokens write keys and values only where no row reads:
behind the tokens of their own row, or, in rows that are padding, at the end of their place.

Only the forward is captured. The output head, reading and acceptance are a few launches, which the
host makes while the device still runs the layers. nano-vllm (github.com/GeeeekExplorer/nano-vllm)
makes the same cut.
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

TOKENS = (1, 2, 4, 8, 16, 32, MAX_FED)
"""Tokens fed per row, by bucket."""
FIRST_CONTEXT = 256
"""Slots that attention reads in the smallest bucket; each further bucket has twice as many."""
NUM_WARM_UPS = 2
"""Runs before a capture: libraries choose kernels and allocate workspaces in the first ones."""

Record = Callable[[Callable[[], None]], Callable[[], None]]
"""Takes a function on fixed memory; returns a function that runs it again on the same memory."""

Run = Callable[[Tensor, Tensor, Branches, int], Tensor]
"""The forward to record: tokens [R, Q], cursors [R], branches and the context in slots; returns
states [R, Q, hidden]. All on the device; it must not wait for the device."""


class Bucket(NamedTuple):
    """The shape of a captured forward. context: slots of the cache that attention reads."""

    num_rows: int
    num_tokens: int
    context: int


def run_again(function: Callable[[], None]) -> Callable[[], None]:
    """Return the function itself: a recorder for any device, which records nothing."""
    return function


class GraphRecorder:
    """Records functions as CUDA graphs on one device.

    All graphs share a memory pool: they never run at the same time, and what they leave in it is
    copied out by their own last kernel. After a failed capture functions run as they are, and one
    warning gives the reason. Raises torch.cuda.OutOfMemoryError.
    """

    def __init__(self, device: torch.device) -> None:
        self.reason = ""
        """Why functions run without a graph; empty while captures succeed."""
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
            raise  # it would fail without a graph as well: the caller decides
        except RuntimeError as error:
            self.reason = str(error).splitlines()[0]
            LOG.warning("Forwards run without CUDA graphs: a capture failed (%s).", self.reason)
            return function
        self.num_graphs += 1
        return graph.replay

    def _capture(self, function: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Warm up and capture on a stream of its own."""
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
            # cuBLAS then allocates its workspace in the graphs' own pool. Other captures
            # (torch.compile) free the shared ones, and a replay would write into freed memory.
            torch._C._cuda_clearCublasWorkspaces()
            # Other threads may use other models on this device meanwhile.
            with torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            ):
                function()
        finally:
            torch.cuda.synchronize(self._device)
            torch._C._cuda_clearCublasWorkspaces()
        return graph


class CapturedForward:
    """The recorded forwards of one KV cache, with the memory that they read and write.

    A forward of at most MAX_FED tokens per row sends its numbers to the device in one copy, then
    replays the record of its bucket.
    """

    def __init__(
        self, rows: int, capacity: int, hidden_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Allocate memory for a cache of ``rows`` rows of ``capacity`` slots each."""
        self._rows, self._capacity = rows, capacity
        size = rows * (1 + 5 * MAX_FED)
        self._numbers = torch.zeros(size, dtype=torch.long, device=device)
        self._states = torch.zeros(rows * MAX_FED, hidden_size, dtype=dtype, device=device)
        # Two buffers: one is filled while the copy of the other may still be in flight.
        self._sent = [torch.zeros(size, dtype=torch.long) for _ in range(2)]
        if device.type == "cuda":
            self._sent = [part.pin_memory() for part in self._sent]
        self._replays: dict[Bucket, Callable[[], None]] = {}

    def bucket(self, num_rows: int, num_tokens: int, cursors: Sequence[int]) -> Bucket | None:
        """Return the bucket of a forward; None where it does not fit, padding included."""
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
        """Run a forward of tokens [R, Q], on the host, for rows with these cursors.

        make_run: returns the forward to record; called at the first use of this bucket.
        Returns states [R, Q, hidden], a view that the next forward on this cache overwrites.
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
        """Copy the inputs of a forward to the device, padded to its bucket."""
        rows, width = tokens.shape
        source = self._sent[0]
        self._sent.reverse()
        where, parts = _split(source, bucket)
        where.fill_(self._capacity - bucket.num_tokens)
        where[:rows] = torch.tensor(cursors)
        slots = torch.arange(bucket.num_tokens)
        parts[0] = 0
        parts[1:] = slots  # padding is a plain causal row
        parts[0, :rows, :width] = tokens
        for part, values in zip(parts[1:], branches.parts if branches else (), strict=False):
            part[:rows, :width] = values
        size = bucket.num_rows * (1 + 5 * bucket.num_tokens)
        self._numbers[:size].copy_(source[:size], non_blocking=True)

    def _fill(self, bucket: Bucket, run: Run) -> None:
        """Run one forward of everything in the buffers; this function is recorded."""
        cursors, (tokens, *parts) = _split(self._numbers, bucket)
        states = run(tokens, cursors, Branches(*parts), bucket.context)
        self._out(bucket).copy_(states)

    def _out(self, bucket: Bucket) -> Tensor:
        count = bucket.num_rows * bucket.num_tokens
        return self._states[:count].view(bucket.num_rows, bucket.num_tokens, -1)


def _split(numbers: Tensor, bucket: Bucket) -> tuple[Tensor, Tensor]:
    """Views of a buffer: cursors [R] and five tensors [5, R, Q], which are token ids and the
    positions, roots, starts and ends of ``Branches``."""
    rows, width = bucket.num_rows, bucket.num_tokens
    parts = numbers[rows : rows + 5 * rows * width]
    return numbers[:rows], parts.view(5, rows, width)
