"""The race view by itself, one page for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import playwright
from race_browser import VIEW, still_page

AGAIN = f"""() => {{
  document.body.classList.remove("dark");
  document.activeElement.blur();
  {VIEW}.read("");
}}"""


@pytest.fixture(scope="module")
def race_page() -> Iterator[playwright.Page]:
    with still_page() as made:
        yield made


@pytest.fixture
def page(race_page: playwright.Page) -> playwright.Page:
    """The page, with an empty view and without motion."""
    race_page.emulate_media(reduced_motion="reduce")
    race_page.set_viewport_size({"width": 1400, "height": 1000})
    race_page.mouse.move(0, 0)
    race_page.evaluate(AGAIN)
    return race_page
