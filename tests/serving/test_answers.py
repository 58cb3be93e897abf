"""Answers as folds over events, whatever a forward or a piece of text holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.decoders.methods import Method
from mars_runtime.runs import folds
from mars_runtime.runs.events import End, Event, Prefill, Proposal, RowStep, Step
from mars_runtime.runs.folds import drafting
from mars_runtime.serving.answer import StopCutter, StreamedAnswer, spelled
from mars_runtime.serving.choices import speculative_decoding
from mars_runtime.settings import DecodeSettings
from tests.scripted_text import write_tokenizer

TEXT = "ab☃cd"


def proposed(token: int) -> Proposal:
    return Proposal(token, 0.5, ((32, 0.25),))


def run_of(size: int, end: str = "eos") -> list[Event]:
    tokens = [*TEXT.encode(), *([257] if end == "eos" else [])]
    events: list[Event] = [Prefill(3, num_reused=2)]
    for at in range(0, len(tokens), size):
        piece = tuple(tokens[at : at + size])
        stop = end if at + size >= len(tokens) else "block"
        proposals = tuple(map(proposed, piece))
        row = RowStep(0, at, at, 1, size, proposals, piece, 0, DecodeSettings(), stop)
        events.append(Step((row,)))
    return [*events, End(end)]


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize(
    ("stops", "text", "num_tokens"),
    [([], TEXT, 8), (["c"], "ab☃", 6), (["☃"], "ab", 5), (["b☃c"], "a", 6), (["dd"], TEXT, 8)],
)
def test_text_and_tokens_are_the_same(
    tmp_path: Path, size: int, stops: list[str], text: str, num_tokens: int
) -> None:
    answer = StreamedAnswer(write_tokenizer(tmp_path), stops)
    pieces = [answer.read([event]) for event in run_of(size)]
    assert "".join(piece.text for piece in pieces) == text
    assert answer.num_tokens == num_tokens == folds.num_tokens(answer.events)
    assert answer.finish_reason == "stop"
    assert bytes(item.token for piece in pieces for item in piece.tokens) == text.encode()


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("stops", [("bc", frozenset()), ("", frozenset(b"bc"))])
def test_stops_count_late(tmp_path: Path, size: int, stops: tuple[str, frozenset[int]]) -> None:
    for minimum, text, num_tokens in ((0, "a", 2), (1, "a", 2), (2, "ab☃", 6), (6, TEXT, 8)):
        answer = StreamedAnswer(write_tokenizer(tmp_path), *stops, min_tokens=minimum)
        assert (answer.read(run_of(size)).text, answer.num_tokens) == (text, num_tokens)


def test_an_answer_that_ends_inside_a_character_ends_with_a_sign(tmp_path: Path) -> None:
    answer = StreamedAnswer(write_tokenizer(tmp_path), [])
    events = run_of(1, "limit")[:5]  # two of the three bytes of the snowman
    assert answer.read(events).text == "ab"
    assert answer.finish_reason == ""
    assert answer.read([End("limit")]).text == "�"
    assert answer.finish_reason == "length"


# Stop strings.


def cut(pieces: list[str], stops: list[str]) -> tuple[str, bool]:
    cutter = StopCutter(stops)
    text = "".join(map(cutter.push, pieces))
    return text + cutter.flush(), cutter.is_cut


def slow_twin(text: str, stops: list[str]) -> tuple[str, bool]:
    for end in range(1, len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            return text[: end - max(map(len, ended))], True
    return text, False


LETTERS = "abä"


@given(
    st.lists(st.text(LETTERS, max_size=4), max_size=12),
    st.lists(st.text(LETTERS, min_size=1, max_size=5), max_size=20),
)
def test_pieces_make_no_difference(pieces: list[str], stops: list[str]) -> None:
    assert cut(pieces, stops) == slow_twin("".join(pieces), stops)


# Figures of drafts.


def step(
    method: Method, lossless: bool, proposals: int, accepted: int, drafts: int, pending: int = 1
) -> Step:
    """Drafts are the tokens 1, 2, ...; the last accepted token is AR's own."""
    taken = (*range(1, accepted), 9)
    slots = tuple(map(proposed, (*taken, *range(1, proposals - accepted + 1))))
    settings = DecodeSettings(method=method, lossless=lossless, block_size=8)
    return Step((RowStep(0, 0, 0, pending, 8, slots, taken, drafts, settings, "block"),))


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
    ar = [step("ar", False, 1, 1, 0)]
    assert list(drafting(ar)) == []
    assert speculative_decoding([]) is speculative_decoding(ar) is None


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), min_size=1, max_size=20))
def test_the_counts_agree_with_each_other(forwards: list[tuple[int, int]]) -> None:
    """aiperf drops figures that do not."""
    events = [step("mars", False, n, min(n, taken), 0) for n, taken in forwards]
    actual = speculative_decoding(events)
    assert actual is not None
    histogram = actual["acceptance_histogram"]
    assert len(histogram) == actual["num_spec_tokens"] + 1
    assert sum(histogram) == actual["num_spec_steps"] == len(actual["per_step_drafted"])
    weighted = sum(number * count for number, count in enumerate(histogram))
    assert weighted == actual["num_accepted_draft_tokens"] == sum(actual["per_step_accepted"])
    assert sum(actual["per_step_drafted"]) == actual["num_draft_tokens"]
    rates = actual["per_position_acceptance_rates"]
    assert len(rates) == actual["num_spec_tokens"]
    assert sum(rates) * actual["num_spec_steps"] == pytest.approx(weighted)


# Tokens that are no valid text.


def test_every_byte_and_pair_of_bytes_is_spelled_its_own_way() -> None:
    raws = [bytes([first, *rest]) for first in range(256) for rest in [(), *zip(range(256))]]
    assert len(set(map(spelled, raws))) == len(raws)
