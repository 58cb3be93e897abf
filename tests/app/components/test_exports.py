"""Exports of a run match the page, as a table or a trace.

``test_replay_page.py`` and ``test_asks.py`` compare the replay page and the link with the page.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import race_scenes
from browser import needs_browser, playwright, see
from panel_browser import ROOT, VIEW, put, still_page

from mars_runtime.display import web

pytestmark = needs_browser
MENU = f"{ROOT} .rv-top .ex-menu"
SHOWN = f"""() => [...document.querySelectorAll("{ROOT} .rv-pane")].map((pane) => {{
  const texts = (root, what) => [...root.querySelectorAll(what)].map((node) => node.textContent);
  return {{
    about: texts(document.querySelector("{ROOT}"), ".rv-prompt, .rv-once, .rv-env"),
    head: texts(pane, ".rv-head > :not(button):not([hidden])"),
    text: texts(pane, ".rv-t").join(""), marked: texts(pane, ".rv-mark") }};
}})"""
SCENES = ["maths", "losslessdone", "emoji", "branch", "stopped", "plainar"]


@pytest.fixture(scope="module")
def page() -> Iterator[playwright.Page]:
    """The race view by itself."""
    with still_page() as made:
        yield made


def show(page: playwright.Page, scene: str) -> list[dict[str, Any]]:
    """Put a scene into the view; what its panes say."""
    page.evaluate(f"{VIEW}.read('')")
    *_, value = race_scenes.SCENES[scene]()
    put(page, value)
    return list(page.evaluate(SHOWN))


def saved(page: playwright.Page, kind: str, lane: int) -> str:
    """The file that the export menu gives of a lane."""
    page.locator(f"{MENU} > summary").click()
    with page.expect_download() as download:
        page.locator(f"{MENU} .ex-line").nth(lane).get_by_text(kind, exact=True).click()
    page.keyboard.press("Escape")
    return Path(download.value.path()).read_bytes().decode("utf-8-sig")


@pytest.mark.parametrize("scene", SCENES)
def test_a_table_and_a_trace_say_what_the_page_says(page: playwright.Page, scene: str) -> None:
    before = show(page, scene)
    figures = page.inner_text(f"{ROOT} .rv-figures")
    lanes = page.evaluate(f"{VIEW}.run.lanes.map(({{ name, title }}) => ({{ lane: name, title }}))")
    ends = page.evaluate(f"{VIEW}.run.lanes.map((lane) => lane.steps.at(-1).clock)")
    value = json.dumps({"run": "again", "lanes": lanes}) + "\n"
    for number, facts in enumerate(before):
        rows = list(csv.DictReader(io.StringIO(saved(page, "CSV", number), newline="")))
        pane = page.locator(f"{ROOT} .rv-pane").nth(number)
        assert len(rows) == int(pane.get_attribute("data-steps") or 0)
        num_tokens = int(pane.get_attribute("data-tokens") or 0)
        assert sum(int(row["accepted"]) for row in rows) == num_tokens
        assert "".join(row["text"].removeprefix("'") for row in rows) == facts["text"]
        assert float(rows[-1]["clock_s"]) == pytest.approx(ends[number], abs=1e-6)
        for line in saved(page, "JSONL", number).splitlines():
            value += f"{lanes[number]['lane']}\t{line}\n"
    put(page, value)
    after = page.evaluate(SHOWN)
    for facts in (*before, *after):
        facts["head"] = [part for part in facts["head"] if part not in ("✓ right", "✗ wrong")]
    assert after == before  # a verdict is the page's, not the trace's
    assert page.inner_text(f"{ROOT} .rv-figures") == figures


def test_the_camera_of_a_chart_saves_a_picture() -> None:
    with still_page(plotly=web.plotly_file()) as page:
        show(page, "losslessdone")
        chart = page.locator(f"{ROOT} [data-chart=forwards] .js-plotly-plot")
        see(chart)
        buttons = chart.locator(".modebar-btn")
        titles = buttons.evaluate_all("all => all.map(({ dataset }) => dataset.title)")
        assert titles == ["Download plot as a PNG"]
        chart.hover()
        with page.expect_download() as download:
            buttons.first.click()
        picture = Path(download.value.path()).read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert len(picture) > 2000
