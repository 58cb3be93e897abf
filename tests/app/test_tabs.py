"""Tabs have addresses, which Back, Forward and a reload follow; a tab keeps what it shows."""

from __future__ import annotations

import re

from browser import Arrive, needs_browser, playwright
from live_page import open_tab, over, wait_loaded

from app.ui.files import file_address
from app.ui.recordings import TABS

pytestmark = needs_browser
SHOWN = {
    "live": "#desk",
    "trade-off": "#grid-bar",
    "throughput": "#throughput-bar",
    "review": "#review",
}
STATES = {"grid": "#grid .mars-grid", "throughput": "#throughput .mars-throughput"}


def wait_shown(page: playwright.Page, view: str) -> None:
    page.locator(SHOWN[view]).wait_for(state="visible")
    others = [item for item in SHOWN if item != view]
    assert not any(page.locator(SHOWN[other]).is_visible() for other in others)


def test_every_view_has_an_address(arrive: Arrive, address: str) -> None:
    page = arrive(f"{address}#throughput")
    wait_shown(page, "throughput")
    page.reload()
    wait_shown(page, "throughput")
    for view in ("review", "live", "trade-off"):
        open_tab(page, view)
        wait_shown(page, view)
        assert page.evaluate("location.hash") == f"#{view}"
    for view in ("live", "review"):
        page.go_back()
        wait_shown(page, view)
    page.go_forward()
    wait_shown(page, "live")
    page.goto("about:blank")
    page.goto(f"{address}#ex-tau")
    page.locator("#explain").wait_for(state="visible")
    page.goto("about:blank")
    page.goto(f"{address}#stability=1")
    wait_shown(page, "live")
    page.wait_for_selector("#race [data-state=error]")
    assert "#stability=1" in page.inner_text("#race .rv-status")


def test_tabs_open_on_recordings_and_survive_a_reload(arrive: Arrive, address: str) -> None:
    page = arrive(f"{address}robots.txt")
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url.removeprefix(address)))
    page.goto(address)
    wait_loaded(page)
    assert not any(url.startswith(f"files/{tab}.txt") for tab in TABS for url in requested)
    for view, root in STATES.items():
        open_tab(page, view)
        page.wait_for_selector(f"{root}[data-phase=finished][data-recorded-run=true]")
        assert file_address(f"{view}.txt") in requested
        assert page.inner_text(f"{root} .rv-live") == ""
        saved = r"in (\d+ % (fewer|more)|as many) forward passes|\d+ passes instead of \d+"
        found = page.inner_text(f"{root} .rv-finding")
        assert view == "throughput" or re.search(saved, found)
    page.fill("#throughput-tau input[type=number]", "0.6")
    page.keyboard.press("Tab")
    over(page, lambda: page.click("#throughput-run"), STATES["throughput"], "data-phase")
    ran = page.get_attribute(STATES["throughput"], "data-run")
    open_tab(page, "grid")
    rows = page.locator("#grid-rows")
    rows.get_by_label("τ 0.7", exact=True).uncheck()
    page.reload()
    wait_shown(page, "trade-off")
    playwright.expect(rows.get_by_label("τ 0.7", exact=True)).not_to_be_checked()
    playwright.expect(rows.get_by_label("lossless", exact=True)).to_be_checked()
    open_tab(page, "throughput")
    page.wait_for_selector(f"{STATES['throughput']}[data-run='{ran}'][data-phase=finished]")
    playwright.expect(page.locator("#throughput-tau input[type=number]")).to_have_value("0.6")
