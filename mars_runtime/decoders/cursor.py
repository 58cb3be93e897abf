"""Cursor batch: one forward per step for rows that are each at their own position.

Every row has a cursor (the number of leading tokens with final keys and values in the KV cache) and
pending tokens behind it. A forward feeds ``[pending | masks]``. AR, MARS and lossless MARS differ
only in how many masks are fed and which predictions are emitted. Rows join and leave between steps
and have their own settings, so the same code serves one prompt, a batch and continuous batching.

Accepted tokens are fed again as real tokens, so the slots before the first new prediction hold
AR's choice after each of them. Their hidden states are kept until the next forward. The head is
applied to them only on request (``checked``), outside the timed step.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import torch

from mars_runtime.acceptance import DecodeError, Draw, verify
from mars_runtime.decoders.base import (
    PREFILL_CHUNK,
    Batch,
    SettingsSource,
    Vocabulary,
    check_prompt,
    check_room,
    forbidden_ids,
    prefill,
    slots_to_read,
)
from mars_runtime.decoders.draft_model import Drafted, DraftModels, DraftRows
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.decoders.plan import RowOutcome, RowPlan, Steering, drafted_for, plan_row
from mars_runtime.decoders.rows import Row, Rows
from mars_runtime.events import FINAL, Proposal, RowStep, Step
from mars_runtime.model.forward import Branches, CausalModel, SamplingMetadata
from mars_runtime.prefix_cache import PrefixCache
from mars_runtime.settings import MAX_BLOCK_SIZE, MAX_FED, Metric


class CursorBatch(Batch):
    """Rows on one KV cache. ``add`` and ``drop`` between steps; ``step`` is one forward for all.

    ``join`` and ``read`` are the two halves of ``add``, so that a long prompt need not block other
    rows. A step that raises leaves every row unchanged. A row that ends is no longer listed, but
    occupies its place until ``tidy`` or until the place is needed.
    """

    def __init__(
        self,
        model: CausalModel,
        vocabulary: Vocabulary,
        num_rows: int,
        capacity: int,
        costs: ForwardCosts | None = None,
        prefix_cache: PrefixCache | None = None,
        draft_models: DraftModels | None = None,
    ) -> None:
        """Allocate a cache for ``num_rows`` rows of ``capacity`` tokens each, prompt and answer
        together.

        costs: of forwards on this device; required by automatic B.
        prefix_cache: cache of keys and values of earlier texts, which these rows read and extend.
        draft_models: required by the method ``speculative``.
        """
        self._model = model
        self._vocabulary = vocabulary
        self._capacity = capacity
        # Mask groups, and masks that pad a shorter row, are written behind a row's end.
        self.cache = model.new_cache(num_rows, capacity + MAX_FED)
        self._forbidden = forbidden_ids(vocabulary, model)
        self._rows = Rows(self.cache, prefix_cache, vocabulary.mask_id)
        self._ended: list[int] = []
        # Hidden states and plans of the latest forward.
        self._latest: tuple[Any, list[RowPlan]] = (None, [])
        has_mask = vocabulary.mask_id is not None
        self._draft_rows: DraftRows | None = None
        block_size = MAX_BLOCK_SIZE
        if draft_models is not None:
            self._draft_rows = DraftRows(
                draft_models.find, vocabulary.eos_ids, num_rows, capacity, CursorBatch
            )
            block_size = draft_models.block_size
        self._costs = costs
        self._steering = Steering(costs, vocabulary.eos_ids, block_size, has_mask=has_mask)

    @property
    def rows(self) -> tuple[int, ...]:
        """Numbers of the live rows, in the order of their places."""
        return tuple(number for number in self._rows.numbers if number not in self._ended)

    @property
    def num_bytes(self) -> int:
        """Bytes of the keys and values of all rows."""
        num_bytes: int = self.cache.num_bytes
        return num_bytes

    @torch.inference_mode()
    def join(self, number: int, prompt: Sequence[int], settings: SettingsSource) -> None:
        """Take a free place for a prompt, which ``read`` then prefills.

        The limit is the current max_new_tokens: it may be lowered later, but not raised above what
        was reserved. Raises DecodeError.
        """
        self.tidy()
        limit = settings().max_new_tokens
        check_prompt(self._model, prompt, limit)
        if self._rows.is_full:
            raise DecodeError(f"All {self.cache.rows} rows are taken: wait until one is finished.")
        check_room(prompt, limit, self._capacity)
        self._rows.join(number, prompt, settings, limit)

    def forgo(self, number: int) -> None:
        """Prefill this prompt from scratch, ignoring the prefix cache. Raises KeyError."""
        self._find(number)[1].prefix = []

    @torch.inference_mode()
    def read(self, number: int, at_most: int = PREFILL_CHUNK) -> int:
        """Prefill the next chunk of a prompt, without head; return the number of tokens left.

        Blocks of the prefix cache are copied first. The last prompt token is left to the first
        step. A draft model prefills the prompt as well. Raises KeyError.
        """
        place, row = self._find(number)
        self._rows.reuse(place)
        self.cache.cursors[place] += prefill(
            self._model, self.cache.row(place), row.unread, at_most
        )
        if self._draft_rows is None or row.settings().method != "speculative":
            return len(row.unread)
        return len(row.unread) + self._draft_rows.read(row, at_most)

    @torch.inference_mode()
    def rewind(self, number: int, start: int, tokens: Sequence[int]) -> None:
        """Replace the row's text (prompt included) from position ``start`` on with ``tokens``.

        ``tokens`` must not be empty. Cached tokens that stay equal stay cached. The limit counts
        from here. Raises KeyError.
        """
        place, row = self._find(number)
        same = start + verify(tokens, row.text[start:])
        row.text[same:] = tokens[same - start :]
        cursor = self.cache.cursors[place] = min(self.cache.cursors[place], same, len(row.text) - 1)
        row.unread, row.pending = [], row.text[cursor:]
        if len(row.pending) > MAX_BLOCK_SIZE:
            row.unread, row.pending = row.pending[:-1], row.pending[-1:]
        row.num_drafts = row.num_emitted = 0

    def num_reused(self, number: int) -> int:
        """Return how many tokens of a prefilled prompt came from the prefix cache.

        Raises KeyError.
        """
        return self._find(number)[1].num_reused

    @torch.inference_mode()
    def drop(self, number: int) -> None:
        """Remove a row, finished or not; its place is free immediately. Raises KeyError."""
        self._find(number)
        row = self._rows.drop(number)
        if self._draft_rows is not None:
            self._draft_rows.leave(row)

    def tidy(self) -> None:
        """Cache the texts of ended rows and free their places, outside the timed step."""
        ended, self._ended = self._ended, []
        for number in ended:
            self.drop(number)

    def _find(self, number: int) -> tuple[int, Row]:
        """Return the place and the row of a live row. Raises KeyError."""
        if number in self._ended:
            raise KeyError(number)
        return self._rows.find(number)

    @torch.inference_mode()
    def gather(self, numbers: Sequence[int]) -> None:
        """Move rows to the first places, where ``step`` needs them. Raises KeyError."""
        self.tidy()
        self._rows.gather(numbers)

    @torch.inference_mode()
    def step(self, numbers: Sequence[int] | None = None) -> Step:
        """Run one forward of these rows (default: all prefilled rows); the others are skipped.

        Rows that end (EOS, limit or loop) are removed.

        Raises DecodeError with the numbers of the rows concerned, or none if it concerns all rows.
        """
        self.tidy()
        began = time.perf_counter()
        rows = self._rows.gather(numbers or self._rows.ready)
        for row in rows:
            row.is_sound = False
        settings = [row.settings() for row in rows]
        feeds = self._steering.feeds(rows, settings)
        has_mask = self._vocabulary.mask_id is not None
        plans = [
            plan_row(row, current, feed, has_mask)
            for row, current, feed in zip(rows, settings, feeds, strict=True)
        ]
        num_fed = max(plan.layout.num_fed for plan in plans)
        predictions = self._predict(plans, num_fed)
        eos_ids = self._vocabulary.eos_ids
        outcomes = [
            RowOutcome.of(plan, slots, self._steering, eos_ids)
            for plan, slots in zip(plans, predictions, strict=True)
        ]
        drafted = drafted_for(
            outcomes, self._draft_rows, eos_ids
        )  # if it fails, rows are as before
        steps = [
            self._settle(place, outcome, drafted.get(outcome.plan.row.number, Drafted()))
            for place, outcome in enumerate(outcomes)
        ]
        self._ended = [row.row for row in steps if row.stop in FINAL]
        done = Step(tuple(steps))
        if self._costs is not None:
            self._costs.note(done, time.perf_counter() - began)
        return done

    @torch.inference_mode()
    def checked(self, step: Step, numbers: Collection[int]) -> Step:
        """Return the latest step with AR's choices before it for these rows, outside the timed
        step."""
        hidden, plans = self._latest
        again = {plan.row.number: (at, plan.first_slot) for at, plan in enumerate(plans)}
        wanted = [row for row in step.rows if row.row in numbers and again[row.row][1]]
        if not wanted:
            return step
        places, counts = zip(*(again[row.row] for row in wanted), strict=True)
        draws = [
            Draw.of(row.settings, range(row.cursor + 1, row.cursor + 1 + row.num_pending))
            for row in wanted  # the noise that AR would draw with at the same positions
        ]
        size = self._model.config.vocab_size
        penalties = [
            plans[at].penalty(row.cursor, 0, size, self._vocabulary.eos_ids)
            for at, row in zip(places, wanted, strict=True)
        ]
        metrics: list[Metric] = ["probability"] * len(wanted)
        head = slice(0, max(counts))
        try:
            sampling = SamplingMetadata(self._forbidden, metrics, draws, penalties=penalties)
            readings = self._model.read(hidden[list(places)], head, sampling)
        except DecodeError:  # non-finite logits: values that are only displayed must not end a run
            return step
        checks = {
            row.row: tuple((slot.token, slot.confidence) for slot in slots[:count])
            for row, count, slots in zip(wanted, counts, readings, strict=True)
        }
        rows = [replace(row, checks=checks.get(row.row, ())) for row in step.rows]
        return replace(step, rows=tuple(rows))

    def _predict(self, plans: list[RowPlan], num_fed: int) -> list[list[Proposal]]:
        mask = self._vocabulary.mask_id or 0  # 0 only if no plan has masks
        fed = [plan.tokens + [mask] * (num_fed - len(plan.tokens)) for plan in plans]
        branches = None
        if any(plan.is_tree for plan in plans):
            branches = Branches.of([plan.layout for plan in plans], num_fed)
        hidden = self._model.hidden(torch.tensor(fed), self.cache, branches)
        metrics = [plan.settings.metric for plan in plans]
        draws = [self._draw(place, plan) for place, plan in enumerate(plans)]
        size = self._model.config.vocab_size
        penalties = [
            plan.penalty(self.cache.cursors[place], plan.first_read, size, self._vocabulary.eos_ids)
            for place, plan in enumerate(plans)
        ]
        num_slots = max(plan.num_slots for plan in plans)
        head = slots_to_read([plan.first_read for plan in plans], num_slots, num_fed)
        groups = [group for place, plan in enumerate(plans) for group in plan.ranked(place)]
        try:
            sampling = SamplingMetadata(self._forbidden, metrics, draws, groups, penalties)
            predictions = self._model.read(hidden, head, sampling)
        except DecodeError as error:
            numbers = tuple(plans[place].row.number for place in error.rows)
            raise DecodeError(str(error), numbers) from error
        self._latest = hidden, plans
        return predictions

    def _draw(self, place: int, plan: RowPlan) -> Draw | None:
        first = self.cache.cursors[place] + 1
        return Draw.of(plan.settings, [first + position for position in plan.read_positions()])

    def _settle(self, place: int, outcome: RowOutcome, drafted: Drafted) -> RowStep:
        row, judgement = outcome.plan.row, outcome.judgement
        done = outcome.step(self.cache.cursors[place], drafted)
        # Commit: the tokens that had been emitted before, and the drafts that AR confirmed, are
        # final.
        self.cache.cursors[place] += outcome.plan.first_slot + 1 + judgement.num_agreed
        drafts = [*outcome.ahead.tokens, *drafted.tokens]
        row.emit(judgement.emitted, judgement.num_agreed, drafts)
        row.raised, row.is_sound = outcome.raised, True
        return done
