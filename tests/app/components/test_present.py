"""Presenter mode in a real browser, without a network: driven to its end, stepped back, left."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from browser import needs_browser, playwright, visiting
from explain_page import document

from app.ui.recordings import FOLDER, read_value
from mars_runtime.runs import folds

DIALOG = "dialog.mars-present"
OVER = f"{DIALOG}[data-over=true]"
Open = Callable[..., "playwright.Page"]

pytestmark = needs_browser


@pytest.fixture
def tour() -> Iterator[Open]:
    """A page of its own with the network off, the tour open; nothing may fail or be asked for."""
    with visiting() as take:

        def open_tour(width: int = 1440, height: int = 900) -> playwright.Page:
            page = take("about:blank")
            page.emulate_media(reduced_motion="reduce")
            page.set_viewport_size({"width": width, "height": height})
            page.set_content(document())
            page.context.set_offline(True)
            page.click("#present")
            return page

        yield open_tour


def place(page: playwright.Page) -> tuple[int, int]:
    data = page.evaluate(f"({{...document.querySelector('{DIALOG}').dataset}})")
    return int(data["stop"]), int(data["beat"])


def passes(name: str) -> list[int]:
    lanes = read_value((FOLDER / f"{name}.txt").read_text("utf-8"))
    return [folds.num_forwards(trace.events) for trace in lanes.values()]


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 720)])
def test_the_space_bar_drives_six_slides_to_their_end_offline(
    tour: Open, width: int, height: int
) -> None:
    page = tour(width, height)
    places, counts = [], {}
    while True:
        places.append(place(page))
        assert page.locator(f"{DIALOG} .pr-stage > *").count()
        assert page.evaluate(f"document.querySelector('{DIALOG}').scrollWidth") <= width
        assert page.inner_text(".pr-model") in ("mars-smollm2", "mars-tiny")
        said = page.locator(".pr-count b").all_inner_texts()
        counts[places[-1][0]] = [int(*re.findall(r"^(\d+) pass", item)) for item in said]
        if page.locator(OVER).count():
            break
        page.keyboard.press(" ")
    assert places == sorted(set(places))
    assert [stop for stop, beat in places if beat == 0] == list(range(6))
    assert counts[1] == passes("average")[:2]
    assert counts[4] == passes("average")
    assert counts[5] == passes("area")
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


def test_it_keeps_the_focus_and_gives_it_back(tour: Open) -> None:
    page = tour()
    inside = f"Boolean(document.activeElement.closest('{DIALOG}'))"
    for _ in range(12):
        assert page.evaluate(f"{inside} || document.activeElement === document.body")
        page.keyboard.press("Tab")
    page.evaluate("document.querySelector('.mars-explain a').focus()")
    assert not page.evaluate("document.activeElement.matches('.mars-explain a')")
    assert page.locator(".pr-golive").is_hidden()
    page.keyboard.press("Escape")
    page.wait_for_selector(DIALOG, state="detached")
    assert page.evaluate("document.activeElement.id") == "present"
