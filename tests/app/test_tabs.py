"""Tabs have addresses, which Back, Forward and a reload follow; a tab keeps what it shows.

Skipped where Debian's chromium is not installed. Nothing here needs weights.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from batch_page import make_page
from browser import Arrive, needs_browser, playwright
from live_page import open_tab, over, wait_loaded
from scripted_page import page_served

from app.ui.files import file_address
from app.ui.recordings import TABS, tab_value

pytestmark = needs_browser
SHOWN = {
    "live": "#desk",
    "trade-off": "#grid-bar",
    "throughput": "#throughput-bar",
    "review": "#review",
}
ADDRESSES = {
    "live": "#live",
    "trade-off": "#trade-off",
    "throughput": "#throughput",
    "review": "#review",
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    handlers, backend = make_page(tmp_path_factory.mktemp("page"), port=0)
    backend.forward_seconds = 0.001
    with page_served(handlers) as url:
        yield url


@pytest.fixture
def page(arrive: Arrive, address: str) -> playwright.Page:
    made = arrive(address)
    wait_loaded(made)
    return made


def wait_shown(page: playwright.Page, view: str) -> None:
    page.locator(SHOWN[view]).wait_for(state="visible")
    others = [item for item in SHOWN if item != view]
    assert not any(page.locator(SHOWN[other]).is_visible() for other in others)


def hash_of(page: playwright.Page) -> str:
    return page.evaluate("location.hash")


def test_every_view_has_an_address_and_back_and_forward_follow(page: playwright.Page) -> None:
    assert hash_of(page) == ""
    for view in list(ADDRESSES)[1:]:
        open_tab(page, view)
        wait_shown(page, view)
        assert hash_of(page) == ADDRESSES[view]
    for view in reversed(list(ADDRESSES)[:-1]):
        page.go_back()
        wait_shown(page, view)
    assert hash_of(page) == ""
    page.go_forward()
    wait_shown(page, "trade-off")


@pytest.mark.parametrize("view", ["throughput", "review"])
def test_an_address_opens_its_view_and_so_does_the_name_of_an_old_tab(
    arrive: Arrive, address: str, view: str
) -> None:
    page = arrive(f"{address}#{view}")
    wait_shown(page, view)
    if view in ADDRESSES:
        page.goto(f"{address}{ADDRESSES[view]}")
        wait_shown(page, view)
    page.reload()
    wait_shown(page, view)


def test_an_unknown_address_is_named_on_the_first_tab(arrive: Arrive, address: str) -> None:
    for unknown in ("nothing", "frontier", "stability=1"):
        page = arrive(f"{address}#{unknown}")
        wait_shown(page, "live")
        page.wait_for_selector("#race [data-state=error]")
        assert f"#{unknown}" in page.inner_text("#race .rv-status")
    for fold in ("ex-tau", "how-it-works"):
        page = arrive(f"{address}#{fold}")
        page.locator("#explain").wait_for(state="visible")


def test_a_reload_keeps_what_was_typed_and_shown(page: playwright.Page) -> None:
    open_tab(page, "throughput")
    page.fill("#throughput-tau input[type=number]", "0.6")
    page.keyboard.press("Tab")
    throughput = "#throughput .mars-throughput"
    over(page, lambda: page.click("#throughput-run"), throughput, "data-phase")
    ran = page.get_attribute(throughput, "data-run")
    open_tab(page, "grid")
    rows = page.locator("#grid-rows")
    rows.get_by_label("τ 0.7", exact=True).uncheck()
    page.reload()
    wait_shown(page, "trade-off")
    playwright.expect(rows.get_by_label("τ 0.7", exact=True)).not_to_be_checked()
    playwright.expect(rows.get_by_label("lossless", exact=True)).to_be_checked()
    open_tab(page, "throughput")
    page.wait_for_selector(f"{throughput}[data-run='{ran}'][data-phase=finished]")
    playwright.expect(page.locator("#throughput-tau input[type=number]")).to_have_value("0.6")


STATES = {"grid": "#grid .mars-grid", "throughput": "#throughput .mars-throughput"}


@pytest.mark.parametrize("view", STATES)
def test_a_tab_opens_on_a_recorded_result_which_it_fetches_when_it_is_opened(
    arrive: Arrive, address: str, view: str
) -> None:
    page = arrive(f"{address}robots.txt")
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url.removeprefix(address)))
    page.goto(address)
    wait_loaded(page)
    assert not any(url.startswith(f"files/{tab}.txt") for tab in TABS for url in requested)
    open_tab(page, view)
    page.wait_for_selector(f"{STATES[view]}[data-phase=finished][data-recorded-run=true]")
    assert file_address(f"{view}.txt") in requested
    recorded = json.loads(tab_value(view).splitlines()[0])["recorded"]
    assert page.inner_text(f"{STATES[view]} .rv-phase").startswith(f"Recorded {recorded};")
    finding = page.inner_text(f"{STATES[view]} .rv-finding")
    saved = r"in (\d+ % (fewer|more)|as many) forward passes|\d+ passes instead of \d+"
    assert view == "throughput" or re.search(saved, finding)
    assert page.inner_text(f"{STATES[view]} .rv-live") == ""
