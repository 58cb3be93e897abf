"""Committed recordings against what is said of them: the slides of the talk, the opening view, the
list of recordings and the pictures of the README.

Where one of these fails, the recording contradicts its words. ``python -m tools.record_runs`` makes
the recordings again, on a quiet machine, ``python tools/pictures.py`` the pictures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from app.ui.assets import ASSETS
from app.ui.controls import DEFAULTS
from app.ui.recordings import FOLDER, load, read_value
from app.ui.results import RESULTS
from mars_runtime import folds
from mars_runtime.events import Event
from mars_runtime.speedup import NEAR, Speedup, run_speedup

STOPS = (ASSETS / "web" / "tour" / "stops.js").read_text("utf-8")
README = (ASSETS.parent / "README.md").read_text("utf-8")


@dataclass(frozen=True)
class Race:
    """Return the recording of a method next to plain AR."""

    events: list[Event]
    ar: list[Event]

    @property
    def parting(self) -> int | None:
        """The first token that differs; None for the same text."""
        return folds.first_divergence(self.events, self.ar)

    @property
    def passes(self) -> tuple[int, int]:
        """Of the method, and of AR."""
        return folds.num_forwards(self.events), folds.num_forwards(self.ar)

    @property
    def speedup(self) -> Speedup:
        """As the page shows it."""
        return run_speedup(self.events, self.ar)


def race(name: str) -> Race:
    lanes = read_value((FOLDER / f"{name}.txt").read_text("utf-8"))
    return Race(list(lanes["mars"].events), list(lanes["ar"].events))


def is_same_text(race: Race) -> None:
    """AR's text, token for token, which came to its end and does not repeat itself."""
    assert folds.accepted_tokens(race.events) == folds.accepted_tokens(race.ar)
    for events in (race.events, race.ar):
        assert folds.end(events).reason in ("eos", "limit")
        assert folds.loops_at(events) is None


def wins(race: Race) -> None:
    """The same text in fewer passes by a factor of 1.3 at least, and in less time: what the page
    shows is a number, "1.1 times as fast" or more, not "about as fast" or "not measured"."""
    is_same_text(race)
    mars, ar = race.passes
    assert 1.3 * mars <= ar
    assert race.speedup.reported is not None, race.speedup
    assert race.speedup.ratio >= NEAR, race.speedup


def differs(race: Race) -> None:
    assert race.parting is not None


def is_not_faster(race: Race) -> None:
    """The same text, but no gain in time."""
    is_same_text(race)
    assert race.speedup.kind in ("same", "slower"), race.speedup
    assert race.speedup.ratio < NEAR


def stops_at_the_threshold(race: Race) -> None:
    """A pass took several tokens and refused the next one."""
    steps = [step for step, _ in folds.row_steps(race.events)]
    assert any(step.stop == "threshold" and len(step.accepted) > 1 for step in steps)


Claim = Callable[[Race], None]
SHOWN: dict[str, tuple[Claim, ...]] = {
    "rewrite": (is_not_faster,),
    "palindrome": (wins,),
    "dial-95": (),
    "dial-70": (stops_at_the_threshold,),
    "dial-50": (differs,),
    "dial-lossless": (is_same_text,),
    "lossless": (is_same_text,),
}
"""Checks of what the title, the reason or the slide of a recording claims."""


@pytest.mark.parametrize(
    ("name", "claim"), [(name, claim) for name, claims in SHOWN.items() for claim in claims]
)
def test_a_recording_shows_what_is_said_of_it(name: str, claim: Claim) -> None:
    claim(race(name))


def test_the_offered_prompts_were_measured_to_end_with_ars_text_in_fewer_passes() -> None:
    (offered,) = re.findall(r"prompts: \[(.+?)\]", STOPS, re.DOTALL)
    measured = json.loads((RESULTS / "page_examples.json").read_text("utf-8"))["requests"]
    actual = {row["prompt"]: row["lossless"] for row in measured}
    prompts = re.findall(r'"(.+?)"', offered)
    assert len(prompts) == 3
    for prompt in prompts:
        assert actual[prompt]["leaves"] is None
        assert actual[prompt]["num_tokens"] < DEFAULTS.max_new_tokens
        assert actual[prompt]["tpf"] >= 1.3


def test_the_page_opens_on_a_race_that_mars_wins_and_the_readme_shows_it() -> None:
    (first, *_) = load()
    assert wins in SHOWN[first.name]
    moving, still = (
        list(map(int, re.findall(r"\d+", said)))
        for kind in ("gif", "png")
        for said in re.findall(rf"!\[(.+?)\]\(assets/screenshots/live\.{kind}\)", README)
    )
    shown = race(first.name)
    assert moving == [folds.num_tokens(shown.events), *shown.passes]
    mars, ar = still
    assert mars < ar
