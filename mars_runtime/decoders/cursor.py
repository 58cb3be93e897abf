"""Cursor batch: rows at different positions share one forward pass per step.

A row has a cursor (the number of leading tokens with final keys and values in the KV cache) and
pending tokens after it. A forward pass feeds ``[pending | masks]``. Accepted tokens are fed again
as real tokens, so that pass also predicts what AR would have chosen at their positions; logits of
these are computed only on request (``checked``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from mars_runtime.acceptance import common_prefix_length
from mars_runtime.decoders.base import (
    PREFILL_CHUNK,
    SettingsSource,
    Vocabulary,
    check_prompt,
    check_prompts,
    check_room,
    forbidden_ids,
    prefill,
    slots_to_read,
)
from mars_runtime.decoders.draft_model import Drafted, DraftModels, DraftRows
from mars_runtime.decoders.event_stream import EventStream
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.decoders.methods import MAX_BLOCK_SIZE
from mars_runtime.decoders.plan import FeedPolicy, RowOutcome, RowPlan, drafted_for, plan_row
from mars_runtime.decoders.prefix_cache import PrefixCache, PrefixHit
from mars_runtime.decoders.rows import Row, Rows
from mars_runtime.errors import DecodeError
from mars_runtime.model.forward import Branches, CausalModel, SamplingMetadata
from mars_runtime.model.predictions import Draw
from mars_runtime.runs.events import FINAL, Event, Prefill, Proposal, RowStep, Step
from mars_runtime.settings import MAX_FED, Metric


class CursorBatch:
    """Numbered rows that share forward passes and may join or leave between steps. A row that ended
    uses its memory until ``release_ended`` is called or another row needs it.
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
        """Allocate a KV cache for ``num_rows`` rows of ``capacity`` tokens, prompt and answer
        together.

        costs: required for automatic B. draft_models: required for the method ``speculative``.
        """
        self._model = model
        self._vocabulary = vocabulary
        self._capacity = capacity
        # A forward pass also writes masks, which may extend beyond a row's last token.
        self.cache = model.new_cache(num_rows, capacity + MAX_FED)
        self._forbidden = forbidden_ids(vocabulary, model)
        self._rows = Rows(self.cache, prefix_cache, vocabulary.mask_id)
        self._ended: list[int] = []
        # Hidden states and plans of the latest forward pass.
        self._latest: tuple[Any, list[RowPlan]] = (None, [])
        has_mask = vocabulary.mask_id is not None
        self._draft_rows: DraftRows | None = None
        block_size = MAX_BLOCK_SIZE
        if draft_models is not None:
            self._draft_rows = DraftRows(
                draft_models.find, vocabulary.eos_ids, num_rows, capacity, CursorBatch
            )
            block_size = draft_models.block_size
        self._feed_policy = FeedPolicy(costs, vocabulary.eos_ids, block_size, has_mask=has_mask)

    @property
    def rows(self) -> tuple[int, ...]:
        """Numbers of the live rows in the order of the KV cache."""
        return tuple(number for number in self._rows.numbers if number not in self._ended)

    @property
    def num_bytes(self) -> int:
        num_bytes: int = self.cache.num_bytes
        return num_bytes

    @torch.inference_mode()
    def join(self, number: int, prompt: Sequence[int], settings: SettingsSource) -> None:
        """Add a row, whose ``settings`` are called at every step. Memory is reserved for the
        current max_new_tokens, which may later only be lowered. Raises DecodeError.
        """
        self.release_ended()
        limit = settings().max_new_tokens
        check_prompt(self._model, prompt, limit)
        if self._rows.is_full:
            raise DecodeError(f"All {self.cache.rows} rows are in use: wait until a row finishes.")
        check_room(prompt, limit, self._capacity)
        self._rows.join(number, prompt, settings, limit)

    def add(self, number: int, prompt: Sequence[int], settings: SettingsSource) -> int:
        """Prefill a whole prompt in a new row; return the number of prefilled tokens."""
        self.join(number, prompt, settings)
        while self.prefill(number):
            pass
        return len(prompt) - 1

    def skip_prefix_cache(self, number: int) -> None:
        self._find(number)[1].prefix = []

    @torch.inference_mode()
    def prefill(self, number: int, at_most: int = PREFILL_CHUNK) -> int:
        """Prefill the next chunk of a prompt, and of a draft model's; return how many tokens
        remain. The last prompt token is left to the first step.
        """
        index, row = self._find(number)
        self._rows.copy_prefix(index)
        self.cache.cursors[index] += prefill(
            self._model, self.cache.row(index), row.unread, at_most
        )
        if self._draft_rows is None or not row.settings().facts.needs_draft_model:
            return len(row.unread)
        return len(row.unread) + self._draft_rows.prefill(row, at_most)

    @torch.inference_mode()
    def rewind(
        self, number: int, start: int, tokens: Sequence[int], drafts: Sequence[int] = ()
    ) -> None:
        """Replace the text from position ``start`` on with ``tokens``, at least one. Keys and
        values of unchanged tokens stay cached; the count of emitted tokens restarts at 0. The next
        step verifies ``drafts``. Raises KeyError.
        """
        index, row = self._find(number)
        same = start + common_prefix_length(tokens, row.text[start:])
        row.text[same:] = tokens[same - start :]
        cursor = self.cache.cursors[index] = min(self.cache.cursors[index], same, len(row.text) - 1)
        row.unread, row.pending = [], row.text[cursor:]
        if len(row.pending) > MAX_BLOCK_SIZE:
            row.unread, row.pending = row.pending[:-1], row.pending[-1:]
        row.pending += drafts
        row.num_drafts, row.num_emitted = len(drafts), 0

    def num_reused(self, number: int) -> int:
        """Return how many prompt tokens came from the prefix cache. Raises KeyError."""
        return self._find(number)[1].num_reused

    @torch.inference_mode()
    def drop(self, number: int) -> None:
        self._find(number)
        row = self._rows.drop(number)
        if self._draft_rows is not None:
            self._draft_rows.remove(row)

    def release_ended(self) -> None:
        """Release the rows that ended in the latest step; callers do not time this."""
        ended, self._ended = self._ended, []
        for number in ended:
            self.drop(number)

    def _find(self, number: int) -> tuple[int, Row]:
        """Return the index and the row. Raises KeyError unless it is live."""
        if number in self._ended:
            raise KeyError(number)
        return self._rows.find(number)

    @torch.inference_mode()
    def gather(self, numbers: Sequence[int]) -> None:
        self.release_ended()
        self._rows.gather(numbers)

    @torch.inference_mode()
    def step(self, numbers: Sequence[int] | None = None) -> Step:
        """Run one forward pass for these rows (default: all) and remove those that end.

        An error leaves all rows unchanged; ``rows`` of a DecodeError names those that caused it.
        """
        self.release_ended()
        rows = self._rows.gather(numbers or self._rows.ready)
        for row in rows:
            row.is_sound = False
        settings = [row.settings() for row in rows]
        feeds = self._feed_policy.feeds(rows, settings)
        has_mask = self._vocabulary.mask_id is not None
        plans = [
            plan_row(row, current, feed, has_mask)
            for row, current, feed in zip(rows, settings, feeds, strict=True)
        ]
        num_fed = max(plan.layout.num_fed for plan in plans)
        predictions = self._predict(plans, num_fed)
        eos_ids = self._vocabulary.eos_ids
        outcomes = [
            RowOutcome.of(plan, slots, self._feed_policy, eos_ids)
            for plan, slots in zip(plans, predictions, strict=True)
        ]
        # If the draft models raise an error here, no row has been changed yet.
        drafted = drafted_for(outcomes, self._draft_rows, eos_ids)
        steps = [
            self._apply(index, outcome, drafted.get(outcome.plan.row.number, Drafted()))
            for index, outcome in enumerate(outcomes)
        ]
        self._ended = [row.row for row in steps if row.stop in FINAL]
        return Step(tuple(steps))

    @torch.inference_mode()
    def checked(self, step: Step, numbers: Collection[int]) -> Step:
        """Add ``RowStep.checks`` to these rows of the latest step: the tokens that AR would have
        chosen at earlier positions. Call it before the next step; callers do not time it.
        """
        hidden, plans = self._latest
        # For each row: its index, and how many of its tokens were fed again.
        fed_again = {plan.row.number: (index, plan.first_slot) for index, plan in enumerate(plans)}
        wanted = [row for row in step.rows if row.row in numbers and fed_again[row.row][1]]
        if not wanted:
            return step
        indices, counts = zip(*(fed_again[row.row] for row in wanted), strict=True)
        draws = [  # how AR would sample at these positions
            Draw.of(row.settings, range(row.cursor + 1, row.cursor + 1 + row.num_pending))
            for row in wanted
        ]
        size = self._model.config.vocab_size
        penalties = [
            plans[index].penalty(row.cursor, 0, size, self._vocabulary.eos_ids)
            for index, row in zip(indices, wanted, strict=True)
        ]
        metrics: list[Metric] = ["probability"] * len(wanted)
        head = slice(0, max(counts))
        try:
            sampling = SamplingMetadata(self._forbidden, metrics, draws, penalties=penalties)
            readings = self._model.predict(hidden[list(indices)], head, sampling)
        except DecodeError:  # Checks are only displayed, so non-finite logits must not end the run.
            return step
        checks = {
            row.row: tuple((slot.token, slot.confidence) for slot in slots[:count])
            for row, count, slots in zip(wanted, counts, readings, strict=True)
        }
        rows = [replace(row, checks=checks.get(row.row, ())) for row in step.rows]
        return replace(step, rows=tuple(rows))

    def _predict(self, plans: list[RowPlan], num_fed: int) -> list[list[Proposal]]:
        mask = self._vocabulary.mask_id or 0  # Without a mask token, no plan has masks.
        fed = [plan.tokens + [mask] * (num_fed - len(plan.tokens)) for plan in plans]
        branches = None
        if any(plan.is_tree for plan in plans):
            branches = Branches.of([plan.layout for plan in plans], num_fed)
        hidden = self._model.hidden(torch.tensor(fed), self.cache, branches)
        metrics = [plan.settings.metric for plan in plans]
        draws = [self._draw(index, plan) for index, plan in enumerate(plans)]
        size = self._model.config.vocab_size
        penalties = [
            plan.penalty(self.cache.cursors[index], plan.first_read, size, self._vocabulary.eos_ids)
            for index, plan in enumerate(plans)
        ]
        num_slots = max(plan.num_slots for plan in plans)
        head = slots_to_read([plan.first_read for plan in plans], num_slots, num_fed)
        groups = [
            group for index, plan in enumerate(plans) for group in plan.groups_to_rerank(index)
        ]
        try:
            sampling = SamplingMetadata(self._forbidden, metrics, draws, groups, penalties)
            predictions = self._model.predict(hidden, head, sampling)
        except DecodeError as error:
            numbers = tuple(plans[index].row.number for index in error.rows)
            raise DecodeError(str(error), numbers) from error
        self._latest = hidden, plans
        return predictions

    def _draw(self, index: int, plan: RowPlan) -> Draw | None:
        if plan.settings.temperature == 0:
            return None
        first = self.cache.cursors[index] + 1
        return Draw.of(plan.settings, [first + position for position in plan.read_positions()])

    def _apply(self, index: int, outcome: RowOutcome, drafted: Drafted) -> RowStep:
        row, acceptance = outcome.plan.row, outcome.acceptance
        step = outcome.step(self.cache.cursors[index], drafted)
        # The keys and values of emitted tokens and of confirmed drafts are now final.
        self.cache.cursors[index] += outcome.plan.first_slot + 1 + acceptance.num_agreed
        drafts = [*outcome.next_drafts.tokens, *drafted.tokens]
        row.emit(acceptance.emitted, acceptance.num_agreed, drafts)
        row.raised, row.is_sound = outcome.raised, True
        return step


def decode(
    model: CausalModel,
    vocabulary: Vocabulary,
    prompts: Sequence[Sequence[int]],
    settings: SettingsSource,
    costs: ForwardCosts | None = None,
    *,
    hit: PrefixHit | None = None,
    draft_models: DraftModels | None = None,
) -> Decoding:
    """Decode prompts of any lengths together, with the method of the current settings.

    Yields one Prefill, then one Step per forward pass. ``seconds`` stay 0 and there is no End,
    because the engine measures time. Raises DecodeError immediately if a prompt does not fit.

    hit: the prefix of the prompt found in the prefix cache; only for a single prompt.
    """
    limit = settings().max_new_tokens
    check_prompts(model, prompts, limit)
    num_rows, capacity = len(prompts), max(map(len, prompts)) + limit
    assert hit is None or num_rows == 1, "a prefix hit belongs to a single prompt"
    shape = (num_rows, capacity, costs)
    make = partial(CursorBatch, model, vocabulary, *shape, hit, draft_models)
    return Decoding(make, prompts, settings, hit)


def decode_on(
    batch: CursorBatch, prompts: Sequence[Sequence[int]], settings: SettingsSource
) -> Iterator[Event]:
    """Decode prompts on an empty batch that is large enough for them, and leave it empty. Raises
    DecodeError.
    """
    try:
        num_read = sum(batch.add(row, prompt, settings) for row, prompt in enumerate(prompts))
        num_reused = sum(map(batch.num_reused, batch.rows))
        yield Prefill(num_read, cache_bytes=batch.num_bytes, num_reused=num_reused)
        while batch.rows:
            yield batch.step()
    finally:
        for row in batch.rows:
            batch.drop(row)
        batch.release_ended()


class Decoding(EventStream):
    """``make`` allocates the batch when the first event is requested."""

    def __init__(
        self,
        make: Callable[[], CursorBatch],
        prompts: Sequence[Sequence[int]],
        settings: SettingsSource,
        hit: PrefixHit | None = None,
    ) -> None:
        self._batches: list[CursorBatch] = []
        super().__init__(_events(make, self._batches, prompts, settings), hit)

    def checked(self, step: Step) -> Step:
        return self._batches[0].checked(step, [row.row for row in step.rows])


def _events(
    make: Callable[[], CursorBatch],
    batches: list[CursorBatch],
    prompts: Sequence[Sequence[int]],
    settings: SettingsSource,
) -> Generator[Event, None, None]:
    """A method of Decoding would create a reference cycle, which would delay freeing the batch."""
    batch = make()
    batches.append(batch)
    yield from decode_on(batch, prompts, settings)


def decode_queue(
    model: CausalModel,
    vocabulary: Vocabulary,
    prompts: Sequence[Sequence[int]],
    settings: SettingsSource,
    num_rows: int,
    costs: ForwardCosts | None = None,
) -> Iterator[Event]:
    """Decode prompts, ``num_rows`` at a time; when a row ends, the next prompt takes its place.

    Yields a Prefill when a prompt joins; RowStep.row is the number of the prompt. Otherwise like
    ``decode``.
    """
    limit = settings().max_new_tokens
    check_prompts(model, prompts, limit)
    num_rows, capacity = min(num_rows, len(prompts)), max(map(len, prompts)) + limit
    return _queue(CursorBatch(model, vocabulary, num_rows, capacity, costs), prompts, settings)


def _queue(
    batch: CursorBatch, prompts: Sequence[Sequence[int]], settings: SettingsSource
) -> Iterator[Event]:
    waiting = deque(enumerate(prompts))
    while waiting or batch.rows:
        while waiting and len(batch.rows) < batch.cache.rows:
            number, prompt = waiting.popleft()
            yield Prefill(batch.add(number, prompt, settings), cache_bytes=batch.num_bytes)
        yield batch.step()
