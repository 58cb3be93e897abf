"""Block diffusion: a block of masks is filled in order of confidence, anywhere in it.

For checkpoints that were trained to see both ways inside a block (Arriola et al. 2025, arXiv
2503.09573, is the field's name for it; the MARS paper compares itself with such a twin). A forward
feeds ``[clean tokens of the block before | the block]``: the clean ones causally, so their keys and
values become final; every position of the block sees all before it and all of the block, masks and
taken tokens. A mask predicts the token at its own position. Of the open positions all whose
confidence reaches tau are taken, the surest one in any case; what stands right of an end is
dropped. Tokens leave in order: each forward lets go what has nothing open before it. Nothing is
verified.

One row, by itself: blocks of several rows are not kept in step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from mars_runtime.acceptance import DecodeError, Draw, eos_in_force, surest
from mars_runtime.decoders.base import (
    CausalModel,
    NoMaskError,
    SettingsSource,
    Vocabulary,
    check_prompt,
    forbidden_ids,
    prefill_whole,
)
from mars_runtime.events import FINAL, Event, Prefill, Proposal, RowStep, Step, Stop
from mars_runtime.loops import up_to_loop
from mars_runtime.model.forward import Branches, SamplingMetadata
from mars_runtime.settings import DecodeSettings

UNTRAINED = "This checkpoint was not trained to fill blocks: choose another method."


def decode(
    model: CausalModel,
    vocabulary: Vocabulary,
    prompt: Sequence[int],
    settings: SettingsSource,
    block_size: int,
) -> Iterator[Event]:
    """Decode one prompt; ``block_size``: of the blocks that the model was trained to fill, which is
    B where the settings leave it to be chosen, and the most in any case.

    Yields one Prefill, then one Step per forward; ``seconds`` stay 0 and there is no End. A step
    may let nothing go: ``RowStep.taken`` says which positions it filled. Raises DecodeError at once
    when the prompt cannot fit.
    """
    check_prompt(model, prompt, settings().max_new_tokens)
    if block_size < 1:
        raise DecodeError(UNTRAINED)
    if vocabulary.mask_id is None:
        raise NoMaskError
    return _Filling(model, vocabulary, prompt, settings, block_size).events()


class _Filling:
    """A row that is being decoded.

    pending: clean tokens behind the cursor. block: for each position of the block what was taken
    there; the first ``num_left`` have left. limit: tokens that it may emit at most.
    """

    def __init__(
        self,
        model: CausalModel,
        vocabulary: Vocabulary,
        prompt: Sequence[int],
        settings: SettingsSource,
        block_size: int,
    ) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._prompt = prompt
        self._settings = settings
        self._most = block_size
        self._limit = settings().max_new_tokens
        self._cache: Any = model.new_cache(1, len(prompt) + self._limit + block_size)
        self._forbidden = forbidden_ids(vocabulary, model)
        self._pending = [prompt[-1]]
        self._block: list[Proposal | None] = []
        self._num_left = 0
        self._written: list[int] = []

    def events(self) -> Iterator[Event]:
        """The whole decoding."""
        yield Prefill(self._read(), cache_bytes=self._cache.num_bytes)
        is_over = False
        while not is_over:
            step = self._step(self._settings())
            is_over = step.stop in FINAL
            yield Step((step,))

    @torch.inference_mode()
    def _read(self) -> int:
        """All but the last token of the prompt, without head."""
        return prefill_whole(self._model, self._cache, self._prompt)

    @torch.inference_mode()
    def _step(self, settings: DecodeSettings) -> RowStep:
        """One forward. The block begins anew, and B with it, where the one before is full."""
        remaining = max(1, min(self._limit, settings.max_new_tokens) - len(self._written))
        if not self._block:
            size = self._most if settings.block_size == "auto" else settings.block_size
            self._block = [None] * min(size, self._most)
        del self._block[self._num_left + remaining :]
        slots, cursor, num_pending = self._predict(settings)
        width = len(self._block)
        taken = self._take(slots, settings)
        first, self._num_left = self._num_left, _num_filled(self._block)
        left = [each.token for each in self._block[first : self._num_left] if each is not None]
        stop = self._stop(eos_in_force(settings, self._vocabulary.eos_ids), len(left) >= remaining)
        if settings.stop_loops and (count := up_to_loop(self._written, left)) is not None:
            left, stop = left[:count], "repeats"
        done = RowStep(
            row=0,
            start=len(self._written),
            cursor=cursor,
            num_pending=num_pending,
            num_fed=num_pending + width,
            proposals=tuple(kept or slots[at] for at, kept in enumerate(self._block))[first:],
            accepted=tuple(left),
            num_drafted=0,
            settings=settings,
            stop=stop,
            block_size=self._most if settings.is_auto else 0,
            taken=tuple(position - first for position in taken),
        )
        self._written += left
        if self._num_left == len(self._block):
            self._pending = [each.token for each in self._block if each is not None]
            self._block, self._num_left = [], 0
        return done

    def _predict(self, settings: DecodeSettings) -> tuple[list[Proposal], int, int]:
        """What the positions of the block predict, where the cursor stood, and how many clean
        tokens were fed, which are final now."""
        cursor, num_pending = self._cache.cursors[0], len(self._pending)
        assert self._vocabulary.mask_id is not None
        tokens = [each.token if each else self._vocabulary.mask_id for each in self._block]
        fed = torch.tensor([self._pending + tokens])
        branches = Branches.of_block(num_pending, len(tokens))
        hidden = self._model.hidden(fed, self._cache, branches)
        head = slice(num_pending, num_pending + len(tokens))
        first = cursor + num_pending
        draw = Draw.of(settings, range(first, first + len(tokens)))
        sampling = SamplingMetadata(self._forbidden, [settings.metric], [draw])
        slots = self._model.read(hidden, head, sampling)[0]
        self._cache.cursors[0] += num_pending
        self._pending = []
        return slots, cursor, num_pending

    def _take(self, slots: Sequence[Proposal], settings: DecodeSettings) -> list[int]:
        """Fill the positions that are sure enough; which those are. The block ends with the first
        end of the text."""
        is_open = [position for position, each in enumerate(self._block) if each is None]
        chosen = surest([slots[position].confidence for position in is_open], settings.tau)
        taken = sorted(is_open[index] for index in chosen)
        for position in taken:
            self._block[position] = slots[position]
        for position, each in enumerate(self._block):
            if each is not None and each.token in eos_in_force(settings, self._vocabulary.eos_ids):
                del self._block[position + 1 :]
                break
        return [position for position in taken if position < len(self._block)]

    def _stop(self, eos_ids: frozenset[int], is_limit: bool) -> Stop:
        """Why no more left."""
        if self._num_left < len(self._block):
            return "threshold"
        last = self._block[-1]
        if last is not None and last.token in eos_ids:
            return "eos"
        return "limit" if is_limit else "block"


def _num_filled(block: Sequence[Proposal | None]) -> int:
    """Positions from the first on that have nothing open among them."""
    return block.index(None) if None in block else len(block)
