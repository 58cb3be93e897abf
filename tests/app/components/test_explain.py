"""How it works in a real browser: its pictures, from a recorded run, without a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import needs_browser, playwright, visiting
from explain_page import document

from app.ui.views import ExplainView
from mars_runtime.display import web

DIAL = "[data-picture=dial]"

pytestmark = needs_browser


@pytest.fixture
def page() -> Iterator[playwright.Page]:
    """The page; nothing in it may fail or ask anybody."""
    with visiting() as take:
        opened = take("about:blank")
        opened.set_content(document())
        opened.wait_for_selector(f"{DIAL} .ex-rung")
        yield opened


def rows(page: playwright.Page, picture: str, *kinds: str) -> int:
    inside = ", ".join(f"[data-picture={picture}] [data-kind={kind}]" for kind in kinds)
    return page.locator(inside).count()


def test_the_pictures_of_a_pass_a_threshold_and_a_repair(page: playwright.Page) -> None:
    assert rows(page, "ladder", "kept")
    assert rows(page, "ladder", "draft")
    assert rows(page, "repair", "wrong") == 1
    slider = page.locator(f"{DIAL} input")
    counts, mistakes = [], []
    for tau in ("1", "0.5", "0"):
        slider.fill(tau)
        counts.append(rows(page, "dial", "kept", "wrong"))
        mistakes.append(rows(page, "dial", "wrong"))
    assert counts == sorted(counts)
    assert counts[-1] == page.locator(f"{DIAL} .ex-rung").count()
    assert mistakes == sorted(mistakes) == [0, 0, 1]
    before = page.inner_text("[data-picture=ladder] .ex-where")
    page.click("[data-picture=ladder] button >> nth=1")
    assert page.inner_text("[data-picture=ladder] .ex-where") != before


def test_the_text_is_short(page: playwright.Page) -> None:
    assert len(web.template(ExplainView.page).split()) < 400  # tags included
    prose = page.evaluate(
        "[...document.querySelectorAll('.mars-explain :is(h2, h3, section > p, :scope > p)')]"
        ".map((node) => node.textContent).join(' ')"
    )
    assert len(prose.split()) <= 300
