"""Draft models: a smaller model drafts tokens, and the batch's next forward verifies them.

Speculative decoding (Leviathan et al. 2023, arXiv 2211.17192) with one addition (MARS): a draft
model that was trained for masks drafts several tokens per forward, by the rule of unverified MARS.
A draft model has its own cursor cache, so following the target's committed tokens only moves a
cursor: ``CursorBatch.rewind``. At a temperature above 0 it samples with the target's noise, so the
two agree more often than by chance.

This module sees only the tokens of the target's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from mars_runtime.acceptance import DecodeError, eos_in_force, up_to_end
from mars_runtime.decoders.base import Batch, Vocabulary
from mars_runtime.decoders.rows import Row
from mars_runtime.model.forward import CausalModel
from mars_runtime.settings import MAX_DRAFTS, MAX_NEW_TOKENS, DecodeSettings


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A draft model, its vocabulary (the target's ids) and the B that it was trained with."""

    model: CausalModel
    vocabulary: Vocabulary
    block_size: int


@dataclass(frozen=True, slots=True)
class DraftModels:
    """Access to draft models.

    find: returns the draft model of a name, "" for the default one; raises DecodeError. block_size:
    the B that the target was trained with, which caps its masks.
    """

    find: Callable[[str], DraftModel]
    block_size: int


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """Request for up to ``at_most`` further drafts for ``row``.

    They follow the tokens it is about to emit and ``drafts``, which another source proposed.
    """

    row: Row
    emitted: Sequence[int]
    drafts: Sequence[int]
    at_most: int
    settings: DecodeSettings


@dataclass(frozen=True, slots=True)
class Drafted:
    """Tokens that a draft model added to a row's drafts, and its number of forwards for that
    row."""

    tokens: tuple[int, ...] = ()
    num_forwards: int = 0


class RewindableBatch(Batch, Protocol):
    """A batch whose rows can replace the end of their text; see ``CursorBatch``."""

    def rewind(self, number: int, start: int, tokens: Sequence[int]) -> None:
        """Replace the text of a row from position ``start`` on with ``tokens``."""


@dataclass(slots=True)
class _DraftRow:
    """The row of a draft model for one row of the batch.

    num_known: leading tokens of its text that the target has committed. now: current settings.
    """

    name: str
    batch: RewindableBatch
    now: DecodeSettings
    num_known: int


class DraftRows:
    """Draft-model rows for a batch of ``num_rows`` rows of ``capacity`` tokens.

    The batch verifies their drafts with its next forward. Rows are created at the first request, on
    one batch per draft model, made by ``new_batch``.
    """

    def __init__(
        self,
        find: Callable[[str], DraftModel],
        eos_ids: frozenset[int],
        num_rows: int,
        capacity: int,
        new_batch: Callable[[CausalModel, Vocabulary, int, int], RewindableBatch],
    ) -> None:
        self._find = find
        self._eos_ids = eos_ids
        self._num_rows, self._capacity = num_rows, capacity
        self._new_batch = new_batch
        self._batches: dict[str, RewindableBatch] = {}

    def read(self, row: Row, at_most: int) -> int:
        """Prefill the next chunk of the row's prompt; return the number of tokens left.

        Raises DecodeError.
        """
        return self._joined(row, row.settings()).batch.read(row.number, at_most)

    def leave(self, row: Row) -> None:
        """Remove the draft model's row."""
        draft_row, row.draft_row = row.draft_row, None
        if draft_row is not None:
            draft_row.batch.drop(row.number)

    def propose(self, requests: Sequence[DraftRequest]) -> dict[int, Drafted]:
        """Draft for rows; the rows of one draft model share its forwards. Returns drafts by row
        number.

        A draft ends with its first EOS token, unless the row ignores EOS. Raises DecodeError with
        the numbers of the rows concerned.
        """
        drafted: dict[int, Drafted] = {}
        batches: dict[str, list[DraftRequest]] = {}
        for request in requests:
            draft_row = self._joined(request.row, request.settings)
            drafted[request.row.number] = Drafted((), self._catch_up(draft_row, request))
            batches.setdefault(draft_row.name, []).append(request)
        for name, of_model in batches.items():
            going = of_model
            while going:
                self._steer(going, drafted)
                step = self._batches[name].step([request.row.number for request in going])
                settings = {request.row.number: request.settings for request in going}
                for done in step.rows:
                    before, ends = drafted[done.row], self._ends(settings[done.row])
                    tokens = up_to_end([*before.tokens, *done.accepted], ends)
                    drafted[done.row] = Drafted(tuple(tokens), before.num_forwards + 1)
                going = [request for request in going if self._wants_more(request, drafted)]
        return drafted

    def _wants_more(self, request: DraftRequest, drafted: dict[int, Drafted]) -> bool:
        tokens = drafted[request.row.number].tokens
        return len(tokens) < request.at_most and tokens[-1] not in self._ends(request.settings)

    def _ends(self, settings: DecodeSettings) -> frozenset[int]:
        return eos_in_force(settings, self._eos_ids)

    def _steer(self, requests: Sequence[DraftRequest], drafted: dict[int, Drafted]) -> None:
        """Set the draft rows' settings: at most the missing number of tokens, and no end of their
        own."""
        for request in requests:
            draft, settings = self._find(request.settings.draft), request.settings
            wanted = request.at_most - len(drafted[request.row.number].tokens)
            has_masks = draft.block_size > 1 and draft.vocabulary.mask_id is not None
            is_masked = has_masks and settings.masked in ("both", "draft")
            request.row.draft_row.now = replace(
                settings,
                method="mars" if is_masked else "ar",
                block_size=min(wanted, draft.block_size),
                lossless=False,
                tau_policy="fixed",
                stop_loops=False,
                ignore_eos=True,
                max_new_tokens=MAX_NEW_TOKENS,
            )

    def _catch_up(self, draft_row: _DraftRow, request: DraftRequest) -> int:
        """Make the draft's text equal the target's, drafts included; return the forwards needed."""
        row, batch, num_forwards = request.row, draft_row.batch, 0
        while batch.read(row.number):
            num_forwards += 1
        tokens = [*row.text[draft_row.num_known :], *request.emitted, *request.drafts]
        batch.rewind(row.number, draft_row.num_known, tokens)
        draft_row.num_known = len(row.text) + len(request.emitted)
        while batch.read(row.number):
            num_forwards += 1
        return num_forwards

    def _joined(self, row: Row, settings: DecodeSettings) -> _DraftRow:
        """Return the draft row for the draft model that the settings name; create it if needed."""
        if isinstance(row.draft_row, _DraftRow) and row.draft_row.name == settings.draft:
            return row.draft_row
        self.leave(row)
        limit = max(1, row.limit - row.num_emitted)
        draft_settings = DecodeSettings("ar", max_new_tokens=limit)
        try:
            batch = self._batch(settings.draft)
            draft_row = _DraftRow(settings.draft, batch, draft_settings, len(row.text))
            batch.join(row.number, row.text, lambda: draft_row.now)
        except DecodeError as error:  # the error concerns this row only
            raise DecodeError(str(error), (row.number,)) from None
        row.draft_row = draft_row
        return draft_row

    def _batch(self, name: str) -> RewindableBatch:
        if name not in self._batches:
            draft = self._find(name)
            room = self._capacity + MAX_DRAFTS
            self._batches[name] = self._new_batch(
                draft.model, draft.vocabulary, self._num_rows, room
            )
        return self._batches[name]
