"""The prefix cache: keys and values of texts, kept for prompts that begin the same. Bookkeeping of
blocks by their tokens.

A text is cut into blocks of a fixed number of tokens; what is left over is not kept. A block is
found by the tokens of its own and by the block before it, and so by the whole text up to its end:
tokens are compared, not hashes of them. Over the bound in bytes the least recently used goes.

Blocks are copies, made when a text is over and copied again into whatever begins with them. So
nothing here is shared with a row that is being decoded, nothing has to be counted, and a block that
makes room while somebody is about to copy it lives on until that is done.

Of visitors: a block is handed out only for a text that holds all of its tokens already, and it is
what that text would have computed by itself. Nobody reads a word of another here. That somebody
began a text in the same way can be told, from how soon the first token comes and from the number of
tokens that were reused; to learn a text so, one has to guess whole blocks of it.

Knows no tensors, model or rows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

Chunk = tuple[int, ...]


class PrefixCache(Protocol):
    """Where a batch looks for the beginning of a prompt, and leaves a text that is over."""

    @property
    def length(self) -> int:
        """Tokens of a block."""

    def find(self, ids: Sequence[int]) -> list[object]:
        """The blocks that are kept of the longest beginning of ``ids``."""

    def keep(self, ids: Sequence[int], copy: Callable[[int], object]) -> None:
        """Keep a text; ``copy(i)`` makes its block number i."""


class _Block(NamedTuple):
    number: int
    content: object


class BlockPrefixCache(PrefixCache):
    """Blocks of ``length`` tokens and ``block_bytes`` each, in ``num_bytes`` at most."""

    def __init__(self, length: int, block_bytes: int, num_bytes: int) -> None:
        self._length = length
        self._block_bytes = block_bytes
        self._most_bytes = num_bytes
        self._most = num_bytes // block_bytes
        # Least recently used first. The key of a block: number of the one before it, its tokens.
        # A block is always more recent than those behind it, so the first has none behind it.
        self._blocks: OrderedDict[tuple[int, Chunk], _Block] = OrderedDict()
        self._num_made = 0

    @property
    def length(self) -> int:
        """Tokens of a block."""
        return self._length

    @property
    def num_bytes(self) -> int:
        """Taken by what is kept."""
        return len(self._blocks) * self._block_bytes

    @property
    def most_bytes(self) -> int:
        """The bound."""
        return self._most_bytes

    def find(self, ids: Sequence[int]) -> list[object]:
        """The blocks that are kept of the longest beginning of ``ids``; they count as used."""
        return [self._blocks[key].content for key in self._path(self._cut(ids))]

    def keep(self, ids: Sequence[int], copy: Callable[[int], object]) -> None:
        """Keep the whole blocks of a text. ``copy(i)`` is called for those that are not there yet;
        where it raises, nothing of this text is added."""
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
        """Forget everything."""
        self._blocks.clear()

    def _cut(self, ids: Sequence[int]) -> list[Chunk]:
        size = self._length
        return [tuple(ids[at : at + size]) for at in range(0, len(ids) - size + 1, size)]

    def _path(self, chunks: Sequence[Chunk]) -> list[tuple[int, Chunk]]:
        """The keys of what is kept of a text, which count as used, the first as the latest."""
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
    """What a prefix cache had for one prompt when it was asked, of which no more is used than is
    granted: the lanes of a race are granted the same, at first nothing."""

    def __init__(self, cache: PrefixCache, prompt: Sequence[int]) -> None:
        self._cache = cache
        self._found = cache.find(prompt[:-1])
        self._granted = 0

    @property
    def length(self) -> int:
        """Tokens of a block."""
        return self._cache.length

    @property
    def num_found(self) -> int:
        """Tokens that need not be computed."""
        return len(self._found) * self.length

    def grant(self, num_tokens: int) -> None:
        """Let so many of them be used."""
        self._granted = num_tokens // self.length

    def find(self, ids: Sequence[int]) -> list[object]:
        """What was granted; ``ids`` are those it was asked for."""
        return self._found[: self._granted]

    def keep(self, ids: Sequence[int], copy: Callable[[int], object]) -> None:
        """Keep a text in the cache."""
        self._cache.keep(ids, copy)


def grant_alike(hits: Sequence[PrefixHit]) -> None:
    """Let each use as many tokens as all of them have, so that none is spared more than another."""
    least = min((hit.num_found for hit in hits), default=0)
    for hit in hits:
        hit.grant(least)
