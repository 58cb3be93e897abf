"""Exports of a run match the page, as a table or a trace."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import race_scenes
from browser import needs_browser, playwright
from race_browser import ROOT, VIEW, put

pytestmark = needs_browser
MENU = f"{ROOT} .rv-top .ex-menu"
SHOWN = f"""() => [...document.querySelectorAll("{ROOT} .rv-pane")].map((pane) => {{
  const texts = (root, what) => [...root.querySelectorAll(what)].map((node) => node.textContent);
  return {{
    about: texts(document.querySelector("{ROOT}"), ".rv-prompt, .rv-once, .rv-env, .rv-figures"),
    head: texts(pane, ".rv-head > :not(button, .rv-verdict):not([hidden])"),
    text: texts(pane, ".rv-t").join(""), marked: texts(pane, ".rv-mark"),
    steps: +pane.dataset.steps, tokens: +pane.dataset.tokens }};
}})"""


def saved(page: playwright.Page, kind: str, lane: int) -> str:
    """The file that the export menu gives of a lane."""
    page.locator(f"{MENU} > summary").click()
    with page.expect_download() as download:
        page.locator(f"{MENU} .ex-line").nth(lane).get_by_text(kind, exact=True).click()
    page.keyboard.press("Escape")
    return Path(download.value.path()).read_bytes().decode("utf-8-sig")


@pytest.mark.parametrize(
    "value",
    [
        race_scenes.finished(race_scenes.MATHS, right=True),
        race_scenes.finished(race_scenes.BRANCH),
        race_scenes.stopped(),
    ],
)
def test_a_table_and_a_trace_say_what_the_page_says(page: playwright.Page, value: str) -> None:
    put(page, value)
    before: list[dict[str, Any]] = page.evaluate(SHOWN)
    lanes = page.evaluate(f"{VIEW}.run.lanes.map(({{ name, title }}) => ({{ lane: name, title }}))")
    ends = page.evaluate(f"{VIEW}.run.lanes.map((lane) => lane.steps.at(-1).clock)")
    again = json.dumps({"run": "again", "lanes": lanes}) + "\n"
    for number, facts in enumerate(before):
        rows = list(csv.DictReader(io.StringIO(saved(page, "CSV", number), newline="")))
        assert len(rows) == facts["steps"]
        assert sum(int(row["accepted"]) for row in rows) == facts["tokens"]
        assert "".join(row["text"].removeprefix("'") for row in rows) == facts["text"]
        assert float(rows[-1]["clock_s"]) == pytest.approx(ends[number], abs=1e-6)
        for line in saved(page, "JSONL", number).splitlines():
            again += f"{lanes[number]['lane']}\t{line}\n"
    page.evaluate(f"{VIEW}.read('')")
    put(page, again)
    assert page.evaluate(SHOWN) == before
