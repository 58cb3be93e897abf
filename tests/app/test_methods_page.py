"""The methods that need a checkpoint of their own, raced on the page with the bundled ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from browser import Arrive, needs_browser, playwright

from app.handlers import make_handlers
from app.serving.engines import Engines
from app.serving.settings import AppSettings

pytestmark = needs_browser
RACE = "#race .mars-race"
PANE = f"{RACE} .rv-pane[data-lane={{}}]"
CHART = f"{RACE} .rv-plot.js-plotly-plot:not([data-is-stale])"
PROMPT = "Sort+these+numbers%3A+5%2C+3%2C+9"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The page of ``app.py --checkpoint mars-tiny``."""
    from app.serving.serve import serve

    engines = Engines(AppSettings(checkpoint="mars-tiny", port=0, max_new_tokens=48))
    engines.open()
    page = serve(make_handlers(engines), is_blocking=False)
    yield page.local_url
    page.close()
    engines.close()


@pytest.fixture
def raced(address: str, arrive: Arrive) -> Callable[[str, str], playwright.Page]:
    """Opens the page by a link, runs what it asks for, and gives the finished race, all drawn."""

    def race(checkpoint: str, more: str) -> playwright.Page:
        page = arrive(f"{address}?checkpoint={checkpoint}&prompt={PROMPT}&max_new_tokens=40&{more}")
        page.wait_for_selector(f"{RACE}[data-state=empty]")
        page.wait_for_selector(f"#footer:has-text('{checkpoint}:')")
        page.click("#run")
        page.wait_for_selector(f"{RACE}[data-state=finished][data-lanes='2']", timeout=90_000)
        page.wait_for_function(f"document.querySelectorAll('{CHART}').length === 4")
        return page

    return race


def texts(page: playwright.Page, lanes: tuple[str, str]) -> list[str]:
    return [page.inner_text(f"{PANE.format(lane)} .rv-text") for lane in lanes]


def test_a_draft_model_races_plain_ar_and_writes_the_same(
    raced: Callable[[str, str], playwright.Page],
) -> None:
    page = raced("mars-tiny", "lanes=speculative,ar&tau=0")
    said = page.inner_text(f"{PANE.format('speculative')} .rv-head")
    assert "mars-tiny-draft" in said
    assert "same text" in said
    steps = page.evaluate(
        f"document.querySelector('{RACE}').lineView.run.lanes.find(l => l.method === 'speculative')"
        ".steps.map(s => s.draftForwards)"
    )
    assert sum(steps) > 0
    page.hover(f"{PANE.format('speculative')} .rv-t >> nth=3")
    page.wait_for_selector(f"{RACE} .rv-card:not([hidden])")


def test_blocks_are_filled_in_any_order_beside_plain_ar(
    raced: Callable[[str, str], playwright.Page],
) -> None:
    page = raced("block-diffusion-tiny", "lanes=block_diffusion,ar&tau=0.9&lossless=false")
    assert "B 8" in page.inner_text(f"{PANE.format('block_diffusion')} .rv-head")
    taken = page.evaluate(
        f"document.querySelector('{RACE}').lineView.run.lanes"
        ".find(l => l.method === 'block_diffusion').steps.map(s => s.taken.map(t => s.first + t))"
    )
    places = [place for step in taken for place in step]
    assert sorted(places) == list(range(40))
    assert places != sorted(places)  # some were taken ahead of an open one
    assert all(texts(page, ("block_diffusion", "ar")))
