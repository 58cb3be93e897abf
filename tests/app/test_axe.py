"""axe-core on every tab of the real page, in both themes, before a run and after it.

Skipped where Debian's chromium or axe is not installed. Nothing here needs weights.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from batch_page import make_page
from browser import chromium, needs_browser, playwright

axe_playwright = pytest.importorskip("axe_playwright_python.sync_playwright")
pytestmark = needs_browser

RULES = {"runOnly": ["wcag2a", "wcag2aa"], "resultTypes": ["violations"]}
RUNS = {
    "Live": ("#run", "#race .mars-race[data-state=finished]"),
    "Batch": ("#batch-run", "#batch .mars-batch[data-phase=finished]"),
    "Grid": ("#grid-run", "#grid .mars-grid[data-phase=finished]"),
}
"""Tab -> what runs in it, and what says that it has."""
TABS = ".tab-container:visible > [role=tab]"
"""Gradio's own, those within a view apart."""
INNER = ".mars-race [role=tab]:visible"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from app.layout import serve

    handlers, backend = make_page(tmp_path_factory.mktemp("page"), port=0)
    backend.forward_seconds = 0.0
    page = serve(handlers, is_blocking=False)
    yield page.local_url
    page.close()
    handlers.engines.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright.Browser]:
    with chromium() as launched:
        yield launched


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_serious_violation_on_any_tab(
    browser: playwright.Browser, address: str, theme: str
) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, reduced_motion="reduce")
    context.set_default_timeout(90_000)
    page = context.new_page()
    page.goto(f"{address}?__theme={theme}")
    page.wait_for_selector("#race .mars-race")
    tabs = page.locator(TABS).all_inner_texts()
    assert set(RUNS) <= set(tabs)
    found = []
    for tab in tabs:
        page.locator(TABS, has_text=tab).click()
        found += violations(page, f"{tab}, opened")
        if tab in RUNS:
            button, finished = RUNS[tab]
            page.click(button)
            page.wait_for_selector(finished)
            if tab == "Grid":
                page.click("#grid [data-cell=r0c0]")
                page.wait_for_selector("#grid-race .mars-race[data-state=finished]")
            found += violations(page, f"{tab}, after a run")
        for inner in page.locator(INNER).all()[1:]:
            inner.click()
            found += violations(page, f"{tab}, {inner.inner_text()}")
    context.close()
    assert not found, "\n".join(found)


def violations(page: playwright.Page, where: str) -> list[str]:
    """What axe calls serious or critical, a line for each element."""
    response = axe_playwright.Axe().run(page, options=RULES).response
    assert response["testEngine"]["name"] == "axe-core"
    return [
        f"{where}: {violation['id']} at {node['target']}: {node['failureSummary']}"
        for violation in response["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


def test_axe_finds_what_is_wrong(browser: playwright.Browser) -> None:
    page = browser.new_page()
    page.set_content('<html lang="en"><title>t</title><p style="color:#bbb">pale</p><img src="x">')
    found = violations(page, "a bad page")
    page.close()
    assert any("color-contrast" in line for line in found)
    assert any("image-alt" in line for line in found)
