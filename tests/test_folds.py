"""Folds on numbers written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mars_runtime.display.terminal import figures
from mars_runtime.runs import folds
from mars_runtime.runs.events import End, Event, Prefill, Proposal, RowStep, Step, Stop
from mars_runtime.runs.trace import Header, Trace
from mars_runtime.settings import DecodeSettings

SETTINGS = DecodeSettings(tau=0.9)
BOLDER = replace(SETTINGS, tau=0.5)


def step_of(
    start: int,
    accepted: tuple[int, ...],
    stop: Stop = "block",
    width: int = 4,
    row: int = 0,
    settings: DecodeSettings = SETTINGS,
) -> RowStep:
    tokens = (*accepted, *([99] * (width - len(accepted))))
    proposals = tuple(Proposal(token, 0.5, ()) for token in tokens)
    return RowStep(row, start, 0, 1, width, proposals, accepted, 0, settings, stop)


EVENTS: list[Event] = [
    Prefill(10, 0.5),
    Step((step_of(0, (1, 2, 3)), step_of(0, (7,), "eos", row=1)), 0.1),
    Step((step_of(3, (4,), "threshold"),), 0.2),
    Step((step_of(4, (5, 6), "eos", settings=BOLDER),), 0.1),
    End("eos"),
]


def test_counts_and_rates_by_row() -> None:
    assert folds.rows(EVENTS) == (0, 1)
    assert folds.accepted_tokens(EVENTS) == [1, 2, 3, 4, 5, 6]
    assert (folds.num_tokens(EVENTS), folds.num_forwards(EVENTS)) == (6, 3)
    assert (folds.num_tokens(EVENTS, 1), folds.num_forwards(EVENTS, 1)) == (1, 1)
    assert folds.tpf(EVENTS) == 2
    assert folds.decode_seconds(EVENTS) == pytest.approx(0.4)
    assert folds.decode_seconds(EVENTS, 1) == pytest.approx(0.1)
    assert folds.tokens_per_second(EVENTS) == pytest.approx(15)
    assert folds.ms_per_forward(EVENTS) == pytest.approx(400 / 3)
    assert folds.ttft(EVENTS) == pytest.approx(0.6)


def looping_run(row: int = 0, seconds: float = 0.5) -> list[Step]:
    """Five tokens by three forwards, then 4 5 again and again, eight by each forward."""
    starts = [(0, (1, 2)), (2, (3,)), (3, (4, 5, 4, 5, 4, 5, 4, 5))]
    starts += [(start, (4, 5) * 4) for start in range(11, 75, 8)]
    return [Step((step_of(start, tokens, width=8, row=row),), seconds) for start, tokens in starts]


def test_every_figure_of_a_run_counts_up_to_the_loop() -> None:
    events: list[Event] = [Prefill(3, 2.0), *looping_run(), End("limit")]
    counted = folds.up_to_loop(events)
    assert folds.accepted_tokens(counted) == [1, 2, 3, 4, 5]
    assert (folds.num_forwards(counted), folds.decode_seconds(counted)) == (3, 1.5)
    assert (counted[0], counted[-1]) == (events[0], events[-1])
    assert folds.up_to_loop(counted) is counted
    assert folds.tokens_per_second(events) == pytest.approx(5 / 1.5)
    assert folds.ms_per_forward(events) == 500
    assert folds.num_tokens(events) == 75  # a count of what was written, not a figure of the method
    assert (folds.loops_at(events), folds.loops_at(events[:5])) == (5, None)
    assert folds.totals(events[:-1]).num_looped == 0  # only once the run has ended
    assert folds.tpf(events) == 5 / 3
    loop = "the text repeats itself after token 5; up to that point: "
    assert figures(events).startswith(f"{loop}TPF 1.67")
    assert "5 tokens in 3 forward passes" in figures(events)


def test_only_the_row_that_repeats_itself_is_cut_in_a_batch() -> None:
    """Of 11 forwards row 1 takes part in 5; row 0 is in a loop from the fourth on."""
    other = [step_of(start, (start + 10,), row=1) for start in range(5)]
    both: list[Event] = [
        replace(step, rows=(*step.rows, *other[place : place + 1]))
        for place, step in enumerate(looping_run())
    ]
    prefills = [Prefill(5, 0.25, 4000), Prefill(2, 0.5, 9000)]
    actual = folds.totals([*prefills, *both, End("limit")])
    assert (actual.prefill_seconds, actual.peak_cache_bytes) == (0.75, 9000)
    assert (actual.num_tokens, actual.num_forwards, actual.num_row_forwards) == (80, 11, 16)
    assert (actual.counted_tokens, actual.counted_forwards) == (10, 5)
    assert actual.counted_row_forwards == 8
    assert actual.seconds - actual.loop_seconds == pytest.approx(3 * 0.5 + 2 * 0.25)
    assert actual.tokens_per_second == pytest.approx(10 / 2.0)
    assert actual.effective_tpf == 10 / 8


def test_nothing_yet() -> None:
    for events in ([], [Prefill(3, 0.5)]):
        assert folds.tpf(events) == folds.tokens_per_second(events) == 0
        assert folds.ms_per_forward(events) == 0
        assert folds.ttft(events) is None
        assert folds.end(events) is None
        assert folds.totals(events).tokens_per_second == folds.totals(events).effective_tpf == 0
    assert folds.end(EVENTS) == End("eos")


def test_first_divergence() -> None:
    other: list[Event] = [Step((step_of(0, (1, 2, 9)),))]
    running: list[Event] = [Step((step_of(0, (1, 2)),))]
    ended: list[Event] = [Step((step_of(0, (1, 2), "eos"),))]
    assert folds.first_divergence(EVENTS, other) == 2
    assert folds.first_divergence(EVENTS, EVENTS) is None
    assert folds.first_divergence(EVENTS, running) is None
    assert folds.first_divergence(running, EVENTS) is None
    assert folds.first_divergence(EVENTS, ended) == folds.first_divergence(ended, EVENTS) == 2


def test_text_leaves_out_the_end_and_holds_back_half_characters() -> None:
    smile = "☺".encode()
    vocabulary = {1: b"a", 2: smile[:1], 3: smile[1:2], 4: smile[2:], 5: b"!", 6: b"<|im_end|>"}
    trace = Trace(Header("c", "p", (), SETTINGS), EVENTS, {**vocabulary, 7: b"x", 99: b"?"})
    assert folds.text_pieces(trace) == ["a", "☺", "!", ""]
    assert folds.text(trace) == "a☺!"
    assert folds.text(trace, 1) == ""


def test_given_text_comes_before_the_first_piece() -> None:
    smile = "☺".encode()
    vocabulary = {8: b"so ", 9: smile[:1], 1: smile[1:], 2: b"b", 3: b"c", 4: b"d"}
    header = Header("c", "p", (4, 8, 9), SETTINGS, num_given=2)
    trace = Trace(header, EVENTS[:3], vocabulary)
    assert folds.given_text(trace) == "so "
    assert folds.text_pieces(trace) == ["☺bc", "d", ""]
    assert folds.text(trace) == "so ☺bcd"
