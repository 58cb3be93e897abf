"""Baselines for decoding a batch: the paper's block cache, and no cache at all.

``decode_batch`` is the entry point for these baselines and for AR and MARS with the cursor cache.
Prompts beyond the batch size are decoded in later groups. Rows are numbered like their prompts. The
baselines verify nothing.

**Block cache** (arXiv 2604.07023): rows wait for each other. All rows of a batch start a block of
``cache_block`` positions together, counted from the end of the prompt. Two types of forward pass
alternate:

- **Commit** (the paper's extend forward) feeds the tokens of the full block again, all of them
  real, so their keys and values become final. No masks are fed, and each row gets one prediction:
  the block's last token predicts the first token of the next block. The first commit feeds only the
  last token of the prompt.
- **Fill** feeds the whole block: its accepted tokens (the commit predicted the first of them) and
  masks up to its end. The last accepted token predicts the next token as AR does, and the masks
  after it predict further tokens: at most B proposals in total and none beyond the block. Proposals
  are accepted from left to right while their confidence is at least τ.

A row with a full block is still fed and waits (``IdleRow``) until every live row has a full
block. A finished row waits until the end of the batch. A block of C tokens takes one commit and the
fill passes of the slowest row: at worst C forward passes, as for AR, and at best 1 + (C - 1) / B.

Unlike the official code, this code copies no cache: the block is written after the cursor, and the
next forward pass overwrites it. The last block is shortened to the tokens that may still be
emitted.

**No cache**: every forward pass recomputes the whole prefix of each row, with all rows in one
batch. This shows how much time a cache saves. Shorter rows are padded at the end with masks, which
causal attention ignores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import torch

from mars_runtime.decoders import cursor
from mars_runtime.decoders.base import (
    NOT_MEASURED,
    NoMaskError,
    SettingsSource,
    Vocabulary,
    check_prompts,
    forbidden_ids,
    prefill_whole,
    slots_to_read,
    with_method,
)
from mars_runtime.decoders.decision import accept, num_proposals
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.decoders.methods import MAX_BLOCK_SIZE
from mars_runtime.errors import DecodeError
from mars_runtime.model.forward import CausalModel
from mars_runtime.model.predictions import Draw, Penalty, proposals_from_logits
from mars_runtime.runs.events import FINAL, Event, IdleRow, Prefill, Proposal, RowStep, Step, Wait
from mars_runtime.settings import MAX_CACHE_BLOCK, MIN_CACHE_BLOCK, DecodeSettings

BatchMethod = Literal["ar", "cursor", "block", "uncached"]
"""Methods of ``decode_batch``.

``ar``: one token per forward pass, with the cursor cache. ``cursor``, ``block`` and ``uncached``:
MARS with the cursor cache, with the block cache, and with full recomputation.
"""

BATCH_METHODS: tuple[BatchMethod, ...] = get_args(BatchMethod)
MAX_BATCH_SIZE = 64


def decode_batch(
    model: CausalModel,
    vocabulary: Vocabulary,
    prompts: Sequence[Sequence[int]],
    method: BatchMethod,
    settings: SettingsSource,
    batch_size: int,
    cache_block: int = 32,
    costs: ForwardCosts | None = None,
) -> Iterator[Event]:
    """Decode all prompts with ``method``, ``batch_size`` prompts at a time.

    Yields one Prefill per group and one Step per forward pass. RowStep.row is the number of the
    prompt. ``seconds`` stay 0, and there is no End.

    settings: called once per step; ``method`` of its result is replaced.
    cache_block: tokens per cache block; used only by the method ``block``.
    costs: costs of forward passes on this device; required for automatic B, which only ``cursor``
        supports.

    Raises DecodeError immediately for an invalid request.
    """
    if method not in BATCH_METHODS:
        raise DecodeError(f"The method must be one of {', '.join(BATCH_METHODS)}, got {method!r}.")
    is_whole = isinstance(batch_size, int) and not isinstance(batch_size, bool)
    if not is_whole or not 1 <= batch_size <= MAX_BATCH_SIZE:
        raise DecodeError(
            f"The batch size must be a whole number from 1 to {MAX_BATCH_SIZE}, got {batch_size!r}."
        )
    if method == "block":
        _check_cache_block(cache_block)
    if not prompts:
        raise DecodeError("Give at least one prompt.")
    source = with_method("ar" if method == "ar" else "mars", settings)
    current = unverified_settings(source) if method in ("block", "uncached") else source()
    if current.is_auto and costs is None:
        raise DecodeError(NOT_MEASURED)
    if vocabulary.mask_id is None and (current.num_proposals > 1 or method == "block"):
        raise NoMaskError
    check_prompts(model, prompts, current.max_new_tokens)
    decode: Callable[..., Iterator[Event]] = partial(cursor.decode, costs=costs)
    if method == "block":
        decode = partial(_decode_block, cache_block=cache_block)
    elif method == "uncached":
        decode = _decode_uncached
    return _all_groups(partial(decode, model, vocabulary), prompts, source, batch_size)


def _all_groups(
    decode: Callable[[Sequence[Sequence[int]], SettingsSource], Iterator[Event]],
    prompts: Sequence[Sequence[int]],
    settings: SettingsSource,
    batch_size: int,
) -> Iterator[Event]:
    for first in range(0, len(prompts), batch_size):
        for event in decode(prompts[first : first + batch_size], settings):
            yield _renumbered(event, first) if isinstance(event, Step) else event


def _renumbered(step: Step, first: int) -> Step:
    if not first:
        return step
    rows = tuple(replace(row, row=row.row + first) for row in step.rows)
    idle = tuple(row._replace(row=row.row + first) for row in step.idle)
    return replace(step, rows=rows, idle=idle)


def _decode_block(
    model: CausalModel,
    vocabulary: Vocabulary,
    prompts: Sequence[Sequence[int]],
    settings: SettingsSource,
    cache_block: int,
) -> Iterator[Event]:
    """Decode with a block cache.

    Steps have ``is_commit`` set for commits and contain an IdleRow for each waiting row.
    """
    return _Blocks(model, vocabulary, prompts, settings, cache_block).events()


def _check_cache_block(cache_block: object) -> None:
    is_whole = isinstance(cache_block, int) and not isinstance(cache_block, bool)
    if not is_whole or not MIN_CACHE_BLOCK <= cache_block <= MAX_CACHE_BLOCK:  # type: ignore[operator]
        raise DecodeError(
            f"The cache block must be a whole number from {MIN_CACHE_BLOCK} to {MAX_CACHE_BLOCK}, "
            f"got {cache_block!r}."
        )


@dataclass(slots=True)
class _BlockRow:
    """One row of a batch with a block cache.

    text: the prompt and all emitted tokens.
    pending: tokens of the current block; at the start, the last token of the prompt.
    """

    number: int
    text: list[int]
    pending: list[int]
    num_emitted: int = 0
    is_finished: bool = False


class _Blocks:
    """Decodes rows that fill their blocks together. The caller has checked the prompts."""

    def __init__(
        self,
        model: CausalModel,
        vocabulary: Vocabulary,
        prompts: Sequence[Sequence[int]],
        settings: SettingsSource,
        cache_block: int,
    ) -> None:
        self._model = model
        self._prompts = prompts
        self._settings = settings
        self._cache_block = cache_block
        self._limit = settings().max_new_tokens
        self.cache = model.new_cache(len(prompts), max(map(len, prompts)) + self._limit)
        self._forward = _Forward(model, vocabulary, self.cache)
        self._rows = [
            _BlockRow(row, list(prompt), [prompt[-1]]) for row, prompt in enumerate(prompts)
        ]

    def events(self) -> Iterator[Event]:
        yield Prefill(self._prefill(), cache_bytes=self.cache.num_bytes)
        width = 1
        while self._live():
            yield self._commit(width)
            emitted = max((row.num_emitted for row in self._live()), default=0)
            width = min(self._cache_block, self._limit - emitted + 1)
            while any(len(row.pending) < width for row in self._live()):
                yield self._fill(width)

    def _live(self) -> list[_BlockRow]:
        return [row for row in self._rows if not row.is_finished]

    @torch.inference_mode()
    def _prefill(self) -> int:
        """Prefill all but the last token of each prompt; return the total number of tokens fed."""
        for index, prompt in enumerate(self._prompts):
            cache = self.cache.row(index)
            self.cache.cursors[index] = prefill_whole(self._model, cache, prompt)
        return sum(self.cache.cursors)

    def _commit(self, width: int) -> Step:
        """Feed the full block of every live row again and predict one token per row."""
        rows = self._live()
        step = self._step(width, rows, is_commit=True)
        for row in rows:
            self.cache.cursors[row.number] += width
            del row.pending[:width]
        return step

    def _fill(self, width: int) -> Step:
        """Run one forward pass and emit tokens for the rows without a full block."""
        return self._step(width, [row for row in self._live() if len(row.pending) < width])

    @torch.inference_mode()
    def _step(self, width: int, active: list[_BlockRow], is_commit: bool = False) -> Step:
        requests = [self._request(row, width) for row in active]
        requested = {request.row for request in requests}
        idle = tuple(self._idle(row, width) for row in self._rows if row.number not in requested)
        # A finished row may have a longer block, so its tokens are cut to the current width.
        steps = self._forward.step([row.pending[:width] for row in self._rows], width, requests)
        for row, step in zip(active, steps, strict=True):
            self._update(row, step)
        return Step(steps, idle=idle, is_commit=is_commit)

    def _request(self, row: _BlockRow, width: int) -> _RowRequest:
        cursor, num_pending = self.cache.cursors[row.number], len(row.pending)
        state = row.number, row.number, row.text, row.num_emitted, cursor, num_pending
        settings = unverified_settings(self._settings)
        return _RowRequest.of(settings, self._limit, *state, max_proposals=width - num_pending)

    def _idle(self, row: _BlockRow, width: int) -> IdleRow:
        cursor = self.cache.cursors[row.number]
        wait: Wait = "finished" if row.is_finished else "block"
        return IdleRow(row.number, wait, cursor, min(len(row.pending), width), width)

    def _update(self, row: _BlockRow, step: RowStep) -> None:
        row.text += step.accepted
        row.pending += step.accepted
        row.num_emitted += len(step.accepted)
        row.is_finished = step.stop in FINAL


def _decode_uncached(
    model: CausalModel,
    vocabulary: Vocabulary,
    prompts: Sequence[Sequence[int]],
    settings: SettingsSource,
) -> Iterator[Event]:
    """Decode with full recomputation.

    RowStep.cursor is 0, and all tokens are pending. Finished rows leave the batch. The first event
    is a Prefill without tokens; its ``cache_bytes`` is the size of the keys and values that the
    longest forward pass computes.
    """
    limit = settings().max_new_tokens
    cache = model.new_cache(len(prompts), max(map(len, prompts)) + limit)
    forward = _Forward(model, vocabulary, cache)
    prefixes = {row: list(prompt) for row, prompt in enumerate(prompts)}
    yield Prefill(0, cache_bytes=cache.num_bytes)
    while prefixes:
        current = unverified_settings(settings)
        requests = [
            _RowRequest.of(
                current, limit, index, row, prefix, len(prefix) - len(prompts[row]), 0, len(prefix)
            )
            for index, (row, prefix) in enumerate(prefixes.items())
        ]
        if vocabulary.mask_id is None and any(request.num_proposals > 1 for request in requests):
            raise NoMaskError
        num_fed = max(request.num_pending + request.num_proposals - 1 for request in requests)
        with torch.inference_mode():
            steps = forward.step(list(prefixes.values()), num_fed, requests)
        for step in steps:
            prefixes[step.row] += step.accepted
            if step.stop in FINAL:
                del prefixes[step.row]
        yield Step(steps)


@dataclass(frozen=True, slots=True)
class _RowRequest:
    """What one row needs from a forward pass.

    index: index of the row in the batch.
    row: number of the row in events.
    text: the prompt and all emitted tokens.
    start: number of emitted tokens.
    cursor, num_pending: as in RowStep. The last pending token predicts the first new token.
    num_proposals: number of predictions to read, beginning at the last pending token.
    remaining: number of tokens that may still be emitted.
    """

    index: int
    row: int
    text: Sequence[int]
    settings: DecodeSettings
    start: int
    cursor: int
    num_pending: int
    num_proposals: int
    remaining: int

    @classmethod
    def of(
        cls,
        settings: DecodeSettings,
        limit: int,
        index: int,
        row: int,
        text: Sequence[int],
        start: int,
        cursor: int,
        num_pending: int,
        *,
        max_proposals: int = MAX_BLOCK_SIZE,
    ) -> _RowRequest:
        """Build the request of a row.

        ``limit`` is the maximum number of tokens in the answer.
        """
        remaining = max(1, min(limit, settings.max_new_tokens) - start)
        count = min(num_proposals(settings, remaining, 0), max(1, max_proposals))
        return cls(index, row, text, settings, start, cursor, num_pending, count, remaining)

    @property
    def written(self) -> Sequence[int]:
        """All emitted tokens."""
        return self.text[len(self.text) - self.start :]

    def draw(self) -> Draw | None:
        first = self.cursor + self.num_pending
        return Draw.of(self.settings, range(first, first + self.num_proposals))

    def penalty(self, vocab_size: int, eos_ids: frozenset[int]) -> Penalty | None:
        """Return the row's penalties, or None.

        All predictions are penalised for the tokens in ``text`` only, not for earlier proposals.
        """
        positions = range(len(self.text), len(self.text) + self.num_proposals)
        known = [len(self.text)] * self.num_proposals
        num_prompt = len(self.text) - self.start
        return Penalty.of(
            self.settings, self.text, num_prompt, known, vocab_size, eos_ids, positions
        )


class _Forward:
    """Runs forward passes of a batch and decides which predictions to accept."""

    def __init__(self, model: CausalModel, vocabulary: Vocabulary, cache: Any) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._cache = cache
        self._forbidden = forbidden_ids(vocabulary, model)

    def step(
        self, fed: list[list[int]], num_fed: int, requests: Sequence[_RowRequest]
    ) -> tuple[RowStep, ...]:
        """Run one forward pass of all rows, each padded with masks to ``num_fed`` tokens.

        Raises DecodeError with the numbers of the rows with non-finite logits.
        """
        mask = self._vocabulary.mask_id or 0
        tokens = [row + [mask] * (num_fed - len(row)) for row in fed]
        # The predictions of rows without a request are computed too, but ignored.
        firsts = {request.index: request.num_pending - 1 for request in requests}
        first = [firsts.get(index, requests[0].num_pending - 1) for index in range(len(fed))]
        head = slots_to_read(first, max(request.num_proposals for request in requests), num_fed)
        logits = self._model.forward(torch.tensor(tokens), self._cache, head)
        assert logits is not None
        if len(requests) < len(fed):
            logits = logits[[request.index for request in requests]]
        metrics = [request.settings.metric for request in requests]
        vocab_size, eos_ids = logits.shape[-1], self._vocabulary.eos_ids
        try:
            predictions = proposals_from_logits(
                *(logits, self._forbidden, metrics, [request.draw() for request in requests]),
                penalties=[request.penalty(vocab_size, eos_ids) for request in requests],
            )
        except DecodeError as error:
            numbers = tuple(requests[index].row for index in error.rows)
            raise DecodeError(str(error), numbers) from error
        return tuple(
            self._accept(request, proposals[: request.num_proposals], num_fed)
            for request, proposals in zip(requests, predictions, strict=True)
        )

    def _accept(self, request: _RowRequest, proposals: list[Proposal], num_fed: int) -> RowStep:
        limits = request.settings, request.remaining, self._vocabulary.eos_ids, request.written
        acceptance = accept(proposals[:1], [proposals[1:]], [], *limits)
        return RowStep(
            row=request.row,
            start=request.start,
            cursor=request.cursor,
            num_pending=request.num_pending,
            num_fed=num_fed,
            proposals=tuple(proposals),
            accepted=tuple(acceptance.emitted),
            num_drafted=0,
            settings=request.settings,
            stop=acceptance.stop,
        )


def unverified_settings(source: SettingsSource) -> DecodeSettings:
    """Return the current settings for a decoder without the cursor cache.

    Raises DecodeError if the settings need the cursor cache: verification, automatic B or an
    adaptive τ.
    """
    settings = source()
    if settings.is_auto:
        raise DecodeError("Only the cursor cache supports automatic B: choose a number as B.")
    if settings.is_adaptive:
        raise DecodeError("Only the cursor cache supports an adaptive τ: choose a fixed threshold.")
    if settings.is_verified:
        raise DecodeError(
            "Only the cursor cache supports lossless: turn lossless off, or choose the "
            "method cursor."
        )
    return settings
