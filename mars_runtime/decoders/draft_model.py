"""Draft models: a smaller model drafts tokens, and the target's next forward pass verifies them.

Speculative decoding (Leviathan et al. 2023, arXiv 2211.17192). A draft model that was trained for
masks drafts several tokens per forward pass, by the rule of unverified MARS. At temperatures above
0 it samples with the target's noise, so the two models agree more often than by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from mars_runtime.acceptance import up_to_end
from mars_runtime.decoders.base import SettingsSource, Vocabulary
from mars_runtime.decoders.decision import eos_in_force
from mars_runtime.decoders.methods import MAX_DRAFTS
from mars_runtime.decoders.rows import Row
from mars_runtime.errors import DecodeError
from mars_runtime.model.forward import CausalModel
from mars_runtime.runs.events import Step
from mars_runtime.settings import MAX_NEW_TOKENS, DecodeSettings


@dataclass(frozen=True, slots=True)
class DraftModel:
    """``vocabulary`` has the target's token ids; ``block_size`` is the B of the training."""

    model: CausalModel
    vocabulary: Vocabulary
    block_size: int


@dataclass(frozen=True, slots=True)
class DraftModels:
    """find: returns the draft model with the given name ("" for the default one); raises
    DecodeError.
    block_size: the B that the target was trained with.
    """

    find: Callable[[str], DraftModel]
    block_size: int


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """Up to ``at_most`` drafts after the tokens that ``row`` emits and its ``drafts``."""

    row: Row
    emitted: Sequence[int]
    drafts: Sequence[int]
    at_most: int
    settings: DecodeSettings


@dataclass(frozen=True, slots=True)
class Drafted:
    tokens: tuple[int, ...] = ()
    num_forwards: int = 0


class DraftBatch(Protocol):
    """What is needed of ``CursorBatch``."""

    def join(self, number: int, prompt: Sequence[int], settings: SettingsSource) -> None: ...
    def prefill(self, number: int, at_most: int = ...) -> int: ...
    def rewind(self, number: int, start: int, tokens: Sequence[int]) -> None: ...
    def step(self, numbers: Sequence[int] | None = None) -> Step: ...
    def drop(self, number: int) -> None: ...


@dataclass(slots=True)
class _DraftRow:
    """num_known: number of leading tokens that are final."""

    name: str
    batch: DraftBatch
    settings: DecodeSettings
    num_known: int


class DraftRows:
    """Rows of draft models for a batch, created when they are first needed."""

    def __init__(
        self,
        find: Callable[[str], DraftModel],
        eos_ids: frozenset[int],
        num_rows: int,
        capacity: int,
        new_batch: Callable[[CausalModel, Vocabulary, int, int], DraftBatch],
    ) -> None:
        self._find = find
        self._eos_ids = eos_ids
        self._num_rows, self._capacity = num_rows, capacity
        self._new_batch = new_batch
        self._batches: dict[str, DraftBatch] = {}

    def prefill(self, row: Row, at_most: int) -> int:
        """Prefill the next chunk of the row's prompt and return how many tokens are left."""
        return self._draft_row(row, row.settings()).batch.prefill(row.number, at_most)

    def remove(self, row: Row) -> None:
        draft_row, row.draft_row = row.draft_row, None
        if draft_row is not None:
            draft_row.batch.drop(row.number)

    def propose(self, requests: Sequence[DraftRequest]) -> dict[int, Drafted]:
        """Draft tokens and return them by row number. Rows with the same draft model share its
        passes. Drafts end with their first EOS token. Raises DecodeError with the rows that caused
        it.
        """
        drafted: dict[int, Drafted] = {}
        batches: dict[str, list[DraftRequest]] = {}
        for request in requests:
            draft_row = self._draft_row(request.row, request.settings)
            drafted[request.row.number] = Drafted((), self._catch_up(draft_row, request))
            batches.setdefault(draft_row.name, []).append(request)
        for name, unfinished in batches.items():
            while unfinished:
                self._update_settings(unfinished, drafted)
                step = self._batches[name].step([request.row.number for request in unfinished])
                settings = {request.row.number: request.settings for request in unfinished}
                for row_step in step.rows:
                    before, ends = drafted[row_step.row], self._ends(settings[row_step.row])
                    tokens = up_to_end([*before.tokens, *row_step.accepted], ends)
                    drafted[row_step.row] = Drafted(tuple(tokens), before.num_forwards + 1)
                unfinished = [
                    request for request in unfinished if self._needs_more(request, drafted)
                ]
        return drafted

    def _needs_more(self, request: DraftRequest, drafted: dict[int, Drafted]) -> bool:
        tokens = drafted[request.row.number].tokens
        return len(tokens) < request.at_most and tokens[-1] not in self._ends(request.settings)

    def _ends(self, settings: DecodeSettings) -> frozenset[int]:
        return eos_in_force(settings, self._eos_ids)

    def _update_settings(
        self, requests: Sequence[DraftRequest], drafted: dict[int, Drafted]
    ) -> None:
        """Draft as many tokens as are missing, without stops at EOS and loops."""
        for request in requests:
            draft, settings = self._find(request.settings.draft), request.settings
            num_missing = request.at_most - len(drafted[request.row.number].tokens)
            has_masks = draft.block_size > 1 and draft.vocabulary.mask_id is not None
            is_masked = has_masks and settings.masked in ("both", "draft")
            request.row.draft_row.settings = replace(
                settings,
                method="mars" if is_masked else "ar",
                block_size=min(num_missing, draft.block_size),
                lossless=False,
                tau_policy="fixed",
                stop_loops=False,
                ignore_eos=True,
                max_new_tokens=MAX_NEW_TOKENS,
            )

    def _catch_up(self, draft_row: _DraftRow, request: DraftRequest) -> int:
        """Make the text of a draft row equal the target's, drafts included; return the forward
        passes used.
        """
        row, batch, num_forwards = request.row, draft_row.batch, 0
        while batch.prefill(row.number):
            num_forwards += 1
        tokens = [*row.text[draft_row.num_known :], *request.emitted, *request.drafts]
        batch.rewind(row.number, draft_row.num_known, tokens)
        draft_row.num_known = len(row.text) + len(request.emitted)
        while batch.prefill(row.number):
            num_forwards += 1
        return num_forwards

    def _draft_row(self, row: Row, settings: DecodeSettings) -> _DraftRow:
        if isinstance(row.draft_row, _DraftRow) and row.draft_row.name == settings.draft:
            return row.draft_row
        self.remove(row)
        limit = max(1, row.limit - row.num_emitted)
        draft_settings = DecodeSettings("ar", max_new_tokens=limit)
        try:
            batch = self._batch(settings.draft)
            draft_row = _DraftRow(settings.draft, batch, draft_settings, len(row.text))
            batch.join(row.number, row.text, lambda: draft_row.settings)
        except DecodeError as error:  # Other rows can continue, so the error names this row.
            raise DecodeError(str(error), (row.number,)) from None
        row.draft_row = draft_row
        return draft_row

    def _batch(self, name: str) -> DraftBatch:
        if name not in self._batches:
            draft = self._find(name)
            capacity = self._capacity + MAX_DRAFTS
            self._batches[name] = self._new_batch(
                draft.model, draft.vocabulary, self._num_rows, capacity
            )
        return self._batches[name]
