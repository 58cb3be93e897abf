"""Run axe-core on every tab of the real page."""

from __future__ import annotations

import pytest
from browser import Arrive, needs_browser, playwright
from live_page import open_tab, run, wait_loaded

axe_playwright = pytest.importorskip("axe_playwright_python.sync_playwright")
pytestmark = needs_browser

RULES = {"runOnly": ["wcag2a", "wcag2aa"], "resultTypes": ["violations"]}
CONTRAST = {**RULES, "runOnly": ["color-contrast"]}
READY = {
    "grid": "#grid .mars-grid[data-phase=finished] .main-svg >> nth=0",
    "throughput": "#throughput .mars-throughput[data-phase=finished] .tv-text span",
    "review": ".mars-review[data-phase=ready] .rv-pane >> nth=1",
}
"""View -> what is there when it shows its first result."""
TAB = ".tabitem"
"""What the chosen tab shows: the only one there."""
TRANSLATED = """document.querySelectorAll(
  ".rv-text, .rv-prompt, .rv-drawer, .tv-rows, .ct-turns, .rw-text, .rw-prompt"
).values().filter((node) => node.translate).map((node) => node.className).toArray()"""
"""Elements with text of prompts and models that a browser would translate."""
EMPTY = """document.querySelectorAll(".tabitem:not(:has(.tabitem))").forEach(
  (tab) => tab.replaceChildren())"""
"""Views that were looked at: axe would walk through them again with each that follows."""


@pytest.fixture
def page(arrive: Arrive, address: str) -> playwright.Page:
    opened = arrive(f"{address}?__theme=light&max_new_tokens=12")
    wait_loaded(opened)
    return opened


def test_no_serious_violation_on_any_tab_with_its_result(page: playwright.Page) -> None:
    run(page, "Say it.")
    problems = violations(page, "the whole page")
    page.evaluate(SWITCH)
    problems += violations(page, "live, in the other theme", TAB, CONTRAST)
    page.click("#race .rv-t >> nth=0")
    problems += violations(page, "live, the drawer", within="#race .rv-drawer")
    for tab, selector in READY.items():
        page.evaluate(EMPTY)
        open_tab(page, tab)
        page.wait_for_selector(selector)
        problems += violations(page, tab, TAB)
        page.evaluate(SWITCH)
        problems += violations(page, tab, TAB, CONTRAST)
    page.click(".mars-review :text('Blind')")
    problems += violations(page, "review, blind", within=TAB)
    assert not problems, "\n".join(problems)


SWITCH = """async () => {
    document.body.classList.toggle("dark");
    await Promise.all(document.getAnimations().map((each) => each.finished.catch(() => {})));
}"""


def violations(page, where: str, within: str | None = None, rules=RULES) -> list[str]:
    """What is serious or critical, and text of models that a browser would translate."""
    given = {"axe_script": ""} if page.evaluate("'axe' in window") else {}  # it need come but once
    response = axe_playwright.Axe(**given).run(page, within, rules).response
    assert response["testEngine"]["name"] == "axe-core"
    translated = [f"{where}: {name} is translated" for name in page.evaluate(TRANSLATED)]
    return translated + [
        f"{where}: {violation['id']} at {node['target']}: {node['failureSummary']}"
        for violation in response["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
