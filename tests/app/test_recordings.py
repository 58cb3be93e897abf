"""Recordings: the reader takes what the recorder writes; the bundled ones show what they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import sample_traces as samples

from app.record import SCENARIOS, Scenario
from app.recordings import Recording, RecordingsError, load, measured, read_value
from app.run_log import RunLog
from mars_runtime import folds
from mars_runtime.events import Step
from mars_runtime.trace import Trace
from tests import trace_folds

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
    from app.record import Recorder, write
    from mars_runtime.engine.engine import Engine
    from mars_runtime.model.load import load_checkpoint

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
