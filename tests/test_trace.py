"""Traces: law 7 (text and back is the identity), and a reader that trusts nothing."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.runs.events import End, Event, Prefill, Proposal, RowStep, Step
from mars_runtime.runs.trace import (
    MAX_LINE_CHARS,
    Header,
    Trace,
    TraceError,
    TraceWriter,
    read_trace,
)
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Turn
from tests.event_strategies import HEADERS, JSON_VALUES, runs

SETTINGS = DecodeSettings()
HEADER = Header("mars-tiny", "Count.", (1, 2), SETTINGS)


def token_bytes(token: int) -> bytes:
    """Any bytes, broken UTF-8 too."""
    return bytes([token % 256, 0x85, 0x0A])


def row_step(start: int, accepted: tuple[int, ...], settings: DecodeSettings = SETTINGS) -> RowStep:
    proposals = tuple(Proposal(token, 0.1 + 0.2, ((7, 1 / 3),)) for token in accepted)
    return RowStep(0, start, 3, 1, 4, proposals, accepted, 0, settings, "block")


def lines_of_a_run() -> list[str]:
    events: list[Event] = [Prefill(2, 0.5), Step((row_step(0, (5, 6)),), 0.25), End("limit")]
    return list(Trace.of(HEADER, events, token_bytes).lines())


@given(header=HEADERS, events=runs())
def test_law_7_trace_to_lines_and_back_is_the_identity(header: Header, events: list[Event]) -> None:
    trace = Trace.of(header, events, token_bytes)
    lines = list(trace.lines())
    again = read_trace(lines)
    assert again == trace
    assert list(again.lines()) == lines
    assert all(line.isascii() and line.splitlines() == [line] for line in lines)
    assert read_trace("\n".join(lines).splitlines()) == trace
    assert read_trace(line.encode() for line in lines) == trace


BAD_HEADERS = {
    "system": [7, None, ["x"]],
    "rho": [{"1": [1e999]}, [], {"a": [1]}, {"-1": [1]}, {"1": 1}, {"1": ["x"]}, {"9" * 9: []}],
    "num_given": [-1, 3, 1.0, "1", None, True, 1],
    "history": [
        *({}, ["Why?"], [{"prompt": "Why?"}], [{"prompt": 3, "tokens": []}]),
        *([{"prompt": "Why?", "tokens": [token]}] for token in (-1, True, 999)),
        [{"prompt": "", "tokens": []}] * 1001,
    ],
}


@pytest.mark.parametrize("name", BAD_HEADERS)
def test_a_damaged_header_is_refused(name: str) -> None:
    """Also where tokens are named whose bytes are missing."""
    lines = lines_of_a_run()
    for value in BAD_HEADERS[name]:
        line = json.dumps({**json.loads(lines[0]), name: value}).replace("Infinity", "1e999")
        with pytest.raises(TraceError, match="Line 1"):
            read_trace([line, *lines[1:]])


def test_settings_and_the_bytes_of_every_token_are_written_once() -> None:
    """Bytes of earlier answers and given beginnings in the header."""
    header = replace(HEADER, prompt_ids=(1, 2, 8, 9), num_given=2)
    header = replace(header, history=(Turn("Why?", (8, 10)), Turn("So?", ())))
    row = replace(row_step(2, (5,), replace(SETTINGS)), checks=((6, 0.75), (11, 0.5)))
    moved = row_step(3, (5,), replace(SETTINGS, tau=0.5))
    events = [Step((step,)) for step in (row_step(0, (5, 6)), row, moved)]
    lines = [json.loads(line) for line in Trace.of(header, events, token_bytes).lines()]
    written = [list(line.get("vocabulary", ())) for line in lines]
    assert written == [["8", "9", "10"], ["5", "6", "7"], ["11"], []]
    assert ["settings" in line["rows"][0] for line in lines[1:]] == [True, False, True]


@pytest.mark.parametrize(
    "checks", [3, [5], [[5]], [[5, 0.5, 1]], [[5, "x"]], [[-1, 0.5]], [[999, 0.5]], [[5, 0.5]] * 3]
)
def test_checks_that_make_no_sense_are_refused(checks: object) -> None:
    steps = [Step((row_step(0, (5, 6)),)), Step((row_step(2, (5,)),))]
    lines = list(Trace.of(HEADER, steps, token_bytes).lines())
    step = json.loads(lines[2])
    read_trace(lines)
    step["rows"][0]["checks"] = checks
    with pytest.raises(TraceError, match="Line 3"):
        read_trace([*lines[:2], json.dumps(step)])


def test_not_finite_is_never_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        TraceWriter(HEADER, token_bytes).line(Prefill(1, float("nan")))


HEADER_LINE, PREFILL_LINE, STEP_LINE, END_LINE = lines_of_a_run()
CHANGES = {
    '"seconds":0.25': [f'"seconds":{bad}' for bad in ("NaN", "1e999", "-1", "9" * 400)],
    '"seconds":0.25,': [""],
    '"start":0': ['"start":1', '"start":"0"'],
    '"row":0': ['"row":' + "9" * 6000],
    '"accepted":[5,6]': [
        f'"accepted":{bad}' for bad in ([5, 8], "[]" + " " * MAX_LINE_CHARS, [5] * 100)
    ],
    '"stop":"block"': ['"stop":["block"]'],
    '"tau":0.95': ['"tau":NaN', '"tau":2'],
    '"settings":{': ['"settings":3,"x":{', '"settings":{"of":NaN,'],
    '"vocabulary":{"5"': [f'"vocabulary":{bad}' for bad in ('{"x"', '{"5":["x"],"9"')],
    '"vocabulary":{"5":"': ['"vocabulary":{"5":"\\u2603'],
    '"proposals":[[5,': ['"proposals":[[5,1,'],
}
BAD_STEPS = [
    *(STEP_LINE.replace(part, bad) for part, parts in CHANGES.items() for bad in parts),
    STEP_LINE[:-1],
    '{"type":"step","rows":[' + "[" * 100_000,
    '{"type":"dance"}',
    "[]",
    "\x00",
]


@pytest.mark.parametrize("bad", BAD_STEPS, ids=range(len(BAD_STEPS)))
def test_bad_lines_get_one_sentence(bad: str) -> None:
    with pytest.raises(TraceError, match=r"^Line 3 cannot be read as part of a trace: .+[^.]\.$"):
        read_trace([HEADER_LINE, PREFILL_LINE, bad])


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["", "  "],
        ["<html>"],
        [STEP_LINE],
        [HEADER_LINE.replace('"version":1', '"version":2')],
        [HEADER_LINE.replace('"prompt_ids":[1,2]', '"prompt_ids":{}')],
        [HEADER_LINE, END_LINE, END_LINE],
        [HEADER_LINE, HEADER_LINE],
        [b"\xff\xfe\x00"],
    ],
)
def test_foreign_files_get_one_sentence(lines: list[str]) -> None:
    with pytest.raises(TraceError, match=r"\.$"):
        read_trace(lines)


@given(value=JSON_VALUES, place=st.integers(0, 4), text=st.text(max_size=30))
def test_reader_raises_nothing_but_its_own_error(value: object, place: int, text: str) -> None:
    keys = ("rows", "seconds", "vocabulary", "type", "x")
    step = {**json.loads(STEP_LINE), keys[place]: value}
    row = {**json.loads(STEP_LINE)["rows"][0], "proposals": value}
    for line in (json.dumps(step), json.dumps({**json.loads(STEP_LINE), "rows": [row]}), text):
        with contextlib.suppress(TraceError):
            read_trace([HEADER_LINE, line])
