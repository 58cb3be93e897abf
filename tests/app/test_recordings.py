"""Recordings: the reader takes what the recorder writes; the bundled ones show what they say."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import sample_traces as samples

from app.ui.examples import REQUESTS
from app.ui.imported_runs import read_import
from app.ui.recordings import FOLDER, RecordingsError, first, load, read_value
from mars_runtime.files.paths import ASSETS
from mars_runtime.runs import folds
from mars_runtime.runs.speedup import NEAR_RATIO, run_speedup
from mars_runtime.runs.trace import Trace
from mars_runtime.settings import DecodeSettings
from tools.record_runs import SCENARIOS, write_runs


def test_what_the_recorder_writes_the_reader_takes(random_folder: Path, tmp_path: Path) -> None:
    """A dozen tokens of random weights."""
    settings = replace(SCENARIOS[0].settings, max_new_tokens=12, block_size=2)
    scenario = replace(SCENARIOS[0], settings=settings, checkpoint=str(random_folder))
    write_runs(tmp_path, [scenario])
    (recording,) = load(tmp_path)
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
    checkpoints = ("mars-tiny", "mars-smollm2")
    assert [recording.checkpoint for recording in map(first, checkpoints)] == [*checkpoints]
    assert first("other") == first() == bundled[0]


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


STOPS = (ASSETS / "web" / "tour" / "stops.js").read_text("utf-8")
README = (ASSETS.parent / "README.md").read_text("utf-8")


class Race:
    """The recording of a method next to plain AR."""

    def __init__(self, name: str) -> None:
        lanes = read_value((FOLDER / f"{name}.txt").read_text("utf-8"))
        self.events, self.ar = list(lanes["mars"].events), list(lanes["ar"].events)
        self.passes = folds.num_forwards(self.events), folds.num_forwards(self.ar)


@pytest.mark.parametrize("name", ["sort-words", "area", "average"])
def test_a_recording_saves_passes(name: str) -> None:
    """AR's text, token for token, in at most 70 % of the passes; it came to its end and does not
    repeat itself."""
    race = Race(name)
    assert folds.accepted_tokens(race.events) == folds.accepted_tokens(race.ar)
    for events in (race.events, race.ar):
        assert folds.end(events).reason in ("eos", "limit")
        assert folds.loops_at(events) is None
    mars, ar = race.passes
    assert mars <= 0.7 * ar


def test_the_offered_prompts_are_first_examples() -> None:
    (offered,) = re.findall(r"prompts: \[(.+?)\]", STOPS, re.DOTALL)
    prompts = re.findall(r'"(.+?)"', offered)
    assert prompts == [family.prompts[0] for family in list(REQUESTS.values())[: len(prompts)]]


def test_the_page_opens_on_a_race_that_mars_wins_and_the_readme_shows_it() -> None:
    """In less time too: what the page shows is a number, "1.1 times as fast" or more."""
    first, shown = load()[0], Race("sort-words")
    assert first.name == "sort-words"
    speedup = run_speedup(shown.events, shown.ar)
    assert speedup.reported is not None, speedup
    assert speedup.ratio >= NEAR_RATIO, speedup
    assert any(step.stop == "mismatch" for step, _ in folds.row_steps(shown.events))
    moving, still = (
        list(map(int, re.findall(r"\d+", said)))
        for kind in ("gif", "png")
        for said in re.findall(rf"!\[(.+?)\]\(assets/screenshots/live\.{kind}\)", README)
    )
    assert moving == [folds.num_tokens(shown.events), *shown.passes]
    mars, ar = still
    assert mars < ar
