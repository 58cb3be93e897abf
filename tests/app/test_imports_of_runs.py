"""What is made of a trace that a visitor brings: its own lines again, or one sentence."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import sample_traces as samples

from app.compare import read_import
from mars_runtime.settings import DecodeSettings
from mars_runtime.trace import Trace

MOST = 1_000_000
SCRIPT = samples.Script(samples.PROSE, moves={9: DecodeSettings(tau=0.5, block_size=8)})


def lines_of(script: samples.Script = SCRIPT) -> list[str]:
    return samples.trace_lines(samples.run(script))


def step(**changes: object) -> str:
    """A trace with something else in its third line, a step."""
    lines = lines_of()
    return "\n".join([*lines[:2], json.dumps({**json.loads(lines[2]), **changes}), *lines[3:]])


@pytest.mark.parametrize("text", [samples.PROSE, samples.EMOJI, samples.HOSTILE])
def test_a_trace_comes_back_as_it_was(text: str) -> None:
    lines = lines_of(replace(SCRIPT, text=text))
    assert read_import("\n".join(lines), MOST) == {"lines": lines, "pin": {}}
    assert read_import("\r\n".join(lines) + "\r\n\n", MOST)["lines"] == lines


def test_what_is_unknown_or_spelled_otherwise_is_written_as_this_program_would() -> None:
    lines = lines_of()
    spaced = [json.dumps({**json.loads(line), "later": [1]}, indent=None) for line in lines]
    assert read_import("\n".join(spaced), MOST)["lines"] == lines


def test_its_owners_words_come_with_it() -> None:
    words = {"name": "<b>bold</b>", "note": "é\n2", "rating": 4, "verdict": False}
    text = "\n".join([json.dumps({"type": "pin", **words}), *lines_of()])
    assert read_import(text, MOST) == {"lines": lines_of(), "pin": words}


HOSTILE = {
    "empty": ("", "it is empty"),
    "blank": ("\n \n", "it is empty"),
    "prose": ("Dear page,\nhello", "Line 1"),
    "binary": ("\x89PNG\x00\ufffd\ufffd\x01" * 50, "Line 1"),
    "json": ('{"a": 1}', "header"),
    "list": ("[1, 2, 3]", "Line 1"),
    "package": ('{"type": "header", "version": 2}', "version 1"),
    "deep": ("[" * 100_000, "nested"),
    "cut": ("\n".join(lines_of())[:-300], "cannot be read"),
    "NaN": (step(seconds=float("nan")), "Line 3"),
    "infinite": (step().replace('"seconds": ', '"seconds": 1e999, "x": ', 1), "Line 3"),
    "long number": (step(vocabulary={"9" * 4200: "a"}), "Line 3"),
    "negative": (step(seconds=-1), "negative"),
    "types": (step(rows={"row": 0}), "Line 3"),
    "true": (step(seconds=True), "Line 3"),
    "token": (step(vocabulary={}), "vocabulary"),
    "header alone": (lines_of()[0], "no forward"),
    "no text": (b"abc", "not text"),
    "too long": ("x" * (MOST + 1), "1 MB"),
    "name": ("\n".join(['{"type":"pin","name":"' + "x" * 500 + '"}', *lines_of()]), "name"),
    "rating": ("\n".join(['{"type":"pin","rating":9}', *lines_of()]), "rating"),
    "note": ("\n".join(['{"type":"pin","note":{"x":1}}', *lines_of()]), "note"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_no_trace_gets_one_sentence(kind: str) -> None:
    text, said = HOSTILE[kind]
    answer = read_import(text, MOST)
    assert list(answer) == ["error"]
    sentence = answer["error"]
    assert said in sentence
    assert sentence.endswith(".")
    assert len(sentence) < 240
    assert "\n" not in sentence


def test_a_batch_is_not_a_run() -> None:
    trace = samples.run(SCRIPT)
    first = trace.events[1]
    both = replace(first, rows=(first.rows[0], replace(first.rows[0], row=1)))
    batch = Trace(trace.header, [both], trace.vocabulary)
    assert "2 rows" in read_import("\n".join(batch.lines()), MOST)["error"]


def test_a_run_of_too_many_lines_is_not_read() -> None:
    assert "20,000 lines" in read_import("\n" * 20_000, 4_000_000)["error"]
    assert "empty" in read_import("\n" * 19_999, 4_000_000)["error"]
