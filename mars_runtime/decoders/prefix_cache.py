"""Prefix cache: keys and values of earlier texts, reused by prompts that begin with the same
tokens.

A text is cut into blocks of a fixed number of tokens; an incomplete last block is not cached. The
key of a block consists of its tokens and the number of the block before it, so it identifies the
whole text up to the end of the block. Keys contain the tokens themselves, not hashes. When the
cache exceeds its limit in bytes, the least recently used block is evicted.

Blocks are copied: into the cache when a text is finished, and out of it to a row with a prompt that
begins with them. So the cache shares no memory with rows that are being decoded, needs no reference
counts, and may evict a block that a caller is about to copy.

Privacy: a block is returned only for a text that begins with all tokens of its key, and its values
depend only on these tokens, so visitors cannot read each other's texts. From the time to the first
token or the number of reused tokens, a visitor can detect that somebody's text began in the same
way, but only by guessing whole blocks of that text.
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
        """Number of tokens per block."""

    def find(self, ids: Sequence[int]) -> list[object]:
        """Return the cached blocks of the longest cached prefix of ``ids``."""

    def store(self, ids: Sequence[int], copy: Callable[[int], object]) -> None:
        """Store a text; ``copy(i)`` returns its block number i."""


class _Block(NamedTuple):
    number: int
    content: object


class BlockPrefixCache(PrefixCache):
    """Prefix cache with blocks of ``length`` tokens and ``block_bytes`` bytes, ``num_bytes`` in
    total.
    """

    def __init__(self, length: int, block_bytes: int, num_bytes: int) -> None:
        self._length = length
        self._block_bytes = block_bytes
        self._most_bytes = num_bytes
        self._most = num_bytes // block_bytes
        # (number of the previous block, tokens) -> block. The least recently used comes first.
        self._blocks: OrderedDict[tuple[int, Chunk], _Block] = OrderedDict()
        self._num_stored = 0

    @property
    def length(self) -> int:
        return self._length

    @property
    def num_bytes(self) -> int:
        """Size of the stored blocks in bytes."""
        return len(self._blocks) * self._block_bytes

    @property
    def most_bytes(self) -> int:
        return self._most_bytes

    def find(self, ids: Sequence[int]) -> list[object]:
        """Return the cached blocks of the longest cached prefix of ``ids`` and mark them as
        used."""
        return [self._blocks[key].content for key in self._path(self._cut(ids))]

    def store(self, ids: Sequence[int], copy: Callable[[int], object]) -> None:
        """Store the complete blocks of a text; evict the least recently used ones to make space.

        ``copy(i)`` is called for each block that is not stored yet. If it raises, no block of this
        text is added.
        """
        chunks = self._cut(ids)[: self._most]
        path = self._path(chunks)
        first, last = len(path), len(chunks)
        while len(self._blocks) + last - first > self._most:
            self._blocks.popitem(last=False)
        contents = [copy(index) for index in range(first, last)]
        before = self._blocks[path[-1]].number if path else 0
        for chunk, content in zip(chunks[first:], contents, strict=True):
            self._num_stored += 1
            self._blocks[before, chunk] = _Block(self._num_stored, content)
            before = self._num_stored
        self._path(chunks)

    def clear(self) -> None:
        self._blocks.clear()

    def _cut(self, ids: Sequence[int]) -> list[Chunk]:
        size = self._length
        return [tuple(ids[at : at + size]) for at in range(0, len(ids) - size + 1, size)]

    def _path(self, chunks: Sequence[Chunk]) -> list[tuple[int, Chunk]]:
        """Return the keys of a text's cached blocks and mark the blocks as used.

        The first block of the text becomes the most recently used block. So the last blocks of a
        text are evicted first.
        """
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
    """The cached prefix of one prompt. A batch may reuse the part that was granted.

    Nothing is granted at first. All lanes of a race are granted the same number of tokens.
    """

    def __init__(self, cache: PrefixCache, prompt: Sequence[int]) -> None:
        self._cache = cache
        self._found = cache.find(prompt[:-1])
        self._granted = 0

    @property
    def length(self) -> int:
        return self._cache.length

    @property
    def num_found(self) -> int:
        """Number of prompt tokens in the cache."""
        return len(self._found) * self.length

    def grant(self, num_tokens: int) -> None:
        """Allow the first ``num_tokens`` cached tokens to be reused."""
        self._granted = num_tokens // self.length

    def find(self, ids: Sequence[int]) -> list[object]:
        """Return the granted blocks; ``ids`` must be the tokens of the prompt."""
        return self._found[: self._granted]

    def store(self, ids: Sequence[int], copy: Callable[[int], object]) -> None:
        self._cache.store(ids, copy)


def grant_alike(hits: Sequence[PrefixHit]) -> None:
    """Grant every lane the same number of tokens: the smallest number cached for any lane."""
    least = min((hit.num_found for hit in hits), default=0)
    for hit in hits:
        hit.grant(least)
