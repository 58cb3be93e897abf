"""Debian's chromium for tests: how it is started, when tests are left out, whom a page may ask."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

try:
    from playwright import sync_api as playwright
except ImportError:
    playwright = None

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Else every stack that plotly.js takes while it starts parses all of it anew: a second a page.
    "--js-flags=--no-enable-lazy-source-positions",
]

FORGET = """() => {
  if (!location.protocol.startsWith("http")) return;
  window.sessionStorage.clear();
  Storage.prototype.setItem = () => {};
}"""
"""What a tab keeps for itself goes, and nothing follows it while the page is left."""

needs_browser = pytest.mark.skipif(
    playwright is None or not CHROMIUM.exists(), reason="chromium or playwright is not installed"
)


@contextmanager
def chromium() -> Iterator[playwright.Browser]:
    """A browser of its own, closed at the end."""
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=str(CHROMIUM), args=ARGS)
        yield launched
        launched.close()


class Visitors:
    """Pages of visitors, one after another in the same tab: what the server sent stays fetched, and
    what the tab's process compiled stays compiled, which is most of what opening a page costs; what
    a visitor stored there does not stay.

    Nobody in them wants motion, so that no page plays beside a test that is not about that. What
    else a test sets on the tab itself (routes, media, listeners), it takes back.
    """

    def __init__(self, browser: playwright.Browser) -> None:
        self._browser = browser
        self._free: list[playwright.Page] = []

    def take(self) -> playwright.Page:
        """A blank page of a new visitor, in a context of its own."""
        if self._free:
            return self._free.pop()
        made = self._browser.new_context(reduced_motion="reduce")
        made.set_default_timeout(90_000)  # a busy machine is slow, not wrong
        return made.new_page()

    def give_back(self, page: playwright.Page) -> None:
        """Leave its pages and forget what they stored, and where they were."""
        context = page.context
        origins = {origin_of(each.url) for each in context.pages}
        if page.is_closed():
            page = context.new_page()
        page.evaluate(FORGET)
        for other in context.pages:
            if other is not page:
                other.close()
        page.goto("about:blank")
        page.mouse.move(0, 0)
        session = context.new_cdp_session(page)
        for origin in origins:
            which = {"origin": origin, "storageTypes": "all"}
            session.send("Storage.clearDataForOrigin", which)
        session.send("Page.resetNavigationHistory")
        session.detach()
        self._free.append(page)


Arrive = Callable[..., "playwright.Page"]
"""Given an address, and a width and height in pixels: the page that a new visitor has open."""


def origin_of(url: str) -> str:
    """Scheme, host and port of an address."""
    return "/".join(url.split("/")[:3])


def is_foreign(url: str, address: str) -> bool:
    """Whether a page at ``address`` asked somebody else."""
    return not url.startswith((address.rstrip("/"), "data:", "blob:"))
