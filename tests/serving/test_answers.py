"""Runs as answers: neither the number of tokens a forward brought, nor the pieces of a text, make a
difference to what is told.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime import folds
from mars_runtime.events import End, Event, Prefill, Proposal, RowStep, Step
from mars_runtime.folds import drafting
from mars_runtime.methods import Method
from mars_runtime.serving.answer import Answer, StopCutter
from mars_runtime.settings import DecodeSettings
from tests.scripted_text import write_tokenizer

TEXT = "ab☃cd"


def proposed(token: int) -> Proposal:
    return Proposal(token, 0.5, ((32, 0.25),))


def run_of(size: int, end: str = "eos") -> list[Event]:
    """TEXT, so many tokens in each forward."""
    tokens = [*TEXT.encode(), *([257] if end == "eos" else [])]
    events: list[Event] = [Prefill(3, num_reused=2)]
    for at in range(0, len(tokens), size):
        now = tuple(tokens[at : at + size])
        stop = end if at + size >= len(tokens) else "block"
        proposals = tuple(map(proposed, now))
        row = RowStep(0, at, at, 1, size, proposals, now, 0, DecodeSettings(), stop)  # type: ignore[arg-type]
        events.append(Step((row,)))
    return [*events, End(end)]  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize(
    ("stops", "text", "num_tokens"),
    [([], TEXT, 8), (["c"], "ab☃", 6), (["☃"], "ab", 5), (["b☃c"], "a", 6), (["dd"], TEXT, 8)],
)
def test_text_and_tokens_are_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    size: int, stops: list[str], text: str, num_tokens: int,
) -> None:  # fmt: skip
    tokenizer = write_tokenizer(tmp_path_factory.mktemp("bytes"))
    answer = Answer(tokenizer, stops)
    pieces = [answer.read([event]) for event in run_of(size)]
    assert "".join(piece.text for piece in pieces) == text
    assert answer.num_tokens == num_tokens == folds.num_tokens(answer.events)
    assert answer.finish_reason == "stop"
    told = bytes(one.token for piece in pieces for one in piece.tokens)
    assert told == text.encode()


def test_an_answer_that_breaks_off_in_a_character_ends_with_a_sign(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    answer = Answer(write_tokenizer(tmp_path_factory.mktemp("bytes")), [])
    events = run_of(1, "limit")[:5]  # two of the three bytes of the snowman
    assert "".join(answer.read([event]).text for event in events) == "ab"
    assert answer.finish_reason == ""
    assert answer.read([End("limit")]).text == "�"
    assert answer.finish_reason == "length"


def step(
    method: Method, lossless: bool, proposals: int, accepted: int, drafts: int, pending: int = 1
) -> Step:
    told = tuple(map(proposed, range(proposals)))
    settings = DecodeSettings(method=method, lossless=lossless, block_size=8)
    taken = tuple(range(accepted))
    return Step((RowStep(0, 0, 0, pending, 8, told, taken, drafts, settings, "block"),))


def test_drafts_are_judged_when_they_are_accepted_or_verified() -> None:
    bold = [step("mars", False, 4, 1, 0), step("mars", False, 4, 3, 0, pending=1)]
    assert list(drafting(bold)) == [(3, 0), (3, 2)]
    # Drafts wait for the forward after; the last one was fed only one of its two.
    lossless = [
        step("mars", True, 4, 1, 3),
        step("mars", True, 6, 3, 2, pending=4),
        step("mars", True, 3, 2, 0, pending=2),
        step("mars", True, 1, 1, 0),
    ]
    assert list(drafting(lossless)) == [(3, 2), (1, 1)]
    assert list(drafting([step("ar", False, 1, 1, 0)])) == []


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
    st.lists(st.text(LETTERS, min_size=1, max_size=5), max_size=20),
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
