"""Between the rows of a batch and the store of what is kept: copies blocks in and out of places.

In goes what a prompt begins with, before the rest of it is read; out goes a text that is over, as
far as it is final. Keys and values of a real token depend on nothing but the tokens up to it: what
is steered decides which tokens are taken, and an adapter acts on masks alone. A prompt that holds
the mask's own token is kept up to there.

That a block may have been computed in other company than it is used in (a prompt at once, an answer
a few tokens at a time) changes no bit where the model is bitwise, and a batch of any other model is
given no store: there the last bits, and with them near ties, would depend on who asked before. Nor
are static steps, for on CUDA no model is bitwise.

Knows no acceptance and no forward.
"""

from __future__ import annotations

import logging
from typing import Any

from mars_runtime.decoders.rows import Row
from mars_runtime.prefixes import Keeper

_log = logging.getLogger(__name__)


class Keeping:
    """What one batch takes from a store and leaves there; nothing where there is none."""

    def __init__(self, keeper: Keeper | None, cache: Any, mask_id: int | None) -> None:
        self._keeper = keeper
        self._cache = cache
        self._mask_id = mask_id
        self._found: dict[int, list[object]] = {}  # by number of the row, until it is read

    def find(self, row: Row) -> None:
        """Look for the beginning of a prompt that is to be read."""
        if self._keeper is not None:
            self._found[row.number] = self._keeper.find(row.unread)

    def reuse(self, place: int, row: Row) -> None:
        """Copy what was found, once; the row goes on behind it."""
        blocks = self._found.pop(row.number, [])
        if self._keeper is None or not blocks:
            return
        for index, block in enumerate(blocks):
            self._cache.put(place, index, block)
        row.num_reused = len(blocks) * self._keeper.length
        self._cache.cursors[place] += row.num_reused
        del row.unread[: row.num_reused]

    def leave(self, place: int, row: Row) -> None:
        """Keep what is final of a row that goes, unless its latest forward failed or it had none.
        A failure here is only logged: it must not keep the row from going."""
        self._found.pop(row.number, None)
        if self._keeper is None or not row.is_sound:
            return
        final = row.text[: self._cache.cursors[place]]
        if self._mask_id in final:
            del final[final.index(self._mask_id) :]
        try:
            self._keeper.keep(final, lambda index: self._cache.block(place, index))
        except (MemoryError, RuntimeError) as error:
            _log.warning("What a run computed could not be kept (%s)", type(error).__name__)
