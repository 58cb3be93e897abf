"""A draft model beside a batch: it drafts some tokens, which the batch's next forward verifies.

Speculative decoding (Leviathan et al. 2023, arXiv 2211.17192) with one addition (MARS): a draft
that was trained for masks drafts several tokens per forward, by the rule of unverified MARS. A
draft model stands on a cursor cache of its own, so catching up with what the target committed is
moving a number: ``CursorBatch.rewind``. At a temperature it draws with the noise that the target
will draw with, so the two agree more often than by chance.

Nothing is known here of the target but the tokens of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from mars_runtime.acceptance import DecodeError, up_to_end
from mars_runtime.decoders.base import Batch, CausalModel, Vocabulary
from mars_runtime.decoders.rows import Row
from mars_runtime.settings import MAX_DRAFTS, MAX_NEW_TOKENS, DecodeSettings


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A draft model, its vocabulary (the target's ids) and the B that it was trained with."""

    model: CausalModel
    vocabulary: Vocabulary
    block_size: int


@dataclass(frozen=True, slots=True)
class DraftModels:
    """find: the draft model of a name, "" for the default one; raises DecodeError. block_size: what
    the target was trained with: it is fed no more masks beside a draft model."""

    find: Callable[[str], DraftModel]
    block_size: int


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """Up to ``at_most`` further drafts for ``row``, behind what it is about to emit and ``drafts``,
    which others proposed."""

    row: Row
    emitted: Sequence[int]
    drafts: Sequence[int]
    at_most: int
    settings: DecodeSettings


@dataclass(frozen=True, slots=True)
class Drafted:
    """What a draft model put behind the drafts of a row, and its forwards for that row."""

    tokens: tuple[int, ...] = ()
    num_forwards: int = 0


class RewindableBatch(Batch, Protocol):
    """A batch whose rows may take other tokens for those that they wrote; see ``CursorBatch``."""

    def rewind(self, number: int, start: int, tokens: Sequence[int]) -> None:
        """From position ``start`` on the text of a row reads ``tokens``."""


@dataclass(slots=True)
class _Beside:
    """The row of a draft model beside a row of the batch.

    num_known: leading tokens of its text that the target has committed. now: settings in force.
    """

    name: str
    batch: RewindableBatch
    now: DecodeSettings
    num_known: int


class DraftRows:
    """Rows of draft models beside a batch of ``num_rows`` rows of ``capacity`` tokens, which
    verifies what they draft with its next forward. They are made when they are first asked for, on
    a batch of ``new_batch`` for each draft model."""

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
        """Feed the next part of the row's prompt; returns how many tokens are left to read.
        Raises DecodeError."""
        return self._joined(row, row.settings()).batch.read(row.number, at_most)

    def leave(self, row: Row) -> None:
        """The row is gone."""
        beside, row.beside = row.beside, None
        if beside is not None:
            beside.batch.drop(row.number)

    def propose(self, requests: Sequence[DraftRequest]) -> dict[int, Drafted]:
        """Draft for rows, all of a draft model in the same forwards; by number of the row. A draft
        ends with the first end of the text. Raises DecodeError with the numbers of the rows it is
        about."""
        found: dict[int, Drafted] = {}
        batches: dict[str, list[DraftRequest]] = {}
        for request in requests:
            beside = self._joined(request.row, request.settings)
            found[request.row.number] = Drafted((), self._catch_up(beside, request))
            batches.setdefault(beside.name, []).append(request)
        for name, own in batches.items():
            going = own
            while going:
                self._steer(going, found)
                step = self._batches[name].step([request.row.number for request in going])
                for done in step.rows:
                    before = found[done.row]
                    tokens = up_to_end([*before.tokens, *done.accepted], self._eos_ids)
                    found[done.row] = Drafted(tuple(tokens), before.num_forwards + 1)
                going = [request for request in going if self._wants_more(request, found)]
        return found

    def _wants_more(self, request: DraftRequest, found: dict[int, Drafted]) -> bool:
        tokens = found[request.row.number].tokens
        return len(tokens) < request.at_most and tokens[-1] not in self._eos_ids

    def _steer(self, requests: Sequence[DraftRequest], found: dict[int, Drafted]) -> None:
        """Each row drafts as its settings say, and no more than is still asked for; none ends by
        itself."""
        for request in requests:
            draft, settings = self._find(request.settings.draft), request.settings
            wanted = request.at_most - len(found[request.row.number].tokens)
            has_masks = draft.block_size > 1 and draft.vocabulary.mask_id is not None
            is_masked = has_masks and settings.masked in ("both", "draft")
            request.row.beside.now = replace(
                settings,
                method="mars" if is_masked else "ar",
                block_size=min(wanted, draft.block_size),
                lossless=False,
                threshold="fixed",
                stop_loops=False,
                ignore_eos=True,
                max_new_tokens=MAX_NEW_TOKENS,
            )

    def _catch_up(self, beside: _Beside, request: DraftRequest) -> int:
        """Let the draft's text be the target's, drafts included; returns forwards that it took."""
        row, batch, num_forwards = request.row, beside.batch, 0
        while batch.read(row.number):
            num_forwards += 1
        tokens = [*row.text[beside.num_known :], *request.emitted, *request.drafts]
        batch.rewind(row.number, beside.num_known, tokens)
        beside.num_known = len(row.text) + len(request.emitted)
        while batch.read(row.number):
            num_forwards += 1
        return num_forwards

    def _joined(self, row: Row, settings: DecodeSettings) -> _Beside:
        """What stands beside the row, by the draft that its settings name."""
        if isinstance(row.beside, _Beside) and row.beside.name == settings.draft:
            return row.beside
        self.leave(row)
        limit = max(1, row.limit - row.num_emitted)
        now = DecodeSettings("ar", max_new_tokens=limit)
        try:
            batch = self._batch(settings.draft)
            beside = _Beside(settings.draft, batch, now, len(row.text))
            batch.join(row.number, row.text, lambda: beside.now)
        except DecodeError as error:  # it is about this row alone
            raise DecodeError(str(error), (row.number,)) from None
        row.beside = beside
        return beside

    def _batch(self, name: str) -> RewindableBatch:
        if name not in self._batches:
            draft = self._find(name)
            room = self._capacity + MAX_DRAFTS
            self._batches[name] = self._new_batch(
                draft.model, draft.vocabulary, self._num_rows, room
            )
        return self._batches[name]
