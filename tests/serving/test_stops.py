"""Stop strings cut a text alike, however it is cut into pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.serving.answer import StopCutter

LETTERS = "abä"


def cut(pieces: list[str], stops: list[str]) -> tuple[str, bool]:
    cutter = StopCutter(stops)
    text = "".join(map(cutter.push, pieces))
    return text + cutter.flush(), cutter.is_cut


def slow_twin(text: str, stops: list[str]) -> tuple[str, bool]:
    """Looks at every beginning of the text."""
    for end in range(1, len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            return text[: end - max(map(len, ended))], True
    return text, False


@given(
    st.lists(st.text(LETTERS, max_size=4), max_size=12),
    st.lists(st.text(LETTERS, min_size=1, max_size=5), max_size=4),
)
def test_pieces_make_no_difference(pieces: list[str], stops: list[str]) -> None:
    assert cut(pieces, stops) == slow_twin("".join(pieces), stops)


def test_what_may_begin_a_stop_is_held_back_until_it_is_clear() -> None:
    cutter = StopCutter(["<end>", "\n\n"])
    assert [cutter.push(piece) for piece in ("a<", "en", "c<e", "\n", "b\n")] == [
        *("a", "", "<enc", "<e", "\nb"),
    ]
    assert cutter.push("\nmore") == ""
    assert cutter.is_cut
    assert cutter.push("ever") == cutter.flush() == ""


def test_without_stops_nothing_is_held_back() -> None:
    assert StopCutter([]).push("anything") == "anything"
