"""Prefix cache: keys and values of earlier texts, reused by prompts that begin with the same
tokens.

A text is cut into blocks of a fixed number of tokens; an incomplete last block is not cached. A
block is found by its own tokens and the block before it, and so by the whole text up to its end.
Tokens are compared, not hashes of them. Above the limit in bytes, the least recently used block is
evicted.

Blocks are copies: they are copied in when a text is finished and out to a row with a prompt that
begins with them. So nothing is shared with a row that is being decoded, no reference counts are
needed, and an evicted block that is about to be copied stays alive until then.

Privacy: a block is returned only for a text that contains all of its tokens, and it holds what that
text would have computed itself, so visitors cannot read each other's texts. A visitor can detect
that somebody began a text in the same way, from the time to the first token or the number of reused
tokens, but only by guessing whole blocks of that text.

The module uses no tensors, model or rows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

Chunk = tuple[int, ...]


class PrefixCache(Protocol):
    """Interface of a prefix cache for batches."""

    @property
    def length(self) -> int:
        """Number of tokens of a block."""

    def find(self, ids: Sequence[int]) -> list[object]:
        """Return the cached blocks of the longest cached prefix of ``ids``."""

    def keep(self, ids: Sequence[int], copy: Callable[[int], object]) -> None:
        """Store a text; ``copy(i)`` makes its block number i."""


class _Block(NamedTuple):
    number: int
    content: object


class BlockPrefixCache(PrefixCache):
    """Prefix cache with blocks of ``length`` tokens and ``block_bytes``, up to ``num_bytes`` in
    total."""

    def __init__(self, length: int, block_bytes: int, num_bytes: int) -> None:
        self._length = length
        self._block_bytes = block_bytes
        self._most_bytes = num_bytes
        self._most = num_bytes // block_bytes
        # Least recently used first. Key of a block: the number of the block before it, and its
        # tokens. A
        # block is always more recent than those behind it, so evicting the first one orphans no
        # other.
        self._blocks: OrderedDict[tuple[int, Chunk], _Block] = OrderedDict()
        self._num_made = 0

    @property
    def length(self) -> int:
        """Number of tokens of a block."""
        return self._length

    @property
    def num_bytes(self) -> int:
        """Bytes of the stored blocks."""
        return len(self._blocks) * self._block_bytes

    @property
    def most_bytes(self) -> int:
        """Maximum number of bytes."""
        return self._most_bytes

    def find(self, ids: Sequence[int]) -> list[object]:
        """Return the cached blocks of the longest cached prefix of ``ids`` and mark them as
        used."""
        return [self._blocks[key].content for key in self._path(self._cut(ids))]

    def keep(self, ids: Sequence[int], copy: Callable[[int], object]) -> None:
        """Store the whole blocks of a text.

        ``copy(i)`` is called for blocks not stored yet; if it raises, no block of this text is
        added.
        """
        chunks = self._cut(ids)[: self._most]
        path = self._path(chunks)
        first, last = len(path), len(chunks)
        while len(self._blocks) + last - first > self._most:
            self._blocks.popitem(last=False)
        contents = [copy(index) for index in range(first, last)]
        before = self._blocks[path[-1]].number if path else 0
        for chunk, content in zip(chunks[first:], contents, strict=True):
            self._num_made += 1
            self._blocks[before, chunk] = _Block(self._num_made, content)
            before = self._num_made
        self._path(chunks)

    def clear(self) -> None:
        """Remove all blocks."""
        self._blocks.clear()

    def _cut(self, ids: Sequence[int]) -> list[Chunk]:
        size = self._length
        return [tuple(ids[at : at + size]) for at in range(0, len(ids) - size + 1, size)]

    def _path(self, chunks: Sequence[Chunk]) -> list[tuple[int, Chunk]]:
        """Return the keys of a text's cached blocks and mark them as used, the first as most
        recent."""
        path: list[tuple[int, Chunk]] = []
        before = 0
        for chunk in chunks:
            block = self._blocks.get((before, chunk))
            if block is None:
                break
            path.append((before, chunk))
            before = block.number
        for key in reversed(path):
            self._blocks.move_to_end(key)
        return path


class PrefixHit(PrefixCache):
    """The cached prefix of one prompt, of which a batch may use the granted part.

    The lanes of a race are granted the same number of tokens; initially it is 0.
    """

    def __init__(self, cache: PrefixCache, prompt: Sequence[int]) -> None:
        self._cache = cache
        self._found = cache.find(prompt[:-1])
        self._granted = 0

    @property
    def length(self) -> int:
        """Number of tokens of a block."""
        return self._cache.length

    @property
    def num_found(self) -> int:
        """Number of cached tokens of the prompt."""
        return len(self._found) * self.length

    def grant(self, num_tokens: int) -> None:
        """Allow the first ``num_tokens`` cached tokens to be used."""
        self._granted = num_tokens // self.length

    def find(self, ids: Sequence[int]) -> list[object]:
        """Return the granted blocks; ``ids`` must be the prompt's."""
        return self._found[: self._granted]

    def keep(self, ids: Sequence[int], copy: Callable[[int], object]) -> None:
        """Store a text in the cache."""
        self._cache.keep(ids, copy)


def grant_alike(hits: Sequence[PrefixHit]) -> None:
    """Grant each hit as many tokens as all of them have, so that no lane has an advantage."""
    least = min((hit.num_found for hit in hits), default=0)
    for hit in hits:
        hit.grant(least)
