"""Rows of a KV cache: the place of each row, and its tokens that are still to be fed.

The rows of the next forward occupy the first places. An invariant holds for every row: its cached,
unread and pending tokens without the drafts are its prompt and the tokens it has emitted.

With a prefix cache, blocks are copied in before the rest of a prompt is prefilled, and copied out
of a finished text as far as it is final. Keys and values of a real token depend only on the tokens
up to it: sampling decides which tokens are emitted, and an adapter acts on masks only. A prompt
that contains the mask token is cached up to that token. A block may come from a forward of another
shape (a whole prompt, or a few tokens of an answer). That changes no bit if the model is bitwise.
On a GPU it may change the last bits, as any other shape of a forward does there. A model on a CPU
that is not bitwise gets no prefix cache.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mars_runtime.decoders.drafting import BlockSizes, Drafter, Outlook
from mars_runtime.decoders.lookup import Lookup
from mars_runtime.prefix_cache import PrefixCache
from mars_runtime.settings import MAX_FED, DecodeSettings

_log = logging.getLogger(__name__)


class RowCache(Protocol):
    """Interface of a KV cache, which ``cache.BlockKVCache`` implements.

    ``block`` and ``put`` copy keys and values of a row's prefix out and in; only a prefix cache
    needs them.
    """

    rows: int
    cursors: list[int]

    def clear(self, row: int, num_slots: int) -> None: ...
    def move(self, source: int, target: int, num_slots: int) -> None: ...
    def swap(self, first: int, second: int) -> None: ...
    def block(self, row: int, index: int) -> object: ...
    def put(self, row: int, index: int, block: object) -> None: ...


@dataclass(slots=True)
class Row:
    """A row that is being decoded. Its cursor is stored in the cache, by place.

    limit: maximum number of emitted tokens, for which the cache has room.
    unread: prompt tokens to feed before the row can decode.
    pending: tokens behind the cursor: emitted ones, then ``num_drafts`` drafts to be verified.
    num_prompt: number of leading tokens of ``text`` that are the prompt.
    text: the prompt and all emitted tokens; ``lookup`` indexes as much of it as was needed so far.
    num_reused: prompt tokens copied from the prefix cache instead of fed.
    prefix: blocks that the prefix cache has for the prompt, until they are copied.
    raised: how far τ has risen by agreement with AR.
    outlook, drafter: acceptance statistics of the row, if B is chosen automatically.
    sizes: chooses B for an unverified row with the objective ``passes``.
    draft_row: the corresponding row of a draft model (``draft_model.py``).
    is_sound: whether the latest forward of the row succeeded. Its predictions were finite, so the
        keys and values of all tokens before them are finite as well.
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
    outlook: Outlook | None = None
    sizes: BlockSizes | None = None
    drafter: Drafter | None = None
    draft_row: Any = None

    @property
    def written(self) -> list[int]:
        """All emitted tokens."""
        return self.text[len(self.text) - self.num_emitted :]

    def emit(self, emitted: list[int], num_agreed: int, drafts: list[int]) -> None:
        """Append emitted tokens, of which the first ``num_agreed`` were pending as drafts."""
        self.pending = emitted[num_agreed:] + drafts
        self.num_drafts = len(drafts)
        self.num_emitted += len(emitted)
        self.text += emitted

    def look_up(self, emitted: list[int], at_most: int) -> tuple[list[int], int]:
        """Return the prompt lookup behind the text with ``emitted`` appended.

        Returns up to ``at_most`` tokens and the length of the match.
        """
        self.lookup.extend(self.text[len(self.lookup) :])
        self.lookup.extend(emitted)
        return self.lookup.following(at_most)


class Rows:
    """The rows on one KV cache, in the order of their places."""

    def __init__(
        self, cache: RowCache, prefix_cache: PrefixCache | None = None, mask_id: int | None = None
    ) -> None:
        """``mask_id``: the token at which the part of a text that can be cached ends."""
        self._cache = cache
        self._prefix_cache = prefix_cache
        self._mask_id = mask_id
        self._rows: list[Row] = []
        self._left = [0] * cache.rows  # per free place: slots that its last row may have written

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of the rows, in the order of their places."""
        return tuple(row.number for row in self._rows)

    @property
    def ready(self) -> tuple[int, ...]:
        """Numbers of the rows whose prompts are prefilled."""
        return tuple(row.number for row in self._rows if not row.unread)

    @property
    def is_full(self) -> bool:
        """Whether every place is taken."""
        return len(self._rows) == self._cache.rows

    def find(self, number: int) -> tuple[int, Row]:
        """Return the place and the row. Raises KeyError."""
        for place, row in enumerate(self._rows):
            if row.number == number:
                return place, row
        raise KeyError(number)

    def join(
        self, number: int, prompt: Sequence[int], settings: Callable[[], DecodeSettings], limit: int
    ) -> None:
        """Take the next free place and clear it.

        The last prompt token is pending and the rest unread, so every emitted token results from a
        step.
        """
        assert not self.is_full, "there is a free place"
        assert number not in self.numbers, "a number is used once at a time"
        place = len(self._rows)
        self._cache.clear(place, self._left[place])
        self._left[place] = 0
        row = Row(
            number, settings, limit, list(prompt[:-1]), [prompt[-1]], list(prompt), len(prompt)
        )
        if self._prefix_cache is not None:
            row.prefix = self._prefix_cache.find(row.unread)
        self._rows.append(row)

    def reuse(self, place: int) -> None:
        """Copy the prompt's blocks from the prefix cache, once, and move the cursor behind them."""
        row = self._rows[place]
        blocks, row.prefix = row.prefix, []
        if self._prefix_cache is None or not blocks:
            return
        for index, block in enumerate(blocks):
            self._cache.put(place, index, block)
        row.num_reused = len(blocks) * self._prefix_cache.length
        self._cache.cursors[place] += row.num_reused
        del row.unread[: row.num_reused]

    def drop(self, number: int) -> Row:
        """Free the row's place at once; the last row moves into it. Raises KeyError."""
        place, row = self.find(number)
        self._keep(place, row)
        last = len(self._rows) - 1
        used, self._left[last] = self._used(place), self._used(last)
        if place != last:
            self._cache.move(last, place, used)
            self._rows[place] = self._rows[last]
        self._rows.pop()
        self._cache.cursors[last] = 0
        return row

    def _keep(self, place: int, row: Row) -> None:
        """Copy the final part of a leaving row into the prefix cache.

        Does nothing if the row's latest forward failed or it had none. A failure is only logged, so
        that the row is always freed.
        """
        if self._prefix_cache is None or not row.is_sound:
            return
        final = row.text[: self._cache.cursors[place]]
        if self._mask_id in final:
            del final[final.index(self._mask_id) :]
        try:
            self._prefix_cache.keep(final, lambda index: self._cache.block(place, index))
        except (MemoryError, RuntimeError) as error:
            _log.warning("What a run computed could not be kept (%s)", type(error).__name__)

    def _used(self, place: int) -> int:
        """Return how many slots of a place may have been written, also by a failed forward."""
        return self._cache.cursors[place] + len(self._rows[place].unread) + MAX_FED

    def gather(self, numbers: Sequence[int]) -> list[Row]:
        """Move these rows to the first places, with as few swaps as possible.

        Returns them in the order of their places. Raises KeyError.
        """
        wanted = set(numbers)
        if unknown := wanted.difference(self.numbers):
            raise KeyError(min(unknown))
        count = len(wanted)
        out = [place for place in range(count) if self._rows[place].number not in wanted]
        if out:
            behind = range(count, len(self._rows))
            into = [place for place in behind if self._rows[place].number in wanted]
            for source, target in zip(out, into, strict=True):
                self._cache.swap(source, target)
                self._rows[source], self._rows[target] = self._rows[target], self._rows[source]
        return self._rows[:count]
