"""Recordings: the reader takes what the recorder writes; the bundled ones show what they say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import sample_traces as samples

from app.ui.imported_runs import read_import
from app.ui.recordings import Recording, RecordingsError, load, measured, read_value
from app.ui.run_log import RunLog
from mars_runtime import folds
from mars_runtime.events import Step
from mars_runtime.settings import DecodeSettings
from mars_runtime.trace import Trace
from tests import trace_folds
from tools.record_runs import SCENARIOS, Scenario

WANTED = {"python", "tau-moved", "block-cache"}


def short(scenario: Scenario) -> Scenario:
    """The scenario with a dozen tokens a lane, and its moves early enough for that."""
    lanes = tuple(
        replace(
            lane,
            settings=replace(lane.settings, max_new_tokens=12, block_size=2),
            moves=tuple(replace(m, num_tokens=2 + 6 * n) for n, m in enumerate(lane.moves)),
        )
        for lane in scenario.lanes
    )
    return replace(scenario, lanes=lanes)


@pytest.fixture(scope="module")
def recorded(random_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recording]:
    """Some of the scenarios, recorded on random weights."""
    from mars_runtime.engine.engine import Engine
    from mars_runtime.model.load import load_checkpoint
    from tools.record_runs import Recorder, write

    folder = tmp_path_factory.mktemp("recordings")
    checkpoint = load_checkpoint(str(random_folder))
    scenarios = [short(scenario) for scenario in SCENARIOS if scenario.name in WANTED]
    with Engine(checkpoint) as engine:
        recorder = Recorder(checkpoint, engine)
        assert set(write(folder, scenarios, lambda name: recorder)) == WANTED
    return {recording.name: recording for recording in load(folder)}


def test_what_the_recorder_writes_the_reader_takes(recorded: dict[str, Recording]) -> None:
    assert set(recorded) == WANTED
    for recording in recorded.values():
        traces = recording.traces()
        assert set(traces) == set(recording.settings)
        for trace in traces.values():
            assert trace.header.prompt == recording.prompt
            assert folds.end(trace.events) is not None
            assert folds.decode_seconds(trace.events) > 0
        assert '"recorded":"20' in recording.value.splitlines()[0]


def test_a_move_is_recorded_where_it_was_planned(recorded: dict[str, Recording]) -> None:
    trace = recorded["tau-moved"].traces()["mars"]
    there, back = trace_folds.tau_moves(trace.events)
    assert (there.after.tau, back.after.tau) == (0.5, 0.95)
    steps = [step for step, _ in folds.row_steps(trace.events)]
    assert 2 <= steps[there.step].start < 8 <= steps[back.step].start


def test_recordings_tell_what_ar_would_have_chosen() -> None:
    bundled = {recording.name: recording for recording in load()}
    for name in ("python", "tau-moved"):
        events = bundled[name].traces()["mars"].events
        assert any(step.checks for step, _ in folds.row_steps(events)), name


def commits(trace: Trace) -> int:
    return sum(1 for event in trace.events if isinstance(event, Step) and event.is_commit)


def test_the_bundled_recordings_show_what_they_say() -> None:
    bundled = {recording.name: recording for recording in load()}
    assert list(bundled) == [scenario.name for scenario in SCENARIOS]
    for name, recording in bundled.items():
        assert measured(recording).num_tokens > 10, name
        assert all(
            folds.end(t.events).reason in ("eos", "limit") for t in recording.traces().values()
        )
    lossless = [folds.text(trace) for trace in bundled["lossless"].traces().values()]
    assert lossless[0] == lossless[1]
    moved = bundled["tau-moved"].traces()["mars"].events
    assert [move.after.tau for move in trace_folds.tau_moves(moved)] == [0.5, 0.95]
    cursor, block = bundled["block-cache"].traces().values()
    assert commits(cursor) == 0 < commits(block)
    assert measured(bundled["python"]).tpf > 2
    assert sum(len(recording.value) for recording in bundled.values()) < 800_000


def test_what_a_recording_measured_is_folded_from_its_lanes() -> None:
    both = samples.lanes(samples.Script(samples.CODE))
    made = RunLog({"run": "code", "lanes": [{"lane": name, "title": name} for name in both]})
    for name, lines in both.items():
        for line in lines:
            made.add(name, line)
    recording = Recording("code", "Code", "why", "Write.", {}, made.whole())
    mars, plain = map(samples.read, both.values())
    found = measured(recording)
    assert found.tpf == folds.num_tokens(mars.events) / folds.num_forwards(mars.events)
    speeds = [folds.tokens_per_second(trace.events) for trace in (mars, plain)]
    assert found.speedup == pytest.approx(speeds[0] / speeds[1])


def test_a_folder_or_value_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RecordingsError, match="record --out"):
        load(tmp_path)
    for value in ("", "{}\n", '{"lanes":[{"lane":"mars","title":"M"}]}\nmars\t{"type":"step"}\n'):
        with pytest.raises(RecordingsError, match="cannot be read"):
            read_value(value)


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
