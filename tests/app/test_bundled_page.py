"""Every checkpoint that comes with the repository, in the page: chosen, linked to, started with."""

from __future__ import annotations

import pytest
from browser import Arrive, needs_browser, playwright
from live_page import open_tab
from scripted_page import page_served

from app.engines.engines import Engines
from app.handlers import make_handlers
from app.settings import AppSettings
from mars_runtime.model.registry import registry

pytestmark = needs_browser
BUNDLED = [entry.name for entry in registry().values() if entry.path is not None]
USUAL = "mars-tiny"
OTHERS = [name for name in BUNDLED if name != USUAL]
SAMPLE = ["ar-tiny"]
"""Of the others what differs most in the page: it has no masks, so no B. The rest is slow."""
SAMPLED = [
    name if name in SAMPLE else pytest.param(name, marks=pytest.mark.slow) for name in OTHERS
]
FROM_USUAL = pytest.mark.parametrize("started", [USUAL], indirect=True)
"""The page is started with the usual one or comes to it: every way into and out of each other."""
RACE = "#race .mars-race"


@pytest.fixture(scope="module")
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """The page of ``app.py --checkpoint NAME``."""
    engines = Engines(AppSettings(checkpoint=request.param, port=0, max_new_tokens=8))
    engines.open()
    with page_served(make_handlers(engines)) as url:
        yield request.param, url


def ready(arrive: Arrive, address: str, name: str) -> playwright.Page:
    page = arrive(address)
    page.wait_for_selector(f"{RACE}[data-state=empty]")
    page.wait_for_selector(f"#footer:has-text('{name}:')")
    return page


def assert_answers(page: playwright.Page, name: str) -> None:
    page.fill("#prompt textarea", "Count from 1 to 5.")
    page.click("#run")
    page.wait_for_selector(f"{RACE}[data-state=finished]:has(.rv-env:text('{name} ·'))")
    has_choice = registry()[name].block_size > 1
    assert page.locator("#block_size").is_visible() is has_choice


def choose(page: playwright.Page, name: str) -> None:
    open_tab(page, "live")
    page.click("#checkpoint input")
    page.click(f"[role=option]:text-is('{name}')")
    page.wait_for_selector(f"#footer:has-text('{name}:')")


def assert_throughput_and_grid_answer(page: playwright.Page, name: str) -> None:
    phases = {"throughput": "finished", "grid": "finished"}
    if registry()[name].block_size == 1:
        phases["grid"] = "error"  # without masks there is nothing to compare
    for prefix, phase in phases.items():
        open_tab(page, prefix)
        page.click(f"#{prefix}-run")
        page.wait_for_selector(f".mars-{prefix}[data-phase={phase}][data-recorded-run=false]")


@FROM_USUAL
@pytest.mark.parametrize("others", [SAMPLE, pytest.param(OTHERS, marks=pytest.mark.slow)])
def test_each_is_chosen_and_left_again(
    started: tuple[str, str], arrive: Arrive, others: list[str]
) -> None:
    page = ready(arrive, started[1], USUAL)
    assert page.input_value("#checkpoint input") == USUAL
    assert_answers(page, USUAL)
    for name in others:
        choose(page, name)
        assert_answers(page, name)
        assert_throughput_and_grid_answer(page, name)
        choose(page, USUAL)
        assert_answers(page, USUAL)
    assert_throughput_and_grid_answer(page, USUAL)


@pytest.mark.slow  # its page is that of a link to it, which the usual one leads to from there
@pytest.mark.parametrize("started", OTHERS, indirect=True)
def test_started_with(started: tuple[str, str], arrive: Arrive) -> None:
    name, address = started
    page = ready(arrive, address, name)
    assert page.input_value("#checkpoint input") == name
    assert_answers(page, name)
    choose(page, USUAL)
    assert_answers(page, USUAL)


@FROM_USUAL
@pytest.mark.parametrize("other", SAMPLED)
def test_linked_to(started: tuple[str, str], arrive: Arrive, other: str) -> None:
    page = ready(arrive, f"{started[1]}?checkpoint={other}&prompt=Count.&block_size=1", other)
    assert page.input_value("#checkpoint input") == other
    assert page.input_value("#prompt textarea") == "Count."
    assert_answers(page, other)
