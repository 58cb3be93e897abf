"""The number boxes of τ and B, as a visitor types in them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import Arrive, needs_browser
from live_page import wait_loaded
from scripted_page import TEXT, ScriptedBackend, make_handlers, page_served

pytestmark = needs_browser

BOX, SLIDER = "#tau input[type=number]", "#tau input[type=range]"
SHOWS = "([css, value]) => document.querySelector(css).value === value"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    handlers = make_handlers(tmp_path_factory.mktemp("page"), ScriptedBackend(TEXT), port=0)
    with page_served(handlers) as url:
        yield url


@pytest.mark.parametrize("typed", ["0.8", "0,8"])
def test_a_comma_is_a_decimal_point_and_a_cleared_box_keeps_its_value(
    arrive: Arrive, address: str, typed: str
) -> None:
    page = arrive(address)
    wait_loaded(page)
    page.click(BOX, click_count=3)
    page.keyboard.type(typed)
    page.keyboard.press("Tab")
    page.wait_for_function(SHOWS, arg=[SLIDER, "0.8"])
    page.click(BOX, click_count=3)
    page.keyboard.press("Backspace")
    assert page.input_value(BOX) == ""
    page.keyboard.press("Tab")
    page.wait_for_function(SHOWS, arg=[BOX, "0.8"])
    assert page.input_value(SLIDER) == "0.8"
