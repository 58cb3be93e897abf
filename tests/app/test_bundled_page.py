"""Every checkpoint that comes with the repository, in the page: chosen, linked to, started with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import needs_browser, playwright

from app.handlers import make_handlers
from app.serving.engines import Engines
from app.serving.settings import AppSettings
from mars_runtime.model.registry import registry

pytestmark = needs_browser
BUNDLED = [entry.name for entry in registry().values() if entry.path is not None]
RACE = "#race .mars-race"


@pytest.fixture(scope="module", params=BUNDLED)
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """The page of ``app.py --checkpoint NAME``."""
    from app.serving.serve import serve

    engines = Engines(AppSettings(checkpoint=request.param, port=0, max_new_tokens=48))
    engines.open()
    page = serve(make_handlers(engines), is_blocking=False)
    yield request.param, page.local_url
    page.close()
    engines.close()


@pytest.fixture
def page(
    new_context: Callable[[], playwright.BrowserContext],
) -> Iterator[playwright.Page]:
    """A new visitor, who met no fault in a script."""
    faults: list[str] = []
    visitor = new_context().new_page()
    visitor.on("pageerror", lambda error: faults.append(str(error)))
    yield visitor
    assert faults == []


def ready(page: playwright.Page, address: str, name: str) -> None:
    page.goto(address)
    page.wait_for_selector(f"{RACE}[data-state=empty]")
    page.wait_for_selector(f"#footer:has-text('{name}:')")


def assert_answers(page: playwright.Page, name: str) -> None:
    page.fill("#prompt textarea", "Count from 1 to 5.")
    page.click("#run")
    page.wait_for_selector(f"{RACE}[data-state=finished]")
    assert name in page.inner_text("#race .rv-env")
    has_choice = registry()[name].block_size > 1
    assert page.locator("#block_size").is_visible() is has_choice


@pytest.mark.parametrize("other", BUNDLED)
def test_started_with_and_chosen(
    started: tuple[str, str], page: playwright.Page, other: str
) -> None:
    name, address = started
    ready(page, address, name)
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


@pytest.mark.parametrize("other", BUNDLED)
def test_linked_to(started: tuple[str, str], page: playwright.Page, other: str) -> None:
    _, address = started
    ready(page, f"{address}?checkpoint={other}&prompt=Count.&block_size=1", other)
    assert page.input_value("#checkpoint input") == other
    assert page.input_value("#prompt textarea") == "Count."
    assert_answers(page, other)


def test_more_than_one_is_bundled() -> None:
    assert {"mars-tiny", "ar-tiny"} <= set(BUNDLED)
    assert all(Path(registry()[name].path or "").name for name in BUNDLED)
