"""One step of all rows: input, forward, reading, judgement, next state and record, on the device.

Every shape is known beforehand and no number is read back, so the host only has to say which shape
comes next: a step can be captured once and replayed. What it did is found in ``State.ring``.
Knows no graphs and no streams.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from mars_runtime.decoders.base import CausalModel, Vocabulary, forbidden_ids
from mars_runtime.decoders.forced import ForcedAcceptance
from mars_runtime.decoders.static.judge import (
    EOS,
    FULL,
    Plan,
    Verdict,
    forced_counts,
    judge_rows,
    plan_rows,
)
from mars_runtime.decoders.static.read import Reading, read_slots
from mars_runtime.decoders.static.records import write_record
from mars_runtime.decoders.static.state import (
    CURSOR,
    IS_LIVE,
    NUM_EMITTED,
    TAKES_PART,
    Shape,
    State,
)


class StaticModel(CausalModel, Protocol):
    """A model whose forward can take its cursors from the device. ``kept``: what others keep with
    it for as long as it lives."""

    @property
    def kept(self) -> dict[str, Any]: ...
    def forward_at(
        self, tokens: Tensor, cache: Any, head: Tensor, cursors: Tensor, context: int
    ) -> Tensor: ...


class StaticStep:
    """The step as a function of the shape; model, cache and state stay where they are."""

    def __init__(
        self,
        model: StaticModel,
        vocabulary: Vocabulary,
        cache: Any,
        state: State,
        forced: ForcedAcceptance | None = None,
    ) -> None:
        self._model = model
        self._cache = cache
        self._state = state
        self._mask = vocabulary.mask_id or 0  # 0 only where no row asks for masks
        self._forbidden = self._ids(forbidden_ids(vocabulary, model))
        # A row of forced lengths must not end where random weights happen to say EOS.
        self._eos = self._ids(vocabulary.eos_ids if forced is None else ())
        self._forced = forced
        bounds = forced.bounds if forced else ()
        self._bounds = torch.tensor(bounds, dtype=torch.float64, device=model.device)

    def _ids(self, ids: Any) -> Tensor:
        return torch.tensor(sorted(ids), dtype=torch.long, device=self._model.device)

    @torch.inference_mode()
    def __call__(self, shape: Shape) -> None:
        """Take all rows one forward further and leave a record in the ring."""
        state = self._state.first(shape.num_rows)
        plan = plan_rows(state, shape)
        takes_part = (state.numbers[:, IS_LIVE] * state.wholes[:, TAKES_PART]).bool()
        columns = torch.arange(shape.num_queries, device=self._model.device)
        is_real = columns < plan.num_tokens.unsqueeze(1)
        fed = torch.where(is_real, state.pending[:, : shape.num_queries], self._mask)
        # A place that sits out writes behind the reach of any row, where nobody reads.
        parked = self._cache.capacity - shape.num_queries
        cursors = torch.where(takes_part, state.numbers[:, CURSOR], parked)
        head = plan.first_slot.unsqueeze(1) + columns[: shape.num_slots]
        head = head.clamp_(max=shape.num_queries - 1)
        logits = self._model.forward_at(fed, self._cache, head, cursors, shape.context)
        starts = cursors + plan.first_slot + 1
        reading = read_slots(logits, self._forbidden, state, starts, shape)
        counts = None
        if self._forced is not None:
            counts = forced_counts(state, self._bounds, self._forced.seed)
        verdict = judge_rows(reading, fed, plan, state, shape, self._eos, counts)
        moved = _moved(state, plan, verdict)
        write_record(state, takes_part, plan, reading, verdict, moved)
        _advance(state, takes_part & ~reading.is_broken, reading, verdict, moved)


def _moved(state: State, plan: Plan, verdict: Verdict) -> Tensor:
    """``State.numbers`` of the next step for a row that goes on, [R, 5]."""
    numbers = state.numbers
    num_pending = verdict.num_kept - verdict.num_agreed + verdict.num_guessed
    return torch.stack(
        [
            torch.ones_like(num_pending),
            numbers[:, CURSOR] + plan.first_slot + 1 + verdict.num_agreed,
            num_pending,
            verdict.num_kept - verdict.num_accepted + verdict.num_guessed,
            numbers[:, NUM_EMITTED] + verdict.num_accepted,
        ],
        1,
    )


def _advance(
    state: State, is_stepped: Tensor, reading: Reading, verdict: Verdict, moved: Tensor
) -> None:
    """Move on the rows that go on and mark those that have ended; all else stays as it is."""
    has_ended = is_stepped & ((verdict.stop == EOS) | (verdict.stop == FULL))
    goes_on = (is_stepped & ~has_ended).unsqueeze(1)
    state.numbers.copy_(torch.where(goes_on, moved, state.numbers))
    state.numbers[:, IS_LIVE].mul_(~has_ended)
    # As many as were read. Behind the kept tokens stands the last of them again: where there are
    # guesses those are they, and what lies behind the pending tokens is not looked at.
    num_slots = reading.tokens.shape[1]
    last = (verdict.num_kept - 1).unsqueeze(1)
    places = torch.arange(num_slots, device=moved.device)
    at = (verdict.num_agreed.unsqueeze(1) + places).minimum(last)
    pending = state.pending[:, :num_slots]
    pending.copy_(torch.where(goes_on, reading.tokens.gather(1, at), pending))
