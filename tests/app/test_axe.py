"""Run axe-core on every tab of the real page, in both themes, before and after a run.

The themes differ in colour only: each state is checked by every rule in one theme, and for contrast
in the other on the same page. Skipped if Debian's chromium or axe is not installed. Nothing here
needs weights.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from batch_page import make_page
from browser import Arrive, needs_browser, playwright
from live_page import open_tab
from scripted_page import page_served

axe_playwright = pytest.importorskip("axe_playwright_python.sync_playwright")
pytestmark = needs_browser

RULES = {"runOnly": ["wcag2a", "wcag2aa"], "resultTypes": ["violations"]}
CONTRAST = {**RULES, "runOnly": ["color-contrast"]}
RUNS = {
    "live": ("#run", "#race .mars-race[data-state=finished]:not(:has(.rv-recorded:visible))"),
    "throughput": (
        "#throughput-run",
        "#throughput .mars-throughput[data-phase=finished][data-recorded-run=false]",
    ),
    "grid": ("#grid-run", "#grid .mars-grid[data-phase=finished][data-recorded-run=false]"),
}
"""View -> the button that starts a run, and the selector of that run when it has finished."""
VIEWS = ("live", "grid", "throughput", "review")
TAB = ".tabitem"
"""What the chosen tab shows: the only one there."""
TRANSLATED = """document.querySelectorAll(
  ".rv-text, .rv-prompt, .rv-drawer, .tv-rows, .ct-turns, .rw-text, .rw-prompt"
).values().filter((node) => node.translate).map((node) => node.className).toArray()"""
"""Elements with text of prompts and models that a browser would translate."""
EMPTY = """document.querySelectorAll(".tabitem:not(:has(.tabitem))").forEach(
  (tab) => tab.replaceChildren())"""
"""Views that were looked at: axe would walk through them again with each that follows."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    handlers, backend = make_page(tmp_path_factory.mktemp("page"), port=0, max_new_tokens=12)
    backend.forward_seconds = 0.005
    with page_served(handlers) as url:
        yield url


@pytest.fixture
def page(arrive: Arrive, address: str) -> playwright.Page:
    opened = arrive(f"{address}?__theme=light")
    opened.wait_for_selector("#race .mars-race")
    return opened


def test_no_serious_violation_on_any_tab_before_a_run_and_after(page: playwright.Page) -> None:
    problems = in_both_themes(page, "the whole page, at its first tab")
    for tab in VIEWS:
        open_tab(page, tab)
        if tab == "review":
            page.wait_for_selector(".mars-review[data-phase=ready] .rv-pane >> nth=1")
        if tab != VIEWS[0]:
            problems += in_both_themes(page, tab, within=TAB)
        if tab == "review":
            page.click(".mars-review :text('Blind')")
            problems += in_both_themes(page, "Review, blind", within=TAB)
        if tab in RUNS:
            problems += violations_after_a_run(page, tab)
        page.evaluate(EMPTY)
    assert not problems, "\n".join(problems)


def violations_after_a_run(page: playwright.Page, tab: str) -> list[str]:
    """Of the tab, and of what opens in it then."""
    button, finished = RUNS[tab]
    page.click(button)
    page.wait_for_selector(finished)
    problems = in_both_themes(page, f"{tab}, after a run", within=TAB)
    if tab == "live":
        page.click("#race .rv-t >> nth=0")
        problems += in_both_themes(page, f"{tab}, the drawer", within="#race .rv-drawer")
    return problems


SWITCH = """async () => {
    document.body.classList.toggle("dark");
    await Promise.all(document.getAnimations().map((each) => each.finished.catch(() => {})));
}"""
THEME = "document.body.classList.contains('dark') ? 'dark' : 'light'"


def in_both_themes(page: playwright.Page, where: str, within: str | None = None) -> list[str]:
    """Return the ``violations`` of a page in its current theme, and those of contrast in the other
    theme, which stays set: each switch redraws all charts.
    """
    problems = violations(page, f"{where}, {page.evaluate(THEME)}", within)
    page.evaluate(SWITCH)
    return problems + violations(page, f"{where}, {page.evaluate(THEME)}", within, CONTRAST)


def violations(
    page: playwright.Page,
    where: str,
    within: str | None = None,
    rules: dict[str, list[str]] = RULES,
) -> list[str]:
    """What axe calls serious or critical, and text of models that a browser would translate: a line
    for each element.
    """
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
