"""The cache: views, cursors, the one copy there is."""

from __future__ import annotations

import pytest
import torch

from mars_runtime.cache import BlockKVCache

SHAPE = (2, 3, 8, 2, 4)


def test_keys_and_values_are_views_of_the_store() -> None:
    cache = BlockKVCache(SHAPE)
    assert cache.keys(1).shape == cache.values(1).shape == (3, 2, 8, 4)
    cache.store[1, 2, 5, 1] = 7.0
    cache.store[1, 2, 5, 3] = 9.0
    assert (cache.keys(1)[2, 1, 5] == 7.0).all()
    assert (cache.values(1)[2, 1, 5] == 9.0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_is_known_before_it_is_taken(dtype: torch.dtype) -> None:
    assert BlockKVCache.bytes_needed(SHAPE, dtype) == BlockKVCache(SHAPE, dtype=dtype).num_bytes


def test_a_row_alone_shares_the_memory() -> None:
    cache = BlockKVCache(SHAPE)
    cache.cursors = [1, 2, 3]
    alone = cache.row(1)
    assert alone.cursors == [2]
    alone.store[:, 0, 4] = 5.0
    assert (cache.store[:, 1, 4] == 5.0).all()
    assert not cache.store[:, [0, 2]].any()


def test_what_an_earlier_tenant_left_is_cleared() -> None:
    cache = BlockKVCache(SHAPE)
    cache.store[:, 1] = float("nan")
    cache.cursors[1] = 6
    cache.clear(1, 6)
    assert cache.store[:, 1, 6:].isnan().all()
    cache.clear(1)
    assert not cache.store.any()
    assert cache.cursors == [0, 0, 0]


def test_a_row_moves_into_the_place_of_one_that_left() -> None:
    cache = BlockKVCache(SHAPE)
    cache.store[:, 0] = float("nan")
    cache.store[:, 2, :3] = 4.0
    cache.cursors = [8, 1, 3]
    cache.move(2, 0)
    assert cache.cursors[0] == 3
    assert (cache.store[:, 0, :3] == 4.0).all()
    assert not cache.store[:, 0, 3:].any()


def test_a_cache_of_no_size_is_a_mistake() -> None:
    with pytest.raises(AssertionError):
        BlockKVCache((2, 0, 8, 2, 4))


def test_two_rows_change_places_with_all_that_they_wrote() -> None:
    cache = BlockKVCache((2, 3, 64, 2, 4))
    cache.store[:, 0, :40] = 3.0
    cache.store[:, 2, :9] = 5.0
    cache.cursors = [9, 1, 2]
    cache.swap(0, 2)
    assert cache.cursors == [2, 1, 9]
    assert (cache.store[:, 2, :40] == 3.0).all()
    assert (cache.store[:, 0, :9] == 5.0).all()
    assert not cache.store[:, 0, 9:40].any()
    assert not cache.store[:, 1].any()
