"""Exports of a run match the page, as a picture, a table or a trace.

``test_site.py`` and ``test_asks.py`` compare the replay page and the link with the page.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import race_scenes
from browser import needs_browser, playwright
from panel_browser import ROOT, VIEW, put, still_page

from mars_runtime import web

pytestmark = needs_browser
MENU = f"{ROOT} .rv-top .ex-menu"
# Return what a pane shows, with the prompt above it; of the page or of a picture.
FACTS = """
const text = (node) => (node ? node.textContent : "");
window.factsOf = (root, pane) => ({
  prompt: text(root.querySelector(".rv-prompt")), once: text(root.querySelector(".rv-once")),
  head: [...pane.querySelectorAll(".rv-head > :not(button):not([hidden])")].map(text),
  text: [...pane.querySelectorAll(".rv-t")].map(text).join(""),
  marked: [...pane.querySelectorAll(".rv-mark")].map(text),
  environment: text(root.querySelector(".rv-env")) });
window.pictures = [];
const { set } = Object.getOwnPropertyDescriptor(HTMLImageElement.prototype, "src");
Object.defineProperty(HTMLImageElement.prototype, "src",
  { set(url) { window.pictures.push(url); set.call(this, url); } });"""
SHOWN = f"""() => [...document.querySelectorAll("{ROOT} .rv-pane")].map(
  (pane) => window.factsOf(document.querySelector("{ROOT}"), pane))"""
DRAWN = """() => {
  const source = decodeURIComponent(window.pictures.at(-1).replace(/^[^,]*,/, ""));
  const picture = new DOMParser().parseFromString(source, "image/svg+xml");
  return window.factsOf(picture, picture.querySelector(".rv-pane"));
}"""
SVG = "{http://www.w3.org/2000/svg}"
SCENES = ["maths", "losslessdone", "emoji", "branch", "stopped", "plainar"]


@pytest.fixture(scope="module")
def page() -> Iterator[playwright.Page]:
    """The race view by itself, which remembers the pictures that it draws."""
    with still_page() as made:
        made.evaluate(FACTS)
        yield made


def show(page: playwright.Page, scene: str) -> list[dict[str, Any]]:
    """Put a scene into the view; what its panes say."""
    page.evaluate(f"{VIEW}.read('')")
    *_, value = race_scenes.SCENES[scene]()
    put(page, value)
    return list(page.evaluate(SHOWN))


def saved(page: playwright.Page, kind: str, lane: int) -> str | bytes:
    """The file that the export menu gives of a lane."""
    return chosen(page, page.locator(f"{MENU} .ex-line").nth(lane), kind)


def charts(page: playwright.Page, kind: str) -> str | bytes:
    """The file that it gives of the charts."""
    return chosen(page, page.locator(f"{MENU} .ex-line", has_text="Charts"), kind)


def chosen(page: playwright.Page, line: playwright.Locator, kind: str) -> str | bytes:
    page.locator(f"{MENU} > summary").click()
    with page.expect_download() as download:
        line.get_by_text(kind, exact=True).click()
    page.keyboard.press("Escape")
    content = Path(download.value.path()).read_bytes()
    return content if kind == "PNG" else content.decode("utf-8-sig")


@pytest.mark.parametrize("scene", SCENES)
def test_a_picture_a_table_and_a_trace_say_what_the_page_says(
    page: playwright.Page, scene: str
) -> None:
    before = show(page, scene)
    figures = page.inner_text(f"{ROOT} .rv-figures")
    lanes = page.evaluate(f"{VIEW}.run.lanes.map(({{ name, title }}) => ({{ lane: name, title }}))")
    ends = page.evaluate(f"{VIEW}.run.lanes.map((lane) => lane.steps.at(-1).clock)")
    assert f"{max(ends):.3f} s" in page.inner_text(f"{ROOT} .pl-position")
    value = json.dumps({"run": "again", "lanes": lanes}) + "\n"
    for number, facts in enumerate(before):
        assert facts["prompt"] == "Write."
        content = saved(page, "PNG", number)
        assert isinstance(content, bytes)
        assert content.startswith(b"\x89PNG")
        drawn = page.evaluate(DRAWN)
        assert drawn.pop("environment").startswith(facts["environment"])
        assert drawn == {name: facts[name] for name in drawn}
        assert scene != "losslessdone" or "same text" in drawn["head"]
        rows = list(csv.DictReader(io.StringIO(str(saved(page, "CSV", number)), newline="")))
        pane = page.locator(f"{ROOT} .rv-pane").nth(number)
        assert len(rows) == int(pane.get_attribute("data-steps") or 0)
        num_tokens = int(pane.get_attribute("data-tokens") or 0)
        assert sum(int(row["accepted"]) for row in rows) == num_tokens
        assert "".join(row["text"].removeprefix("'") for row in rows) == facts["text"]
        assert float(rows[-1]["clock_s"]) == pytest.approx(ends[number], abs=1e-6)
        for line in str(saved(page, "JSONL", number)).splitlines():
            value += f"{lanes[number]['lane']}\t{line}\n"
    put(page, value)
    after = page.evaluate(SHOWN)
    for facts in (*before, *after):
        facts["head"] = [part for part in facts["head"] if part not in ("✓ right", "✗ wrong")]
    assert after == before  # a verdict is the page's, not the trace's
    assert page.inner_text(f"{ROOT} .rv-figures") == figures


def test_charts_are_saved_with_what_they_show() -> None:
    with still_page(plotly=web.plotly_file()) as made:
        made.evaluate(FACTS)
        check_charts(made)


def check_charts(page: playwright.Page) -> None:
    panes = show(page, "losslessdone")
    settings = page.locator(f"{ROOT} .rv-pane .rv-settings >> nth=0").get_attribute("title")
    steps = page.evaluate(f"{VIEW}.run.lanes.map((lane) => lane.steps.length)")
    names = page.evaluate(f"{VIEW}.run.lanes.map((lane) => lane.title)")
    picture = ElementTree.fromstring(str(charts(page, "SVG")))
    texts = ["".join(text.itertext()) for text in picture.findall(f"{SVG}text")]
    assert len(picture.findall(f"{SVG}svg")) == 2
    assert texts[0] == f"“{panes[0]['prompt']}”"
    assert f"{names[0]}: {settings}" in texts[1]
    assert panes[0]["environment"] in texts[2]
    rows = list(csv.DictReader(io.StringIO(str(charts(page, "CSV")), newline="")))
    assert [sum(row["run"] == name for row in rows) for name in names] == steps
    assert bytes(charts(page, "PNG")).startswith(b"\x89PNG")
