"""The index of a growing text against looking everywhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.decoders.lookup import Lookup
from tests.slow_twin import looked_up


def found(text: list[int], at_most: int = 5) -> tuple[list[int], int]:
    lookup = Lookup()
    lookup.extend(text)
    return lookup.following(at_most)


def test_by_hand() -> None:
    assert found([]) == found([7]) == found([7, 8]) == found([7, 8, 9]) == ([], 0)
    assert found([7, 8, 9, 7], 2) == ([8, 9], 1)
    assert found([1, 7, 8, 3, 4, 5, 6, 9, 7, 8], 3) == ([3, 4, 5], 2)
    assert found([1, 7, 8, 3, 7, 8, 4, 2, 7, 8], 2) == ([4, 2], 2)  # the latest occurrence
    assert found([6, 7, 8, 3, 7, 8, 4, 6, 7, 8], 1) == ([3], 3)  # the longer match is older


def test_a_text_that_repeats_itself_is_taken_to_go_on_so() -> None:
    assert found([5, 6, 5, 6]) == ([5, 6, 5, 6, 5], 2)
    assert found([4] * 9) == ([4] * 5, 4)


@given(
    st.lists(st.integers(0, 3), max_size=60),
    st.lists(st.integers(0, 9), min_size=1, max_size=9),
    st.integers(1, 12),
)
def test_it_grows_in_parts_and_finds_what_looking_everywhere_finds(
    text: list[int], parts: list[int], at_most: int
) -> None:
    lookup, seen = Lookup(), 0
    while seen < len(text):
        size = parts[seen % len(parts)] + 1
        lookup.extend(text[seen : seen + size])
        seen = min(seen + size, len(text))
        assert len(lookup) == seen
        assert lookup.following(at_most) == looked_up(text[:seen], at_most)
