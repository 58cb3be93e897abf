"""Measure what whole steps cost on this device, planning and reading included."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from statistics import median

from mars_runtime.decoders.cursor import CursorBatch
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.files.outputs import OutputError, write_text
from mars_runtime.model.load import Checkpoint
from mars_runtime.model.threads import Threads
from mars_runtime.settings import AR_LOOKUP, DecodeSettings
from mars_runtime.system.machine import cache_folder, device_name, num_cores, versions

CONTEXT_TOKENS = 128  # number of tokens in the KV cache before the timed ones
SHORT_STEP_SECONDS = 0.02  # MANY is used only if a step of one token takes less time
MANY = (*range(1, 10), 12, 16)  # tokens to time with one row; costs in between are interpolated
FEW = (1, 2, 3, 4, 6, 8, 16)  # the same for a slow model
BATCH = (1, 2, 4, 8)  # tokens per row to time with several rows
FEWER_ROWS = (1, 2, 4, 8)  # numbers of rows to time besides the largest
MASKED = (1, 3, 7)  # numbers of masks for which the additional cost is measured
BUDGET_SECONDS = 1.2  # for one row, half of it for more rows, after the minimum number of rounds
ROUNDS = range(3, 16)  # minimum and maximum number of rounds
MOST_SPREAD = 1.25  # costs that were measured less steadily (``ForwardCosts.spread``) are not kept

Shape = tuple[int, int]
"""Tokens per row of a step, and how many of them are masks."""


def stored_costs(
    checkpoint: Checkpoint,
    num_rows: int,
    before_step: Callable[[], None] = lambda: None,
) -> ForwardCosts:
    """Return the costs that this machine measured at an earlier start, or measure and store them.

    Costs that other load distorted are used but not stored. ``before_step`` may raise to stop.
    """
    with steady_threads(checkpoint.model.threads):
        name = f"costs/{_digest(checkpoint, num_rows)}.json"
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            return ForwardCosts.from_dict(json.loads((cache_folder() / name).read_bytes()))
        costs = measure_costs(checkpoint, num_rows, before_step)
        if costs.spread > MOST_SPREAD:
            return costs
        with suppress(OSError, OutputError):
            path = cache_folder() / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(costs.to_dict()))
    return costs


def _digest(checkpoint: Checkpoint, num_rows: int) -> str:
    model, threads = checkpoint.model, checkpoint.model.threads
    shapes = (MANY, FEW, BATCH, MASKED, FEWER_ROWS, num_rows, CONTEXT_TOKENS, ROUNDS)
    described = (
        *(device_name(model.device), versions(), threads.fixed if threads else None, shapes),
        *(type(model).__name__, model.arithmetic, model.config, checkpoint.name),
    )
    return hashlib.sha256(repr(described).encode()).hexdigest()[:32]


def measure_costs(
    checkpoint: Checkpoint,
    num_rows: int = 1,
    before_step: Callable[[], None] = lambda: None,
) -> ForwardCosts:
    """Return the costs for up to ``num_rows`` rows.

    All shapes are timed in turn, so that other load affects them alike, and the minima count. The
    one-token step, unit of all costs, does not follow the longest: a processor may be slower then.
    """
    with steady_threads(checkpoint.model.threads):
        rows = [*(fewer for fewer in FEWER_ROWS if fewer < num_rows), num_rows]
        times = {number: _times(checkpoint, number, before_step) for number in rows}
    measured = {
        number: {shape: min(seconds) for shape, seconds in shapes.items()}
        for number, shapes in times.items()
    }
    single = times[1][1, 0]
    return ForwardCosts(
        depth=checkpoint.block_size,
        rho={number: _rising(_plain(minima)) for number, minima in measured.items()},
        seconds=min(single),
        spread=median(single) / min(single),
        masks={
            number: _rising(_masks(minima)) if any(masks for _, masks in minima) else ()
            for number, minima in measured.items()
        },
    )


@contextmanager
def steady_threads(threads: Threads | None) -> Iterator[None]:
    """Use as many threads as there are idle cores now, until the end of the context."""
    if threads is None:
        yield
        return
    before = threads.fixed
    if before is None:
        threads.measure()
        threads.fixed = threads.count(num_cores())
    try:
        yield
    finally:
        threads.fixed = before


def _times(
    checkpoint: Checkpoint, num_rows: int, before_step: Callable[[], None]
) -> dict[Shape, tuple[float, ...]]:
    timer = _Timer(checkpoint, num_rows)
    timer.seconds((1, 0))
    is_short = timer.seconds((1, 0)) < SHORT_STEP_SECONDS
    widths = BATCH if num_rows > 1 else MANY if is_short else FEW
    most_masks = checkpoint.block_size - 1 if timer.has_mask else 0
    masked = [(1 + masks, masks) for masks in MASKED if masks <= most_masks]
    plain = {(width, 0) for width in (*widths, *(width for width, _ in masked))}
    shapes = sorted([*plain, *masked], reverse=True)
    for shape in shapes:
        before_step()
        timer.seconds(shape)  # Not recorded: the first step of a shape may allocate or compile.
    rounds: list[list[float]] = []
    budget = BUDGET_SECONDS if num_rows == 1 else BUDGET_SECONDS / 2
    began = time.perf_counter()
    while len(rounds) < ROUNDS.stop:
        if len(rounds) >= ROUNDS.start and time.perf_counter() - began > budget:
            break
        rounds.append([])
        for shape in shapes:
            before_step()
            rounds[-1].append(timer.seconds(shape))
    return dict(zip(shapes, zip(*rounds, strict=True), strict=True))


def _plain(minima: Mapping[Shape, float]) -> dict[int, float]:
    plain = {width: seconds for (width, masks), seconds in minima.items() if not masks}
    unit = min(plain.values())
    return {width: seconds / unit for width, seconds in plain.items()}


def _masks(minima: Mapping[Shape, float]) -> dict[int, float]:
    return {
        masks: max(0.0, seconds - minima[width, 0]) / minima[1, 0]
        for (width, masks), seconds in minima.items()
        if masks
    }


def _rising(costs: Mapping[int, float]) -> tuple[float, ...]:
    """Return the costs of 1, 2, 3 ..., sorted, because falling ones are noise, and interpolated."""
    curve: list[float] = []
    for number, cost in zip(sorted(costs), sorted(costs.values()), strict=True):
        before, steps = curve[-1] if curve else cost, number - len(curve)
        curve += [before + (cost - before) * step / steps for step in range(1, steps + 1)]
    return tuple(round(cost, 4) for cost in curve)


class _Timer:
    def __init__(self, checkpoint: Checkpoint, num_rows: int) -> None:
        model, vocabulary = checkpoint.model, checkpoint.tokenizer
        self.has_mask = vocabulary.mask_id is not None
        self._settings = DecodeSettings("ar", max_new_tokens=max(MANY))
        self._token = 0 if vocabulary.mask_id != 0 else 1
        most = 2 * max(MANY)
        self._num_tokens = max(2, min(CONTEXT_TOKENS, model.config.max_positions - most))
        self._batch = CursorBatch(model, vocabulary, num_rows, self._num_tokens + most)
        for number in range(num_rows):
            self._batch.add(number, [self._token] * self._num_tokens, lambda: self._settings)

    def seconds(self, shape: Shape) -> float:
        width, num_masks = shape
        settings = (
            replace(AR_LOOKUP, block_size=1 + num_masks) if width > 1 else DecodeSettings("ar")
        )
        self._settings = replace(settings, max_new_tokens=max(MANY), ignore_eos=True)
        drafts = [self._token] * (width - 1 - num_masks)
        for number in self._batch.rows:
            self._batch.rewind(number, self._num_tokens - 1, [self._token], drafts)
        began = time.perf_counter()
        self._batch.step()
        return time.perf_counter() - began
