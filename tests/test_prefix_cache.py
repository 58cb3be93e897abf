"""What is kept of texts: found, missed, cut to blocks, evicted. Blocks of two tokens, on paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.prefix_cache import BlockPrefixCache, PrefixHit, grant_alike

LENGTH, BLOCK_BYTES = 2, 10


def store_of(num_blocks: int = 100) -> BlockPrefixCache:
    return BlockPrefixCache(LENGTH, BLOCK_BYTES, num_blocks * BLOCK_BYTES + 9)


def words(ids: Sequence[int]) -> Callable[[int], object]:
    """Copies of a text's blocks: all tokens up to the end of each, by which it can be told."""
    return lambda index: tuple(ids[: LENGTH * (index + 1)])


def keep(store: BlockPrefixCache, *ids: int) -> None:
    store.keep(ids, words(ids))


def test_the_longest_beginning_that_is_kept_is_found() -> None:
    store = store_of()
    assert store.find([1, 2, 3, 4]) == []
    keep(store, 1, 2, 3, 4)
    assert store.find([1, 2, 3, 4, 5, 6]) == [(1, 2), (1, 2, 3, 4)]
    assert store.find([1, 2, 3, 9]) == [(1, 2)]
    assert store.find([2, 1, 3, 4]) == []
    assert store.find([3, 4]) == [], "the same tokens behind another beginning are another block"
    assert store.find([]) == []


def test_a_block_that_is_not_whole_is_neither_kept_nor_found() -> None:
    store = store_of()
    keep(store, 1, 2, 3)
    assert store.num_bytes == BLOCK_BYTES
    assert store.find([1, 2, 3]) == [(1, 2)]
    assert store.find([1]) == []
    keep(store, 1)
    assert store.num_bytes == BLOCK_BYTES


def test_two_texts_share_the_blocks_of_their_beginning() -> None:
    store = store_of()
    keep(store, 1, 2, 3, 4)
    copied: list[int] = []
    store.keep([1, 2, 5, 6, 7, 8], lambda index: copied.append(index) or index)
    assert copied == [1, 2], "what is there is not copied again"
    assert store.num_bytes == 4 * BLOCK_BYTES
    assert store.find([1, 2, 3, 4]) == [(1, 2), (1, 2, 3, 4)]
    assert store.find([1, 2, 5, 6, 7, 8]) == [(1, 2), 1, 2]


def test_the_least_recently_used_goes_first_and_an_end_before_its_beginning() -> None:
    store = store_of(4)
    keep(store, 1, 1, 2, 2)
    keep(store, 3, 3, 4, 4)
    store.find([1, 1])
    keep(store, 5, 5)  # makes room: behind 1, 1 nobody has looked for longest
    assert store.find([1, 1, 2, 2]) == [(1, 1)]
    assert store.find([3, 3, 4, 4]) == [(3, 3), (3, 3, 4, 4)]
    keep(store, 6, 6, 7, 7)
    assert store.find([5, 5]) == []
    assert store.find([1, 1]) == []
    assert len(store.find([3, 3, 4, 4])) == len(store.find([6, 6, 7, 7])) == 2


def test_a_text_longer_than_the_bound_is_kept_as_far_as_it_goes() -> None:
    store = store_of(2)
    copied: list[int] = []
    store.keep(range(9), lambda index: copied.append(index) or index)
    assert copied == [0, 1]
    assert store.num_bytes == 2 * BLOCK_BYTES <= store.most_bytes
    assert store.find(range(9)) == [0, 1]
    nothing = store_of(0)
    keep(nothing, 1, 2)
    assert nothing.find([1, 2]) == []


def test_a_copy_that_fails_adds_nothing_of_its_text() -> None:
    store = store_of()
    keep(store, 1, 2)

    def copy(index: int) -> object:
        if index == 2:
            raise MemoryError
        return index

    with pytest.raises(MemoryError):
        store.keep([1, 2, 3, 4, 5, 6], copy)
    assert store.find([1, 2, 3, 4, 5, 6]) == [(1, 2)]
    keep(store, 1, 2, 3, 4)
    assert store.find([1, 2, 3, 4]) == [(1, 2), (1, 2, 3, 4)]


def test_nothing_is_left_once_it_is_cleared() -> None:
    store = store_of()
    keep(store, 1, 2)
    store.clear()
    assert store.find([1, 2]) == []
    assert store.num_bytes == 0


TEXTS = st.lists(st.integers(0, 2), max_size=9)


@given(
    st.integers(0, 5), st.lists(st.tuples(st.sampled_from(["find", "keep"]), TEXTS), max_size=30)
)
def test_whatever_is_done_it_is_bounded_and_never_wrong(
    num_blocks: int, work: list[tuple[str, list[int]]]
) -> None:
    """Beside a plain list of all beginnings ever kept, in the order of their last use."""
    store, recent = store_of(num_blocks), list[tuple[int, ...]]()

    def use(ids: list[int], count: int) -> None:
        for end in range(LENGTH * count, 0, -LENGTH):
            beginning = tuple(ids[:end])
            if beginning in recent:
                recent.remove(beginning)
            recent.append(beginning)

    for what, ids in work:
        beginnings = [tuple(ids[:end]) for end in range(LENGTH, len(ids) + 1, LENGTH)]
        kept = [beginning for beginning in beginnings if beginning in recent]
        if what == "find":
            assert store.find(ids) == kept
            use(ids, len(kept))
        else:
            store.keep(ids, words(ids))
            use(ids, min(len(beginnings), num_blocks))
            del recent[: max(0, len(recent) - num_blocks)]
        assert store.num_bytes == len(recent) * BLOCK_BYTES <= store.most_bytes


def test_the_lanes_of_a_race_reuse_as_much_as_all_can_and_nothing_before() -> None:
    store = store_of()
    keep(store, 1, 2, 3, 4, 5, 6)
    long, short = PrefixHit(store, [1, 2, 3, 4, 5, 6, 7]), PrefixHit(store, [1, 2, 3, 4, 9, 9])
    assert (long.num_found, short.num_found) == (6, 4)
    assert long.find([1, 2, 3, 4, 5, 6]) == []
    grant_alike([long, short])
    assert long.find([1, 2, 3, 4, 5, 6]) == short.find([1, 2, 3, 4, 9]) == [(1, 2), (1, 2, 3, 4)]
    grant_alike([long, PrefixHit(store, [8, 8, 8])])
    assert long.find([1, 2, 3, 4, 5, 6]) == []


def test_a_share_has_what_it_found_when_others_have_taken_the_room() -> None:
    store = store_of(1)
    keep(store, 1, 2)
    hit = PrefixHit(store, [1, 2, 3])
    keep(store, 8, 9)
    grant_alike([hit])
    assert store.find([1, 2]) == []
    assert hit.find([1, 2]) == [(1, 2)]


def test_the_last_token_of_a_prompt_is_never_found() -> None:
    store = store_of()
    keep(store, 1, 2, 3, 4)
    assert PrefixHit(store, [1, 2, 3, 4]).num_found == 2
