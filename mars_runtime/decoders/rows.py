"""Rows of a KV cache: their order in the cache and the tokens that are still to be fed.

The rows of the next forward pass come first. With a prefix cache, cached blocks are copied into a
row before prefill, and its final blocks are copied back when it leaves. A block may come from a
pass of another shape, which changes no bit of a bitwise model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mars_runtime.decoders.drafting import Drafter
from mars_runtime.decoders.lookup import Lookup
from mars_runtime.decoders.prefix_cache import PrefixCache
from mars_runtime.settings import MAX_FED, DecodeSettings

_log = logging.getLogger(__name__)


class RowCache(Protocol):
    """``block`` and ``put`` copy a block of keys and values out of and into a row."""

    rows: int
    cursors: list[int]

    def clear(self, row: int, num_slots: int) -> None: ...
    def move(self, source: int, target: int, num_slots: int) -> None: ...
    def swap(self, first: int, second: int) -> None: ...
    def block(self, row: int, index: int) -> object: ...
    def put(self, row: int, index: int, block: object) -> None: ...


@dataclass(slots=True)
class Row:
    """A row that is being decoded. Its cursor is stored in the KV cache.

    limit: maximum number of emitted tokens, for which cache memory is reserved.
    unread: prompt tokens that are still to be prefilled.
    pending: tokens after the cursor: emitted tokens, then ``num_drafts`` drafts to verify.
    text: the prompt (``num_prompt`` tokens) and all emitted tokens.
    raised: how far the agreement rule has raised τ, from 0 to 1.
    drafter: what the row has learned, if B is chosen automatically.
    is_sound: whether the latest forward pass succeeded, so that all keys and values are finite.
    """

    number: int
    settings: Callable[[], DecodeSettings]
    limit: int
    unread: list[int]
    pending: list[int]
    text: list[int]
    num_prompt: int
    num_drafts: int = 0
    num_emitted: int = 0
    num_reused: int = 0
    raised: float = 0.0
    is_sound: bool = False
    prefix: list[object] = field(default_factory=list)
    lookup: Lookup = field(default_factory=Lookup)
    drafter: Drafter | None = None
    draft_row: Any = None

    @property
    def written(self) -> list[int]:
        return self.text[len(self.text) - self.num_emitted :]

    def emit(self, emitted: list[int], num_agreed: int, drafts: list[int]) -> None:
        """The first ``num_agreed`` tokens were fed as drafts."""
        self.pending = emitted[num_agreed:] + drafts
        self.num_drafts = len(drafts)
        self.num_emitted += len(emitted)
        self.text += emitted

    def look_up(self, emitted: list[int], at_most: int) -> tuple[list[int], int]:
        """Return up to ``at_most`` tokens of prompt lookup, and the length of the match."""
        self.lookup.extend(self.text[len(self.lookup) :])
        self.lookup.extend(emitted)
        return self.lookup.following(at_most)


class Rows:
    """The rows of one KV cache, by index. The index changes when rows move, ``Row.number`` does
    not.
    """

    def __init__(
        self, cache: RowCache, prefix_cache: PrefixCache | None = None, mask_id: int | None = None
    ) -> None:
        """``mask_id``: a text is stored in the prefix cache only up to this token."""
        self._cache = cache
        self._prefix_cache = prefix_cache
        self._mask_id = mask_id
        self._rows: list[Row] = []
        # For each free index: number of cache slots that its previous row may have written.
        self._num_dirty = [0] * cache.rows

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(row.number for row in self._rows)

    @property
    def ready(self) -> tuple[int, ...]:
        return tuple(row.number for row in self._rows if not row.unread)

    @property
    def is_full(self) -> bool:
        return len(self._rows) == self._cache.rows

    def find(self, number: int) -> tuple[int, Row]:
        """Return the index and the row. Raises KeyError."""
        for index, row in enumerate(self._rows):
            if row.number == number:
                return index, row
        raise KeyError(number)

    def join(
        self, number: int, prompt: Sequence[int], settings: Callable[[], DecodeSettings], limit: int
    ) -> None:
        """The last prompt token is pending, so every emitted token is the result of a step."""
        assert not self.is_full, "the cache has no free row"
        assert number not in self.numbers, "another row has this number"
        index = len(self._rows)
        self._cache.clear(index, self._num_dirty[index])
        self._num_dirty[index] = 0
        row = Row(
            number, settings, limit, list(prompt[:-1]), [prompt[-1]], list(prompt), len(prompt)
        )
        if self._prefix_cache is not None:
            row.prefix = self._prefix_cache.find(row.unread)
        self._rows.append(row)

    def copy_prefix(self, index: int) -> None:
        """Copy the blocks found in the prefix cache and advance the cursor."""
        row = self._rows[index]
        blocks, row.prefix = row.prefix, []
        if self._prefix_cache is None or not blocks:
            return
        for number, block in enumerate(blocks):
            self._cache.put(index, number, block)
        row.num_reused = len(blocks) * self._prefix_cache.length
        self._cache.cursors[index] += row.num_reused
        del row.unread[: row.num_reused]

    def drop(self, number: int) -> Row:
        """Remove a row and move the last row to its index. Raises KeyError."""
        index, row = self.find(number)
        self._store(index, row)
        last = len(self._rows) - 1
        num_dirty, self._num_dirty[last] = self._num_written(index), self._num_written(last)
        if index != last:
            self._cache.move(last, index, num_dirty)
            self._rows[index] = self._rows[last]
        self._rows.pop()
        self._cache.cursors[last] = 0
        return row

    def _store(self, index: int, row: Row) -> None:
        """Errors are only logged, because the row must be removed in any case."""
        if self._prefix_cache is None or not row.is_sound:
            return
        final = row.text[: self._cache.cursors[index]]
        if self._mask_id in final:
            del final[final.index(self._mask_id) :]
        try:
            self._prefix_cache.store(final, lambda number: self._cache.block(index, number))
        except (MemoryError, RuntimeError) as error:
            _log.warning("A run was not added to the prefix cache (%s)", type(error).__name__)

    def _num_written(self, index: int) -> int:
        """Include what a failed forward pass may have written."""
        return self._cache.cursors[index] + len(self._rows[index].unread) + MAX_FED

    def gather(self, numbers: Sequence[int]) -> list[Row]:
        """Move these rows to the front of the cache with as few swaps as possible and return them
        in its order. Raises KeyError.
        """
        wanted = set(numbers)
        if unknown := wanted.difference(self.numbers):
            raise KeyError(min(unknown))
        count = len(wanted)
        unwanted = [index for index in range(count) if self._rows[index].number not in wanted]
        if unwanted:
            later = range(count, len(self._rows))
            wanted_later = [index for index in later if self._rows[index].number in wanted]
            for source, target in zip(unwanted, wanted_later, strict=True):
                self._cache.swap(source, target)
                self._rows[source], self._rows[target] = self._rows[target], self._rows[source]
        return self._rows[:count]
