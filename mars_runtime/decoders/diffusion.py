"""Block diffusion: fill a block of masks in order of confidence, one row at a time.

For checkpoints trained with bidirectional attention inside a block (Arriola et al. 2025, arXiv
2503.09573). A forward pass feeds ``[clean tokens of the previous block | the block]``. Attention is
causal for the clean tokens, so their keys and values become final; a position of the block attends
to everything before it and to the whole block. A pass fills the open positions with a confidence of
at least τ, and always the most confident one. Nothing is verified.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from mars_runtime.acceptance import accept_by_confidence
from mars_runtime.decoders.base import (
    NoMaskError,
    SettingsSource,
    Vocabulary,
    check_prompt,
    forbidden_ids,
    prefill_whole,
)
from mars_runtime.decoders.decision import eos_in_force
from mars_runtime.errors import DecodeError
from mars_runtime.model.forward import Branches, CausalModel, SamplingMetadata
from mars_runtime.model.predictions import Draw
from mars_runtime.runs.events import FINAL, Event, Prefill, Proposal, RowStep, Step, Stop
from mars_runtime.runs.loops import up_to_loop
from mars_runtime.settings import DecodeSettings

UNTRAINED = "This checkpoint was not trained for block diffusion: choose another method."


def decode(
    model: CausalModel,
    vocabulary: Vocabulary,
    prompt: Sequence[int],
    settings: SettingsSource,
    block_size: int,
) -> Iterator[Event]:
    """Yield a Prefill, then a Step per forward pass; ``seconds`` stay 0 and there is no End.

    ``block_size``, the size of the blocks in training, is the maximum and automatic B. A step emits
    tokens up to the first open position, perhaps none; ``RowStep.taken`` has the positions that it
    filled. Raises DecodeError immediately if the prompt does not fit.
    """
    check_prompt(model, prompt, settings().max_new_tokens)
    if block_size < 1:
        raise DecodeError(UNTRAINED)
    if vocabulary.mask_id is None:
        raise NoMaskError
    return _BlockFiller(model, vocabulary, prompt, settings, block_size).events()


class _BlockFiller:
    """_pending: clean tokens after the cursor, which the next forward pass feeds.
    _block: for each position, the prediction that filled it, or None while it is open.
    _num_emitted: number of leading positions of the block that have been emitted.
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
        self._max_size = block_size
        self._limit = settings().max_new_tokens
        self._cache: Any = model.new_cache(1, len(prompt) + self._limit + block_size)
        self._forbidden = forbidden_ids(vocabulary, model)
        self._pending = [prompt[-1]]
        self._block: list[Proposal | None] = []
        self._num_emitted = 0
        self._written: list[int] = []

    def events(self) -> Iterator[Event]:
        yield Prefill(self._prefill(), cache_bytes=self._cache.num_bytes)
        is_over = False
        while not is_over:
            step = self._step(self._settings())
            is_over = step.stop in FINAL
            yield Step((step,))

    @torch.inference_mode()
    def _prefill(self) -> int:
        return prefill_whole(self._model, self._cache, self._prompt)

    @torch.inference_mode()
    def _step(self, settings: DecodeSettings) -> RowStep:
        remaining = max(1, min(self._limit, settings.max_new_tokens) - len(self._written))
        if not self._block:
            size = self._max_size if settings.block_size == "auto" else settings.block_size
            self._block = [None] * min(size, self._max_size)
        del self._block[self._num_emitted + remaining :]
        slots, cursor, num_pending = self._predict(settings)
        width = len(self._block)
        filled = self._fill(slots, settings)
        first, self._num_emitted = self._num_emitted, _num_filled(self._block)
        emitted = [
            prediction.token
            for prediction in self._block[first : self._num_emitted]
            if prediction is not None
        ]
        eos_ids = eos_in_force(settings, self._vocabulary.eos_ids)
        stop = self._stop(eos_ids, len(emitted) >= remaining)
        if settings.stop_loops and (count := up_to_loop(self._written, emitted)) is not None:
            emitted, stop = emitted[:count], "repeats"
        proposals = tuple(prediction or slots[at] for at, prediction in enumerate(self._block))
        step = RowStep(
            row=0,
            start=len(self._written),
            cursor=cursor,
            num_pending=num_pending,
            num_fed=num_pending + width,
            proposals=proposals[first:],
            accepted=tuple(emitted),
            num_drafted=0,
            settings=settings,
            stop=stop,
            block_size=self._max_size if settings.is_auto else 0,
            taken=tuple(position - first for position in filled),
        )
        self._written += emitted
        if self._num_emitted == len(self._block):
            self._pending = [
                prediction.token for prediction in self._block if prediction is not None
            ]
            self._block, self._num_emitted = [], 0
        return step

    def _predict(self, settings: DecodeSettings) -> tuple[list[Proposal], int, int]:
        """Return the predictions for the block, the cursor before the pass, and the number of clean
        tokens fed.
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
        slots = self._model.predict(hidden, head, sampling)[0]
        self._cache.cursors[0] += num_pending
        self._pending = []
        return slots, cursor, num_pending

    def _fill(self, slots: Sequence[Proposal], settings: DecodeSettings) -> list[int]:
        """Return the positions that were filled, and cut the block after its first EOS token."""
        open_positions = [
            position for position, prediction in enumerate(self._block) if prediction is None
        ]
        chosen = accept_by_confidence(
            [slots[position].confidence for position in open_positions], settings.tau
        )
        filled = sorted(open_positions[index] for index in chosen)
        for position in filled:
            self._block[position] = slots[position]
        for position, prediction in enumerate(self._block):
            if prediction is not None and prediction.token in eos_in_force(
                settings, self._vocabulary.eos_ids
            ):
                del self._block[position + 1 :]
                break
        return [position for position in filled if position < len(self._block)]

    def _stop(self, eos_ids: frozenset[int], is_limit: bool) -> Stop:
        if self._num_emitted < len(self._block):
            return "threshold"
        last = self._block[-1]
        if last is not None and last.token in eos_ids:
            return "eos"
        return "limit" if is_limit else "block"


def _num_filled(block: Sequence[Proposal | None]) -> int:
    return block.index(None) if None in block else len(block)
