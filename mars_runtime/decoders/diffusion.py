"""Block diffusion: fill a block of masks in order of confidence.

For checkpoints that were trained with attention in both directions inside a block (Arriola et al.
2025, arXiv 2503.09573; the MARS paper compares itself with such a model). A forward feeds
``[clean tokens of the previous block | the block]``. The clean tokens are causal, so their keys and
values become final. Every position of the block attends to everything before it and to the whole
block, masks and filled tokens. A mask predicts the token at its own position. Each forward fills
the open positions whose confidence reaches tau, and at least the most confident one. Positions
behind an EOS token are dropped. Tokens are emitted in order, as far as no position before them is
open. Nothing is verified.

Decodes one row at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from mars_runtime.acceptance import DecodeError, Draw, eos_in_force, surest
from mars_runtime.decoders.base import (
    NoMaskError,
    SettingsSource,
    Vocabulary,
    check_prompt,
    forbidden_ids,
    prefill_whole,
)
from mars_runtime.events import FINAL, Event, Prefill, Proposal, RowStep, Step, Stop
from mars_runtime.loops import up_to_loop
from mars_runtime.model.forward import Branches, CausalModel, SamplingMetadata
from mars_runtime.settings import DecodeSettings

UNTRAINED = "This checkpoint was not trained to fill blocks: choose another method."


def decode(
    model: CausalModel,
    vocabulary: Vocabulary,
    prompt: Sequence[int],
    settings: SettingsSource,
    block_size: int,
) -> Iterator[Event]:
    """Decode one prompt.

    block_size: size of the blocks in training. It is B where the settings leave it automatic, and
    an upper bound otherwise.

    Yields one Prefill, then one Step per forward; ``seconds`` stay 0 and there is no End. A step
    may emit nothing: ``RowStep.taken`` holds the positions it filled. Raises DecodeError
    immediately if the prompt does not fit.
    """
    check_prompt(model, prompt, settings().max_new_tokens)
    if block_size < 1:
        raise DecodeError(UNTRAINED)
    if vocabulary.mask_id is None:
        raise NoMaskError
    return _Filling(model, vocabulary, prompt, settings, block_size).events()


class _Filling:
    """A row that is being decoded.

    pending: clean tokens behind the cursor. block: the prediction that filled each position, or
    None; the first ``num_left`` positions have been emitted. limit: maximum number of emitted
    tokens.
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
        """Yield the events of the whole decoding."""
        yield Prefill(self._read(), cache_bytes=self._cache.num_bytes)
        is_over = False
        while not is_over:
            step = self._step(self._settings())
            is_over = step.stop in FINAL
            yield Step((step,))

    @torch.inference_mode()
    def _read(self) -> int:
        """Prefill all but the last token of the prompt, without head; return their number."""
        return prefill_whole(self._model, self._cache, self._prompt)

    @torch.inference_mode()
    def _step(self, settings: DecodeSettings) -> RowStep:
        """Run one forward.

        A new block, with the current B, starts when the previous one is full.
        """
        remaining = max(1, min(self._limit, settings.max_new_tokens) - len(self._written))
        if not self._block:
            size = self._most if settings.block_size == "auto" else settings.block_size
            self._block = [None] * min(size, self._most)
        del self._block[self._num_left + remaining :]
        slots, cursor, num_pending = self._predict(settings)
        width = len(self._block)
        taken = self._take(slots, settings)
        first, self._num_left = self._num_left, _num_filled(self._block)
        left = [
            prediction.token
            for prediction in self._block[first : self._num_left]
            if prediction is not None
        ]
        stop = self._stop(eos_in_force(settings, self._vocabulary.eos_ids), len(left) >= remaining)
        if settings.stop_loops and (count := up_to_loop(self._written, left)) is not None:
            left, stop = left[:count], "repeats"
        done = RowStep(
            row=0,
            start=len(self._written),
            cursor=cursor,
            num_pending=num_pending,
            num_fed=num_pending + width,
            proposals=tuple(filled or slots[at] for at, filled in enumerate(self._block))[first:],
            accepted=tuple(left),
            num_drafted=0,
            settings=settings,
            stop=stop,
            block_size=self._most if settings.is_auto else 0,
            taken=tuple(position - first for position in taken),
        )
        self._written += left
        if self._num_left == len(self._block):
            self._pending = [
                prediction.token for prediction in self._block if prediction is not None
            ]
            self._block, self._num_left = [], 0
        return done

    def _predict(self, settings: DecodeSettings) -> tuple[list[Proposal], int, int]:
        """Return the predictions of the block's positions, the cursor, and the number of clean
        tokens fed.

        The clean tokens are final after this.
        """
        cursor, num_pending = self._cache.cursors[0], len(self._pending)
        assert self._vocabulary.mask_id is not None
        tokens = [
            prediction.token if prediction else self._vocabulary.mask_id
            for prediction in self._block
        ]
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
        """Fill the positions with enough confidence; return them.

        The block ends with its first EOS.
        """
        is_open = [
            position for position, prediction in enumerate(self._block) if prediction is None
        ]
        chosen = surest([slots[position].confidence for position in is_open], settings.tau)
        taken = sorted(is_open[index] for index in chosen)
        for position in taken:
            self._block[position] = slots[position]
        for position, prediction in enumerate(self._block):
            if prediction is not None and prediction.token in eos_in_force(
                settings, self._vocabulary.eos_ids
            ):
                del self._block[position + 1 :]
                break
        return [position for position in taken if position < len(self._block)]

    def _stop(self, eos_ids: frozenset[int], is_limit: bool) -> Stop:
        """Return why no more tokens were emitted."""
        if self._num_left < len(self._block):
            return "threshold"
        last = self._block[-1]
        if last is not None and last.token in eos_ids:
            return "eos"
        return "limit" if is_limit else "block"


def _num_filled(block: Sequence[Proposal | None]) -> int:
    """Return the number of leading positions without an open one."""
    return block.index(None) if None in block else len(block)
