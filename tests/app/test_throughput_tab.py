"""The Throughput tab in a real browser, over the real engine and decoders and a scripted model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_page import TEXT, BatchBackend
from browser import needs_browser, opened, playwright
from live_page import over

from app.throughput.run import NUM_QUEUED

pytestmark = needs_browser
VIEW = "#throughput .mars-throughput"


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[playwright.Page]:
    with opened(f"{address}#throughput") as page:
        yield page


@pytest.fixture
def backend(scripted_backend: BatchBackend) -> BatchBackend:
    scripted_backend.forward_seconds = 0.0
    return scripted_backend


def test_it_opens_on_a_recorded_run_in_which_tau_moves(page: playwright.Page) -> None:
    page.wait_for_selector(f"{VIEW}[data-recorded-run=true][data-phase=finished][data-moves='1']")
    assert page.get_attribute(VIEW, "data-done") == str(NUM_QUEUED)
    assert page.locator(".tv-row").count() == 8
    page.wait_for_selector("#throughput .js-plotly-plot")
    page.emulate_media(reduced_motion="no-preference")
    page.click("#throughput .tv-again button")
    page.wait_for_selector(f"{VIEW}[data-is-played=false][data-method=ar]")


def test_a_run_shows_rows_and_figures(page: playwright.Page, backend: BatchBackend) -> None:
    backend.forward_seconds = 0.02
    page.click("#throughput-run")
    page.wait_for_selector(f"{VIEW}[data-recorded-run=false][data-method=mars]", timeout=60_000)
    page.wait_for_selector(f"{VIEW}:not([data-done='0'])")
    page.fill("#throughput-tau input[type=number]", "0.2")
    page.keyboard.press("Tab")
    page.wait_for_selector(f"{VIEW}[data-moves='1']")
    backend.forward_seconds = 0.0
    page.wait_for_selector(f"{VIEW}[data-phase=finished][data-done='{NUM_QUEUED}']")
    row = page.locator(".tv-row").first
    text = row.locator(".tv-text").evaluate("e => e.textContent")
    assert text == TEXT[: len(text)]
    assert len(text) > 20
    assert row.locator("[data-n='4']").count() > 0
    assert page.locator(".tv-text b, .tv-text i").count() == 0
    names = page.evaluate("document.querySelector('#throughput .rv-plot').data.length")
    assert names == 2
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("document.documentElement.scrollWidth <= 390")
    page.set_viewport_size({"width": 1440, "height": 1000})


def test_a_measurement_is_shown_and_saved(page: playwright.Page, backend: BatchBackend) -> None:
    page.click("#throughput-measure button")
    over(page, lambda: page.click("#throughput-start"), VIEW, "data-phase")
    assert page.locator(".tv-measured tbody tr").count() == 2
    with page.expect_download() as download:
        page.click(".tv-save")
    saved = json.loads(Path(download.value.path()).read_text())
    assert saved["speedup"]["rounds"] == 3
    assert len(saved["mars"]["rates"]) == len(saved["ar"]["rates"]) == 3
