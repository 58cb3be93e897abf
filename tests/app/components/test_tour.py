"""How it works and the presentation in a real browser, on a page with nothing to fetch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from browser import needs_browser, playwright, settle, visiting

from app.ui import assets
from app.ui.recordings import FOLDER, read_value, recorded
from app.ui.views import ExplainView
from mars_runtime.display import web
from mars_runtime.runs import folds

pytestmark = needs_browser
DIALOG = "dialog.mars-present"
DIAL = "[data-picture=dial]"
DOCUMENT = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>How it works</title>
<meta name="viewport" content="width=device-width">
<script type="application/json" id="mars-recorded">{}</script>{}</head><body>
<main><button id="present" onclick="mars.mountPresenter()">Present</button>{}</main>
<script>mars.mountExplain(document.body);</script></body></html>"""
NUM_CUT = """() => [...document.querySelectorAll(".mars-present .rv-text")].flatMap((text) => {
  const edges = ["top", "bottom"].map((side) => text.getBoundingClientRect()[side]);
  const lines = [...text.querySelectorAll(".rv-t")].flatMap((node) => [...node.getClientRects()]);
  return lines.filter(({ top, bottom }) =>
    edges.some((edge) => top + 1 < edge && edge < bottom - 1));
}).length"""
Open = Callable[..., "playwright.Page"]


@pytest.fixture
def arrive() -> Iterator[Open]:
    """Open the page with the network off; nothing may fail or be asked for."""
    with visiting() as take:

        def open_page(width: int = 1440, height: int = 900) -> playwright.Page:
            page = take("about:blank")
            page.set_viewport_size({"width": width, "height": height})
            parts = recorded(), assets.head(), web.template(ExplainView.page)
            page.set_content(DOCUMENT.format(*parts))
            page.context.set_offline(True)
            return page

        yield open_page


def test_the_pictures_of_a_pass_and_a_threshold(arrive: Open) -> None:
    page = arrive()
    page.wait_for_selector(f"{DIAL} .ex-rung")
    counts = []
    for tau in ("1", "0.5", "0"):
        page.fill(f"{DIAL} input", tau)
        counts.append(page.locator(f"{DIAL} :is([data-kind=kept], [data-kind=wrong])").count())
    assert counts == sorted(counts)
    assert counts[0] < counts[-1] == page.locator(f"{DIAL} .ex-rung").count()
    before = page.inner_text("[data-picture=ladder] .ex-where")
    page.click("[data-picture=ladder] button >> nth=1")
    assert page.inner_text("[data-picture=ladder] .ex-where") != before


def place(page: playwright.Page) -> tuple[int, int]:
    data = page.evaluate(f"({{...document.querySelector('{DIALOG}').dataset}})")
    return int(data["stop"]), int(data["beat"])


def passes(name: str) -> list[int]:
    lanes = read_value((FOLDER / f"{name}.txt").read_text("utf-8"))
    return [folds.num_forwards(trace.events) for trace in lanes.values()]


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 720)])
def test_space_drives_six_slides_offline(arrive: Open, width: int, height: int) -> None:
    page = arrive(width, height)
    page.click("#present")
    places, counts = [], {}
    while True:
        places.append(place(page))
        assert page.locator(f"{DIALOG} .pr-stage > *").count()
        assert page.evaluate(f"document.querySelector('{DIALOG}').scrollWidth") <= width
        settle(page)  # texts that were resized are scrolled when the next frame is painted
        assert not page.evaluate(NUM_CUT)
        said = page.locator(".pr-count b").all_inner_texts()
        counts[places[-1][0]] = [int(*re.findall(r"^(\d+) pass", item)) for item in said]
        if page.locator(f"{DIALOG}[data-over=true]").count():
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


def test_notes_follow_and_the_dialog_keeps_the_focus(arrive: Open) -> None:
    page = arrive()
    page.click("#present")
    with page.expect_popup() as opened:
        page.keyboard.press("n")
    notes = opened.value
    first = notes.inner_text("body")
    assert first not in page.inner_text(DIALOG)
    notes.keyboard.press("PageDown")
    assert place(page) == (0, 1)
    notes.keyboard.press("PageDown")
    assert place(page)[0] == 1
    assert notes.inner_text("body") not in ("", first)
    with notes.expect_event("close"):
        page.keyboard.press("n")
    inside = f"Boolean(document.activeElement.closest('{DIALOG}'))"
    for _ in range(12):
        assert page.evaluate(f"{inside} || document.activeElement === document.body")
        page.keyboard.press("Tab")
    assert page.locator(".pr-golive").is_hidden()
    page.keyboard.press("Escape")
    page.wait_for_selector(DIALOG, state="detached")
    assert page.evaluate("document.activeElement.id") == "present"
