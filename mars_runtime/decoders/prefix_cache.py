"""Prefix cache: keys and values of earlier texts, reused by prompts that begin with the same
tokens.

The key of a block is its tokens (not a hash) and the number of the block before it, so it
identifies the whole text up to its end. From the number of reused tokens a visitor can detect that
somebody's text began in the same way, but only by guessing whole blocks of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

Chunk = tuple[int, ...]


class PrefixCache(Protocol):
    @property
    def length(self) -> int: ...

    def find(self, ids: Sequence[int]) -> list[object]:
        """Return the cached blocks of the longest cached prefix of ``ids``."""

    def store(self, ids: Sequence[int], copy: Callable[[int], object]) -> None:
        """Store the complete blocks of a text; ``copy(i)`` returns its block number i."""


class _Block(NamedTuple):
    number: int
    content: object


class BlockPrefixCache(PrefixCache):
    """Blocks of ``length`` tokens and ``block_bytes`` bytes, at most ``num_bytes`` in total."""

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
        return len(self._blocks) * self._block_bytes

    @property
    def most_bytes(self) -> int:
        return self._most_bytes

    def find(self, ids: Sequence[int]) -> list[object]:
        return [self._blocks[key].content for key in self._path(self._cut(ids))]

    def store(self, ids: Sequence[int], copy: Callable[[int], object]) -> None:
        """If ``copy`` raises, no block of this text is added."""
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
        """Return the keys of a text's cached blocks and mark them as used, the first one last, so
        that the last blocks of a text are evicted first.
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
    """The cached prefix of one prompt, of which nothing is granted at first."""

    def __init__(self, cache: PrefixCache, prompt: Sequence[int]) -> None:
        self._cache = cache
        self._found = cache.find(prompt[:-1])
        self._granted = 0

    @property
    def length(self) -> int:
        return self._cache.length

    @property
    def num_found(self) -> int:
        return len(self._found) * self.length

    def grant(self, num_tokens: int) -> None:
        self._granted = num_tokens // self.length

    def find(self, ids: Sequence[int]) -> list[object]:
        return self._found[: self._granted]

    def store(self, ids: Sequence[int], copy: Callable[[int], object]) -> None:
        self._cache.store(ids, copy)


def grant_alike(hits: Sequence[PrefixHit]) -> None:
    """Grant every lane the smallest number of tokens cached for any lane."""
    least = min((hit.num_found for hit in hits), default=0)
    for hit in hits:
        hit.grant(least)
