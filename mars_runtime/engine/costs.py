"""Measure the cost of a forward pass of Q tokens on this device, once before serving.

The measurement includes reading the logits, as in a step.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from mars_runtime.decoders.base import forbidden_ids
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.model.forward import CausalModel, MaskGroup, SamplingMetadata
from mars_runtime.model.load import Checkpoint
from mars_runtime.model.native.model import NativeModel
from mars_runtime.model.threads import ladder
from mars_runtime.settings import MAX_FED, Metric

MASKED = range(2, 6)  # numbers of tokens per row for which the cost of masks is measured
CONTEXT_TOKENS = 128  # number of tokens in the KV cache before the timed ones
SHORT_PASS_SECONDS = 0.02  # MANY is used only if a pass of one token takes less time
MANY = (*range(1, 9), 10, 12, 15, 16, 24, 32)  # tokens per row to time with one row, all threads
FEW = (1, 2, 3, 5, 8, 16, 32)  # tokens per row to time otherwise; costs in between are interpolated
BUDGET_SECONDS = 1.2  # after this many seconds, only the minimum number of rounds is completed
ROUNDS = range(4, 16)  # minimum and maximum number of rounds


def measure_costs(
    checkpoint: Checkpoint,
    rows: Sequence[int] = (1,),
    before_pass: Callable[[], None] = lambda: None,
) -> ForwardCosts:
    """Return the costs for each number of rows, with the current threads.

    before_pass: called before each forward pass; may raise to end the measurement.

    If the model chooses its number of threads, the costs are measured for each number that it may
    choose.

    All lengths are timed in turn, several times, so that other load on the machine affects all of
    them. The minimum of each length is used, because other load can only increase a time, and a
    length never costs less than a shorter one. The longest length comes first in each round, so the
    one-token pass does not directly follow it: a processor may be slower for a while after a long
    pass, and an error in the one-token pass would distort all costs, because it is their unit.
    After a change of the number of threads, one forward pass is not timed, because idle threads
    have to wake up first.
    """
    model = checkpoint.model
    threads = model.threads if isinstance(model, NativeModel) else None
    counts = ladder(model.most_threads) if isinstance(model, NativeModel) else (0,)
    by_rows = {number: _measure(checkpoint, number, counts, before_pass) for number in rows}
    by_count = {
        count: ForwardCosts(
            depth=checkpoint.block_size,
            rho={number: measured[count].rho for number, measured in by_rows.items()},
            seconds=by_rows[min(by_rows)][count].seconds,
            masks={number: measured[count].masks for number, measured in by_rows.items()},
        )
        for count in counts
    }
    if threads is None:
        return by_count[0]
    return replace(by_count.pop(counts[-1]), fewer=by_count, in_force=lambda: threads.in_force)


class _Measurement(NamedTuple):
    """Costs measured for one number of rows; ForwardCosts combines several of them.

    ``seconds`` is the time of a forward pass of one token per row.
    """

    seconds: float
    rho: tuple[float, ...]
    masks: float


def _measure(
    checkpoint: Checkpoint,
    num_rows: int,
    counts: Sequence[int],
    before_pass: Callable[[], None],
) -> dict[int, _Measurement]:
    """Return the measurement for each number of threads; 0 means the current number."""
    longest = max(2 * checkpoint.block_size - 1, MANY[-1])
    timer = _Timer(checkpoint, num_rows, longest)
    timer.seconds(1)
    is_short = timer.seconds(1) < SHORT_PASS_SECONDS and num_rows == 1
    lengths = {
        count: _lengths(MANY if is_short and count == counts[-1] else FEW, longest)
        for count in counts
    }
    feeds = [
        (length, num_masks, count)
        for count in counts
        for length in reversed(lengths[count])
        for num_masks in ((0, length - 1) if timer.has_mask and length in MASKED else (0,))
    ]
    for feed in feeds:
        before_pass()
        timer.seconds(*feed)  # Not recorded: the first pass of a shape may allocate or compile.
    seconds: list[list[float]] = []
    began = time.perf_counter()
    for done in range(ROUNDS.stop):
        if done >= ROUNDS.start and time.perf_counter() - began > BUDGET_SECONDS:
            break
        seconds.append(list(_round(timer, feeds, before_pass)))
    minima = dict(zip(feeds, map(min, zip(*seconds, strict=True)), strict=True))
    return {
        count: _relative({feed[:2]: least for feed, least in minima.items() if feed[2] == count})
        for count in counts
    }


def _round(
    timer: _Timer, feeds: Sequence[tuple[int, int, int]], before_pass: Callable[[], None]
) -> Iterator[float]:
    """Time one forward pass per item of ``feeds`` and yield its seconds.

    An item is (tokens per row, number of masks, number of threads).
    """
    awake = None
    for length, num_masks, count in feeds:
        before_pass()
        if count != awake:
            timer.seconds(length, num_masks, count)
        awake = count
        yield timer.seconds(length, num_masks, count)


def _lengths(candidates: Sequence[int], longest: int) -> list[int]:
    return sorted({*(length for length in candidates if length < longest), longest})


def _relative(minima: Mapping[tuple[int, int], float]) -> _Measurement:
    """Convert times of forward passes to costs relative to a pass of one token per row.

    ``minima`` maps (tokens per row, number of masks) to the shortest measured seconds.
    """
    unit = minima[1, 0]
    rho = _rising({length: minima[length, 0] / unit for length, masks in minima if not masks})
    mask_costs = [
        (minima[length, masks] - minima[length, 0]) / unit for length, masks in minima if masks
    ]
    return _Measurement(
        unit, rho, round(max(0.0, statistics.median(mask_costs)), 4) if mask_costs else 0.0
    )


def _rising(ratios: Mapping[int, float]) -> tuple[float, ...]:
    """Return the costs of lengths 1, 2, 3 ... relative to length 1.

    They never decrease. Lengths that are missing in ``ratios`` are interpolated.
    """
    curve = [1.0]
    for length, measured in sorted(ratios.items()):
        before, first = curve[-1], len(curve)
        cost = max(before, measured)
        steps = length - first
        curve += [before + (cost - before) * step / steps for step in range(1, steps + 1)]
    return tuple(round(cost, 4) for cost in curve)


class _Timer:
    """Times single forward passes in which the predictions of all tokens are read."""

    def __init__(self, checkpoint: Checkpoint, num_rows: int, longest: int) -> None:

        model: CausalModel = checkpoint.model
        self._model = model
        self._num_rows = num_rows
        self._mask = checkpoint.tokenizer.mask_id
        self._token = 0 if self._mask != 0 else 1
        context = max(1, min(CONTEXT_TOKENS, model.config.max_positions - longest))
        self._cache = model.new_cache(num_rows, context + max(longest, MAX_FED))
        self._cache.cursors[:] = [context] * num_rows
        self._forbidden = forbidden_ids(checkpoint.tokenizer, model)

    @property
    def has_mask(self) -> bool:
        """Whether the checkpoint has a mask token, so that the cost of masks can be measured."""
        return self._mask is not None

    def seconds(self, length: int, num_masks: int = 0, count: int = 0) -> float:
        """Return the seconds of a pass of ``length`` tokens per row, the last ``num_masks`` of them
        masks.

        ``count`` is the number of threads; 0 is the current number.
        """
        if not count:
            return self._seconds(length, num_masks)
        assert isinstance(self._model, NativeModel), "only native models choose their threads"
        self._model.threads.fixed = count
        try:
            return self._seconds(length, num_masks)
        finally:
            self._model.threads.fixed = None

    def _seconds(self, length: int, num_masks: int) -> float:
        with torch.inference_mode():
            began = time.perf_counter()
            masks = [self._mask or 0] * num_masks
            fed = [[self._token] * (length - num_masks) + masks] * self._num_rows
            tokens = torch.tensor(fed, device=self._model.device)
            hidden = self._model.hidden(tokens, self._cache)
            metrics: list[Metric] = ["probability"] * self._num_rows
            real = length - num_masks
            groups = [
                MaskGroup(row, real - 1, range(real, length))
                for row in range(self._num_rows if num_masks else 0)
            ]
            sampling = SamplingMetadata(self._forbidden, metrics, groups=groups)
            self._model.predict(hidden, slice(0, length), sampling)
            return time.perf_counter() - began
