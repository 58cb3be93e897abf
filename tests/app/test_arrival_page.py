"""The page while its checkpoint is fetched: a line on it, the change to it, examples for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import needs_browser, playwright, visiting
from fake_source import NO_NETWORK, FakeSource, make_handlers

from app.handlers import Handlers

pytestmark = needs_browser
RACE = "#race .mars-race"
CHAT_CHIP, TASK_CHIP = ".chip:text-is('Explain')", ".chip:text-is('Symbols')"


@pytest.fixture
def source() -> Iterator[FakeSource]:
    made = FakeSource()
    yield made
    made.go.set()


@pytest.fixture
def handlers(tmp_path: Path, source: FakeSource) -> Iterator[Handlers]:
    made, _ = make_handlers(tmp_path, source, port=0)
    yield made
    made.engines.close()


@pytest.fixture
def visit(handlers: Handlers) -> Iterator[object]:
    """Open the page as a new visitor."""
    from app.serving.serve import serve

    served = serve(handlers, is_blocking=False)
    with visiting() as take:

        def open_page(query: str = "") -> playwright.Page:
            page = take(served.local_url)
            page.set_viewport_size({"width": 1280, "height": 900})
            page.goto(served.local_url + query)
            page.wait_for_selector(f"{RACE}[data-state=empty]")
            return page

        yield open_page
    served.close()


def chosen(page: playwright.Page) -> str:
    return page.input_value("#checkpoint input")


def wait_chosen(page: playwright.Page, name: str) -> None:
    page.wait_for_function(
        "name => document.querySelector('#checkpoint input').value === name", arg=name
    )


def test_how_far_it_is_stands_on_the_page_and_then_it_is_the_one_in_force(
    visit, source: FakeSource
) -> None:
    page = visit()
    page.wait_for_selector("#arrival:has-text('Fetching chat, 94 MB: 43 %')")
    assert chosen(page) == "tiny"
    assert page.locator(TASK_CHIP).is_visible()
    assert not page.locator(CHAT_CHIP).is_visible()
    assert "tiny knows only tasks like these" in page.inner_text("#examples")
    page.fill("#prompt textarea", "Half a thou")
    source.go.set()
    wait_chosen(page, "chat")
    page.wait_for_selector(CHAT_CHIP)
    assert not page.locator(TASK_CHIP).is_visible()
    assert page.input_value("#prompt textarea") == "Half a thou"
    page.wait_for_selector("#footer:has-text('chat:')")
    assert page.is_checked("#pace input[value='0']")
    page.wait_for_function("!document.querySelector('#arrival').innerText.trim()")
    page.click("#run")
    page.wait_for_selector(".rv-pane[data-lane=mars] .rv-text:has-text('I chat')")
    late = visit()
    wait_chosen(late, "chat")


def test_no_model_is_taken_from_who_runs_it(visit, source: FakeSource) -> None:
    page = visit()
    page.fill("#prompt textarea", "Count.")
    page.click("#pace label:has-text('Very slow')")
    page.click("#run")
    page.wait_for_selector(f"{RACE}[data-state=slow]")
    source.go.set()
    page.wait_for_selector("#arrival:has-text('chat is here: choose it as the model.')")
    assert chosen(page) == "tiny"
    assert page.get_attribute(RACE, "data-state") == "slow"
    page.click("#stop")


def test_no_model_is_taken_from_who_came_by_a_link_to_it(visit, source: FakeSource) -> None:
    page = visit("?checkpoint=tiny")
    page.wait_for_selector("#arrival:has-text('43 %')")
    source.go.set()
    page.wait_for_selector("#arrival:has-text('chat is here')")
    assert chosen(page) == "tiny"


def test_without_a_network_one_sentence_says_so(visit, source: FakeSource) -> None:
    source.failure = NO_NETWORK
    source.go.set()
    page = visit()
    page.wait_for_selector("#arrival:has-text('could not be fetched')")
    assert page.inner_text("#arrival").strip() == (
        f"{NO_NETWORK} Until then tiny, which knows only its tasks, answers."
    )
    page.fill("#prompt textarea", "Count.")
    page.click("#run")
    page.wait_for_selector(f"{RACE}:is([data-state=slow], [data-state=running])")
    page.click("#stop")
