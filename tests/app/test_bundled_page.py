"""Every checkpoint that comes with the repository, in the page: chosen, linked to, started with."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import Arrive, needs_browser, playwright
from scripted_page import page_served

from app.handlers import make_handlers
from app.serving.engines import Engines
from app.serving.settings import AppSettings
from mars_runtime.model.registry import registry

pytestmark = needs_browser
BUNDLED = [entry.name for entry in registry().values() if entry.path is not None]
USUAL = "mars-tiny"
OTHERS = [name for name in BUNDLED if name != USUAL]
PAIRS = pytest.mark.parametrize(
    ("started", "other"),
    [*((USUAL, name) for name in BUNDLED), *((name, USUAL) for name in OTHERS)],
    indirect=["started"],
)
"""The page is started with the usual one or comes to it: every way into and out of each other."""
RACE = "#race .mars-race"


@pytest.fixture(scope="module")
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """The page of ``app.py --checkpoint NAME``."""
    engines = Engines(AppSettings(checkpoint=request.param, port=0, max_new_tokens=24))
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
    page.wait_for_selector(f"{RACE}[data-state=finished]")
    assert name in page.inner_text("#race .rv-env")
    has_choice = registry()[name].block_size > 1
    assert page.locator("#block_size").is_visible() is has_choice


@PAIRS
def test_started_with_and_chosen(started: tuple[str, str], arrive: Arrive, other: str) -> None:
    name, address = started
    page = ready(arrive, address, name)
    assert page.input_value("#checkpoint input") == name
    if other != name:
        page.click("#checkpoint input")
        page.click(f"[role=option]:text-is('{other}')")
        page.wait_for_selector(f"#footer:has-text('{other}:')")
    assert_answers(page, other)
    for tab, prefix in (("Batch", "batch"), ("Grid", "grid")):
        page.click(f"[role=tab]:text-is('{tab}')")
        page.click(f"#{prefix}-run")
        page.wait_for_selector(f".mars-{prefix}[data-phase=finished]")


@PAIRS
def test_linked_to(started: tuple[str, str], arrive: Arrive, other: str) -> None:
    _, address = started
    page = ready(arrive, f"{address}?checkpoint={other}&prompt=Count.&block_size=1", other)
    assert page.input_value("#checkpoint input") == other
    assert page.input_value("#prompt textarea") == "Count."
    assert_answers(page, other)


def test_more_than_one_is_bundled() -> None:
    assert {"mars-tiny", "ar-tiny"} <= set(BUNDLED)
    assert all(Path(registry()[name].path or "").name for name in BUNDLED)
