"""One forward of a whole batch, read into proposals and judged: for decoders without drafts.

Knows no cursor, block or history; what a row feeds and where its predictions start is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mars_runtime.acceptance import DecodeError, Draw, judge, read
from mars_runtime.decoders.base import CausalModel, SettingsSource, Vocabulary, forbidden_ids
from mars_runtime.events import Proposal, RowStep
from mars_runtime.settings import DecodeSettings


@dataclass(frozen=True, slots=True)
class Ask:
    """What one row of a forward wants.

    place: its place in the batch; row: its number in events; start: tokens it has emitted.
    cursor, num_pending: as in RowStep; the last pending slot predicts the first new token.
    num_proposals: predictions from there on; remaining: tokens that may still leave.
    """

    place: int
    row: int
    settings: DecodeSettings
    start: int
    cursor: int
    num_pending: int
    num_proposals: int
    remaining: int


class Proposer:
    """Feeds a batch and judges what comes back. ``cache`` is the batch's."""

    def __init__(self, model: CausalModel, vocabulary: Vocabulary, cache: Any) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._cache = cache
        self._forbidden = torch.tensor(
            sorted(forbidden_ids(vocabulary, model)), dtype=torch.long, device=model.device
        )

    def step(self, fed: list[list[int]], num_fed: int, asks: Sequence[Ask]) -> tuple[RowStep, ...]:
        """One forward of all rows, each filled up with masks to ``num_fed`` tokens.

        Raises DecodeError with the numbers of the rows whose logits were no numbers.
        """
        mask = self._vocabulary.mask_id or 0
        tokens = [row + [mask] * (num_fed - len(row)) for row in fed]
        head = self._head(len(fed), num_fed, asks)
        logits = self._model.forward(
            torch.tensor(tokens, device=self._model.device), self._cache, head
        )
        assert logits is not None
        if len(asks) < len(fed):
            logits = logits[[ask.place for ask in asks]]
        metrics = [ask.settings.metric for ask in asks]
        try:
            predictions = read(logits, self._forbidden, metrics, [_draw(ask) for ask in asks])
        except DecodeError as error:
            numbers = tuple(asks[place].row for place in error.rows)
            raise DecodeError(str(error), numbers) from error
        return tuple(
            self._settle(ask, slots[: ask.num_proposals], num_fed)
            for ask, slots in zip(asks, predictions, strict=True)
        )

    def _head(self, num_rows: int, num_fed: int, asks: Sequence[Ask]) -> Tensor | slice:
        """Slots that need logits; of rows that ask for nothing any will do."""
        num_slots = max(ask.num_proposals for ask in asks)
        firsts = {ask.place: ask.num_pending - 1 for ask in asks}
        if len(set(firsts.values())) == 1:
            first = asks[0].num_pending - 1
            return slice(first, first + num_slots)
        starts = torch.tensor([firsts.get(place, 0) for place in range(num_rows)])
        slots = starts.unsqueeze(1) + torch.arange(num_slots)
        return slots.clamp_(max=num_fed - 1).to(self._model.device)

    def _settle(self, ask: Ask, slots: list[Proposal], num_fed: int) -> RowStep:
        verdict = judge(
            slots[:1], [slots[1:]], [], ask.settings, ask.remaining, self._vocabulary.eos_ids
        )
        return RowStep(
            row=ask.row,
            start=ask.start,
            cursor=ask.cursor,
            num_pending=ask.num_pending,
            num_fed=num_fed,
            proposals=tuple(slots),
            accepted=tuple(verdict.emitted),
            num_drafted=0,
            settings=ask.settings,
            stop=verdict.stop,
        )


def unverified(source: SettingsSource) -> DecodeSettings:
    """The settings in force. Raises DecodeError where they ask for what only the cursor cache has:
    verified tokens, a B that is chosen at each forward, or a threshold that adapts."""
    settings = source()
    if settings.is_auto:
        raise DecodeError("Only the cursor cache chooses B itself: give a number as B.")
    if settings.is_adaptive:
        raise DecodeError("Only the cursor cache adapts τ: choose a fixed threshold.")
    if settings.is_verified:
        raise DecodeError("Only the cursor cache verifies: switch lossless off or choose cursor.")
    return settings


def _draw(ask: Ask) -> Draw | None:
    first = ask.cursor + ask.num_pending
    return Draw.of(ask.settings, range(first, first + ask.num_proposals))
