"""Recordings: the reader takes what the recorder writes; the bundled ones show what they say."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import sample_traces as samples

from app.ui.imported_runs import read_import
from app.ui.recordings import RecordingsError, load, read_value
from mars_runtime.engine.engine import Engine
from mars_runtime.model.load import load_checkpoint
from mars_runtime.runs import folds
from mars_runtime.runs.trace import Trace
from mars_runtime.settings import DecodeSettings
from tools.record_runs import SCENARIOS, Recorder, Scenario, write


def short(scenario: Scenario) -> Scenario:
    """The scenario with a dozen tokens a lane."""
    lanes = tuple(
        replace(lane, settings=replace(lane.settings, max_new_tokens=12, block_size=2))
        for lane in scenario.lanes
    )
    return replace(scenario, lanes=lanes)


def test_what_the_recorder_writes_the_reader_takes(random_folder: Path, tmp_path: Path) -> None:
    """A scenario, recorded on random weights."""
    checkpoint = load_checkpoint(str(random_folder))
    scenario = short(SCENARIOS[0])
    with Engine(checkpoint) as engine:
        recorder = Recorder(checkpoint, engine)
        assert set(write(tmp_path, [scenario], lambda name: recorder)) == {scenario.name}
    (recording,) = load(tmp_path)
    assert recording.name == scenario.name
    traces = recording.traces()
    assert set(traces) == set(recording.settings)
    for trace in traces.values():
        assert trace.header.prompt == recording.prompt
        assert folds.decode_seconds(trace.events) > 0
    assert '"recorded":"20' in recording.value.splitlines()[0]


def test_the_bundled_recordings_are_those_of_the_recorder() -> None:
    bundled = load()
    assert [recording.name for recording in bundled] == [scenario.name for scenario in SCENARIOS]
    for recording in bundled:
        assert len({folds.text(trace) for trace in recording.traces().values()}) == 1
    assert sum(len(recording.value) for recording in bundled) < 300_000


def test_a_folder_or_value_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RecordingsError, match="record_runs --out"):
        load(tmp_path)
    entry = {"name": "../out", "title": "", "why": "", "prompt": "", "settings": {}}
    (tmp_path / "index.json").write_text(json.dumps([entry]))
    (tmp_path.parent / "out.txt").write_text(load()[0].value)
    with pytest.raises(RecordingsError, match="has no recordings"):
        load(tmp_path)
    for value in ("", "{}\n", '{"lanes":[{"lane":"mars","title":"M"}]}\nmars\t{"type":"step"}\n'):
        with pytest.raises(RecordingsError, match="cannot be read"):
            read_value(value)


MOST = 1_000_000
SCRIPT = samples.Script(samples.PROSE, moves={9: DecodeSettings(tau=0.5, block_size=8)})


LINES = list(samples.run(SCRIPT).lines())


def step(**changes: object) -> str:
    """A trace with something else in its third line, a step."""
    changed = json.dumps({**json.loads(LINES[2]), **changes})
    return "\n".join([*LINES[:2], changed, *LINES[3:]])


def test_a_trace_comes_back_as_it_was() -> None:
    """Without what is unknown or spelled differently in it."""
    lines = list(samples.run(replace(SCRIPT, text=samples.HOSTILE)).lines())
    assert read_import("\n".join(lines), MOST) == {"lines": lines}
    assert read_import("\r\n".join(lines) + "\r\n\n", MOST)["lines"] == lines
    spaced = [json.dumps({**json.loads(line), "later": [1]}, indent=None) for line in lines]
    assert read_import("\n".join(spaced), MOST)["lines"] == lines


def batch() -> str:
    trace = samples.run(SCRIPT)
    first = trace.events[1]
    both = replace(first, rows=(first.rows[0], replace(first.rows[0], row=1)))
    return "\n".join(Trace(trace.header, [both], trace.vocabulary).lines())


HOSTILE = {
    "empty": ("", "This file is empty"),
    "binary": ("\x89PNG\x00\ufffd\ufffd\x01" * 50, "Line 1"),
    "package": ('{"type": "header", "version": 2}', "version 1"),
    "deep": ("[" * 100_000, "nested"),
    "cut": ("\n".join(LINES)[:-300], "cannot be read"),
    "NaN": (step(seconds=float("nan")), "Line 3"),
    "long number": (step(vocabulary={"9" * 4200: "a"}), "Line 3"),
    "negative": (step(seconds=-1), "between 0"),
    "token": (step(vocabulary={}), "vocabulary"),
    "header alone": (LINES[0], "no forward pass"),
    "no text": (b"abc", "not text"),
    "too long": ("x" * (MOST + 1), "1 MB"),
    "lines": ("\n" * 20_000, "20,000 lines"),
    "batch": (batch(), "This run has 2 prompts"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_no_trace_gets_one_sentence(kind: str) -> None:
    text, said = HOSTILE[kind]
    (sentence,) = read_import(text, MOST).values()
    assert said in sentence
    assert re.fullmatch(r"[^\n]{1,240}\.", sentence)
