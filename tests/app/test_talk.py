"""Committed recordings show what slides and README say (``python -m tools.record_runs``)."""

from __future__ import annotations

import re

import pytest

from app.ui.examples import REQUESTS
from app.ui.recordings import FOLDER, load, read_value
from mars_runtime.files.paths import ASSETS
from mars_runtime.runs import folds
from mars_runtime.runs.speedup import NEAR_RATIO, run_speedup

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
