"""The cache's rows and cursors, and the blocks of texts that it keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from mars_runtime.cache import BlockKVCache
from mars_runtime.decoders.prefix_cache import BlockPrefixCache, PrefixHit, grant_alike
from mars_runtime.settings import MAX_FED

SHAPE = (2, 3, 8, 2, 4)


def test_memory_is_known_before_it_is_allocated() -> None:
    dtype = torch.bfloat16
    assert BlockKVCache.bytes_needed(SHAPE, dtype) == BlockKVCache(SHAPE, dtype=dtype).num_bytes


def test_rows_are_cleared_moved_and_swapped_with_all_that_they_wrote() -> None:
    cache = BlockKVCache(SHAPE)
    cache.store[:, 1] = float("nan")
    cache.cursors = [0, 6, 0]
    cache.clear(1, 6)
    assert cache.store[:, 1, 6:].isnan().all()
    cache.clear(1)
    assert not cache.store.any()
    assert cache.cursors == [0, 0, 0]
    cache.store[:, 0] = float("nan")
    cache.store[:, 2, :3] = 4.0
    cache.cursors = [8, 1, 3]
    cache.move(2, 0)
    assert cache.cursors[0] == 3
    assert (cache.store[:, 0, :3] == 4.0).all()
    assert not cache.store[:, 0, 3:].any()
    length = MAX_FED + 40  # a step may have written so much behind a cursor, and no more
    cache = BlockKVCache((2, 3, length, 2, 4))
    cache.store[:, 0], cache.store[:, 2, :9] = 3.0, 5.0
    cache.cursors = [length, 1, 2]
    cache.swap(0, 2)
    assert cache.cursors == [2, 1, length]
    assert (cache.store[:, 2] == 3.0).all()
    assert (cache.store[:, 0, :9] == 5.0).all()
    assert not cache.store[:, 0, 9:].any()
    assert not cache.store[:, 1].any()


LENGTH, BLOCK_BYTES = 2, 10


def store_of(num_blocks: int = 100) -> BlockPrefixCache:
    return BlockPrefixCache(LENGTH, BLOCK_BYTES, num_blocks * BLOCK_BYTES + 9)


def words(ids: Sequence[int]) -> Callable[[int], object]:
    return lambda index: tuple(ids[: LENGTH * (index + 1)])


def keep(store: BlockPrefixCache, *ids: int) -> None:
    store.store(ids, words(ids))


def test_a_copy_that_fails_adds_nothing_of_its_text() -> None:
    store = store_of()
    keep(store, 1, 2)

    def copy(index: int) -> object:
        if index == 2:
            raise MemoryError
        return index

    with pytest.raises(MemoryError):
        store.store([1, 2, 3, 4, 5, 6], copy)
    assert store.find([1, 2, 3, 4, 5, 6]) == [(1, 2)]
    keep(store, 1, 2, 3, 4)
    assert store.find([1, 2, 3, 4]) == [(1, 2), (1, 2, 3, 4)]
    store.clear()
    assert (store.find([1, 2]), store.num_bytes) == ([], 0)


TEXTS = st.lists(st.integers(0, 2), max_size=9)
FULL = [("keep", [0, 0]), ("keep", [1, 1]), ("find", [0, 0]), ("keep", [2, 2]), ("find", [0, 0])]


@given(
    st.integers(0, 5), st.lists(st.tuples(st.sampled_from(["find", "keep"]), TEXTS), max_size=30)
)
@example(2, FULL)
def test_the_store_is_bounded_evicts_the_least_recently_used_and_is_never_wrong(
    num_blocks: int, work: list[tuple[str, list[int]]]
) -> None:
    """Compared with a plain list of all beginnings ever kept, in the order of their last use."""
    store, recent = store_of(num_blocks), list[tuple[int, ...]]()

    def use(ids: list[int], count: int) -> None:
        for end in range(LENGTH * count, 0, -LENGTH):
            beginning = tuple(ids[:end])
            if beginning in recent:
                recent.remove(beginning)
            recent.append(beginning)

    for what, ids in work:
        beginnings = [tuple(ids[:end]) for end in range(LENGTH, len(ids) + 1, LENGTH)]
        remaining = [beginning for beginning in beginnings if beginning in recent]
        if what == "find":
            assert store.find(ids) == remaining
            use(ids, len(remaining))
        else:
            store.store(ids, words(ids))
            use(ids, min(len(beginnings), num_blocks))
            del recent[: max(0, len(recent) - num_blocks)]
        assert store.num_bytes == len(recent) * BLOCK_BYTES <= store.most_bytes


def test_the_lanes_of_a_race_reuse_as_much_as_all_can_and_nothing_before() -> None:
    store = store_of()
    keep(store, 1, 2, 3, 4, 5, 6)
    long, short = PrefixHit(store, [1, 2, 3, 4, 5, 6, 7]), PrefixHit(store, [1, 2, 3, 4, 9, 9])
    assert (long.num_found, short.num_found) == (6, 4)
    assert PrefixHit(store, [1, 2, 3, 4]).num_found == 2, "never the last token of a prompt"
    assert long.find([1, 2, 3, 4, 5, 6]) == []
    grant_alike([long, short])
    assert long.find([1, 2, 3, 4, 5, 6]) == short.find([1, 2, 3, 4, 9]) == [(1, 2), (1, 2, 3, 4)]
    grant_alike([long, PrefixHit(store, [8, 8, 8])])
    assert long.find([1, 2, 3, 4, 5, 6]) == []


def test_a_hit_keeps_what_it_found_after_others_evicted_it() -> None:
    store = store_of(1)
    keep(store, 1, 2)
    hit = PrefixHit(store, [1, 2, 3])
    keep(store, 8, 9)
    grant_alike([hit])
    assert store.find([1, 2]) == []
    assert hit.find([1, 2]) == [(1, 2)]
