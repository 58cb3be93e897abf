"""Committed recordings against what is said of them: the slides of the talk, the opening view, the
list of recordings and the pictures of the README.

Where one of these fails, the recording contradicts its words. ``python -m tools.record_runs`` makes
the recordings again, on a quiet machine, ``python tools/pictures.py`` the pictures.
"""

from __future__ import annotations

import re
from collections.abc import Callable

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
        self.speedup = run_speedup(self.events, self.ar)


def saves_passes(race: Race) -> None:
    """AR's text, token for token, in at most 70 % of the passes; it came to its end and does not
    repeat itself."""
    assert folds.accepted_tokens(race.events) == folds.accepted_tokens(race.ar)
    for events in (race.events, race.ar):
        assert folds.end(events).reason in ("eos", "limit")
        assert folds.loops_at(events) is None
    mars, ar = race.passes
    assert mars <= 0.7 * ar


def wins(race: Race) -> None:
    """Also in less time: what the page shows is a number, "1.1 times as fast" or more."""
    saves_passes(race)
    assert race.speedup.reported is not None, race.speedup
    assert race.speedup.ratio >= NEAR_RATIO, race.speedup


def repairs_a_draft(race: Race) -> None:
    assert any(step.stop == "mismatch" for step, _ in folds.row_steps(race.events))


Claim = Callable[[Race], None]
SHOWN: dict[str, tuple[Claim, ...]] = {
    "sort-words": (wins, repairs_a_draft),
    "area": (saves_passes,),
    "average": (saves_passes,),
}
"""Checks of what the title, the reason or the slide of a recording claims."""


@pytest.mark.parametrize(
    ("name", "claim"), [(name, claim) for name, claims in SHOWN.items() for claim in claims]
)
def test_a_recording_shows_what_is_said_of_it(name: str, claim: Claim) -> None:
    claim(Race(name))


def test_the_offered_prompts_are_first_examples() -> None:
    (offered,) = re.findall(r"prompts: \[(.+?)\]", STOPS, re.DOTALL)
    prompts = re.findall(r'"(.+?)"', offered)
    assert prompts == [family.prompts[0] for family in list(REQUESTS.values())[: len(prompts)]]


def test_the_page_opens_on_a_race_that_mars_wins_and_the_readme_shows_it() -> None:
    (first, *_) = load()
    assert wins in SHOWN[first.name]
    moving, still = (
        list(map(int, re.findall(r"\d+", said)))
        for kind in ("gif", "png")
        for said in re.findall(rf"!\[(.+?)\]\(assets/screenshots/live\.{kind}\)", README)
    )
    shown = Race(first.name)
    assert moving == [folds.num_tokens(shown.events), *shown.passes]
    mars, ar = still
    assert mars < ar
