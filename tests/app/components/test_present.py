"""Presenter mode in a real browser, without a network: driven to its end, stepped back, left."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from browser import needs_browser, playwright, visiting
from explain_page import document

from app.ui.recordings import FOLDER, read_value
from mars_runtime import folds
from mars_runtime.speedup import run_speedup

RACE = read_value((FOLDER / "palindrome.txt").read_text("utf-8"))
"""The recording of the first stop."""
DIALOG = "dialog.mars-present"
OVER = f"{DIALOG}[data-over=true]"
Open = Callable[..., "playwright.Page"]

pytestmark = needs_browser


@pytest.fixture
def tour() -> Iterator[Open]:
    """A page of its own with the network off, the tour open; nothing may fail or be asked for."""
    with visiting() as take:

        def open_tour(motion: str = "reduce", width: int = 1440) -> playwright.Page:
            page = take("about:blank")
            page.emulate_media(reduced_motion=motion)
            page.set_viewport_size({"width": width, "height": 900})
            page.set_content(document())
            page.context.set_offline(True)
            page.click("#present")
            return page

        yield open_tour


def place(page: playwright.Page) -> tuple[int, int]:
    data = page.evaluate(f"({{...document.querySelector('{DIALOG}').dataset}})")
    return int(data["stop"]), int(data["beat"])


TEXT = """(n) => [...document.querySelectorAll(".pr-lane")[n].querySelectorAll(".rv-t")]
  .filter((t) => !t.closest("[hidden]")).map((t) => t.textContent).join("")"""


def wait_text(page: playwright.Page, lane: int, text: str) -> None:
    """Until a lane shows this text: a long one takes some frames."""
    page.wait_for_function(f"([n, text]) => ({TEXT})(n) === text", arg=[lane, text])


def recorded_text(name: str, lane: str) -> str:
    return folds.text(read_value((FOLDER / f"{name}.txt").read_text("utf-8"))[lane])


@pytest.mark.parametrize("width", [390, 1440])
def test_the_space_bar_drives_the_tour_to_its_end_offline(tour: Open, width: int) -> None:
    page = tour(width=width)
    passes = [folds.num_forwards(RACE[lane].events) for lane in ("mars", "ar")]
    text = page.locator(".pr-count").all_inner_texts()
    counts = [int(*re.findall(r"^(\d+) pass", item)) for item in text]
    assert counts == [min(max(counts), num) for num in passes]  # as many passes of each
    said = page.inner_text(".pr-says")
    assert "A token is a word or a part of one" in said
    assert "A forward pass is one evaluation of the whole model" in said
    headlines, places = [], []
    while True:
        places.append(place(page))
        headlines.append(page.inner_text("#pr-headline"))
        assert page.locator(f"{DIALOG} .pr-stage > *").count()
        assert page.evaluate(f"document.querySelector('{DIALOG}').scrollWidth") <= width
        if places[-1] == (0, 1):
            wait_text(page, 0, recorded_text("palindrome", "mars"))
            wait_text(page, 1, recorded_text("palindrome", "ar"))
        assert page.inner_text(".pr-model") in ("mars-smollm2", "mars-tiny")
        if page.locator(OVER).count():
            break
        page.keyboard.press(" ")
    assert places == sorted(set(places))
    assert [stop for stop, beat in places if beat == 0] == list(range(len(set(headlines))))
    assert len(set(headlines)) <= 8
    page.keyboard.press(" ")
    assert place(page) == places[-1]
    page.keyboard.press("ArrowLeft")
    assert place(page) == places[-2]


def test_notes_are_in_a_window_of_their_own_that_follows_and_drives_the_tour(tour: Open) -> None:
    page = tour()
    with page.expect_popup() as opened:
        page.keyboard.press("n")
    notes = opened.value
    first = notes.inner_text("body")
    assert "Ask the audience" in first
    assert "Ask the audience" not in page.inner_text(DIALOG)
    notes.keyboard.press("PageDown")
    assert place(page) == (0, 1)
    notes.keyboard.press("PageDown")
    assert place(page)[0] == 1
    assert notes.inner_text("body") not in ("", first)
    with notes.expect_event("close"):
        page.keyboard.press("n")


def test_the_big_figure_is_passes_folded_from_the_run_that_was_shown(tour: Open) -> None:
    page = tour()
    for _ in range(2):
        page.keyboard.press("PageDown")
    mars, ar = (folds.num_forwards(trace.events) for trace in RACE.values())
    assert page.inner_text(".pr-figure").split() == f"{mars} passes instead of {ar}".split()
    num_tokens = folds.num_tokens(RACE["mars"].events)
    assert page.inner_text(".pr-passes") == f"for the same {num_tokens} tokens."
    result = run_speedup(*(trace.events for trace in RACE.values()))
    seconds = page.locator(".pr-figureline", has_text="On this machine")
    assert seconds.count() == (result.kind == "faster")
    if seconds.count():
        (number,) = re.findall(r"machine: ([\d.]+) times", seconds.inner_text())
        assert float(number) == pytest.approx(result.reported, rel=0.05)
    assert "Recorded 2" in page.inner_text(".pr-stage")
    page.keyboard.press("PageUp")
    lanes = f"document.querySelector('{DIALOG}').presenter.scene.columns"
    page.evaluate(f"{lanes}[0].lane.steps.length = 40")  # as a live run of fewer forwards would be
    page.keyboard.press("PageDown")
    assert page.inner_text(".pr-figure").startswith("40")


def test_it_keeps_the_focus_and_gives_it_back(tour: Open) -> None:
    page = tour()
    inside = f"Boolean(document.activeElement.closest('{DIALOG}'))"
    assert page.evaluate(inside)
    for _ in range(12):
        page.keyboard.press("Tab")
        assert page.evaluate(f"{inside} || document.activeElement === document.body")
    page.focus(f"{DIALOG} .pr-next")
    page.evaluate("document.querySelector('.ex-toc a').focus()")
    assert page.evaluate(inside), "what is behind can be reached"
    assert page.locator("button", has_text="Run it live").is_hidden()
    page.keyboard.press("Escape")
    page.wait_for_selector(DIALOG, state="detached")
    assert page.evaluate("document.activeElement.id") == "present"
