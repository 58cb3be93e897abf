"""The paper's block-level cache (arXiv 2604.07023): rows wait for each other.

All rows of a batch stand at the start of a block of ``cache_block`` positions, counted from the end
of the prompt. Two kinds of forward take turns:

- **Commit** (the paper's extend forward): the tokens of the full block are fed once more, all of
  them real, and their keys and values become final. There is nothing behind the block, hence no
  mask and one prediction a row: the logits are right-shifted, so the block's last slot predicts the
  first token of the next block. The first commit feeds the last token of the prompt alone.
- **Filling**: the whole block is fed, its accepted tokens (the first one is there already) and
  masks up to its end. The last accepted slot predicts as AR would, the masks behind it predict on,
  at most B proposals in all and none beyond the block. Accepted from left to right by tau.

A row whose block is full is fed on and waits (``IdleRow``) until every live row is there; a row
that has ended waits to the end of the batch. A block of C tokens costs its commit and the filling
forwards of the slowest row: C in all at one token per forward, as AR, and at best 1 + (C - 1) / B.

Unlike the official code nothing is copied: the block is written ahead of the cursor and the next
forward overwrites it. The last block is no longer than what may still leave. Nothing is verified.

Knows no text, clock or page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from mars_runtime.acceptance import DecodeError, num_proposals
from mars_runtime.decoders.base import (
    PREFILL_CHUNK,
    CausalModel,
    NoMaskError,
    SettingsSource,
    Vocabulary,
    check_prompt,
)
from mars_runtime.decoders.propose import Ask, Proposer, unverified
from mars_runtime.events import Event, IdleRow, Prefill, RowStep, Step, Wait

MIN_CACHE_BLOCK, MAX_CACHE_BLOCK = 4, 256


@dataclass(slots=True)
class _Row:
    """One place of the batch. pending: tokens of the block so far (at first the prompt's last)."""

    number: int
    pending: list[int]
    num_emitted: int = 0
    is_finished: bool = False


def decode(
    model: CausalModel,
    vocabulary: Vocabulary,
    prompts: Sequence[Sequence[int]],
    settings: SettingsSource,
    cache_block: int = 32,
) -> Iterator[Event]:
    """Decode a ragged batch with a block-level cache.

    Yields one Prefill, then one Step per forward, commits marked and waiting rows named;
    ``seconds`` stay 0 and there is no End. Raises DecodeError at once for a prompt that cannot fit,
    a ``cache_block`` outside 4 to 256, ``lossless`` or a checkpoint without a mask token.
    """
    limit = unverified(settings).max_new_tokens
    check_cache_block(cache_block)
    if not prompts:
        raise DecodeError("Give at least one prompt.")
    if vocabulary.mask_id is None:
        raise NoMaskError
    for prompt in prompts:
        check_prompt(model, prompt, limit)
    return BlockBatch(model, vocabulary, prompts, settings, cache_block).events()


def check_cache_block(cache_block: object) -> None:
    """Raises DecodeError for anything but a whole number from 4 to 256."""
    is_whole = isinstance(cache_block, int) and not isinstance(cache_block, bool)
    if not is_whole or not MIN_CACHE_BLOCK <= cache_block <= MAX_CACHE_BLOCK:  # type: ignore[operator]
        raise DecodeError(
            f"The cache block must be a whole number from {MIN_CACHE_BLOCK} to {MAX_CACHE_BLOCK}."
        )


class BlockBatch:
    """Rows that fill their blocks in step. The prompts were checked."""

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
        self._proposer = Proposer(model, vocabulary, self.cache)
        self._rows = [_Row(row, [prompt[-1]]) for row, prompt in enumerate(prompts)]

    def events(self) -> Iterator[Event]:
        """The whole decoding."""
        yield Prefill(self._prefill(), cache_bytes=self.cache.num_bytes)
        width = 1
        while self._live():
            yield self._commit(width)
            emitted = max((row.num_emitted for row in self._live()), default=0)
            width = min(self._cache_block, self._limit - emitted + 1)
            while any(len(row.pending) < width for row in self._live()):
                yield self._fill(width)

    def _live(self) -> list[_Row]:
        return [row for row in self._rows if not row.is_finished]

    @torch.inference_mode()
    def _prefill(self) -> int:
        """Read all but the last token of each prompt, row by row, without head."""
        num_fed = 0
        for place, prompt in enumerate(self._prompts):
            alone, fed = self.cache.row(place), list(prompt[:-1])
            for start in range(0, len(fed), PREFILL_CHUNK):
                chunk = fed[start : start + PREFILL_CHUNK]
                alone.cursors[0] = start
                self._model.forward(torch.tensor([chunk], device=self._model.device), alone, None)
            self.cache.cursors[place] = len(fed)
            num_fed += len(fed)
        return num_fed

    def _commit(self, width: int) -> Step:
        """Make the full block of every live row final; each predicts one token."""
        rows = self._live()
        step = self._step(width, rows, is_commit=True)
        for row in rows:
            self.cache.cursors[row.number] += width
            del row.pending[:width]
        return step

    def _fill(self, width: int) -> Step:
        """Let the rows go on whose block has room."""
        return self._step(width, [row for row in self._live() if len(row.pending) < width])

    @torch.inference_mode()
    def _step(self, width: int, active: list[_Row], is_commit: bool = False) -> Step:
        asks = [self._ask(row, width) for row in active]
        taken = {ask.row for ask in asks}
        idle = tuple(self._idle(row, width) for row in self._rows if row.number not in taken)
        # A row that ended in an earlier, longer block is fed as much of it as the others feed.
        steps = self._proposer.step([row.pending[:width] for row in self._rows], width, asks)
        for row, step in zip(active, steps, strict=True):
            self._take(row, step)
        return Step(steps, idle=idle, is_commit=is_commit)

    def _ask(self, row: _Row, width: int) -> Ask:
        settings = unverified(self._settings)
        remaining = max(1, min(self._limit, settings.max_new_tokens) - row.num_emitted)
        room = max(1, width - len(row.pending))
        return Ask(
            place=row.number,
            row=row.number,
            settings=settings,
            start=row.num_emitted,
            cursor=self.cache.cursors[row.number],
            num_pending=len(row.pending),
            num_proposals=min(num_proposals(settings, remaining, 0), room),
            remaining=remaining,
        )

    def _idle(self, row: _Row, width: int) -> IdleRow:
        cursor = self.cache.cursors[row.number]
        wait: Wait = "finished" if row.is_finished else "block"
        return IdleRow(row.number, wait, cursor, min(len(row.pending), width), width)

    def _take(self, row: _Row, step: RowStep) -> None:
        row.pending += step.accepted
        row.num_emitted += len(step.accepted)
        row.is_finished = step.stop in ("eos", "limit")
