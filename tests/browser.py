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
]

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


class Contexts:
    """Contexts of visitors, one after another: what the server sent stays fetched, and compiled,
    which is most of what opening a page costs; what a visitor stored there does not stay.

    Nobody in them wants motion, so that no page plays beside a test that is not about that.
    """

    def __init__(self, browser: playwright.Browser) -> None:
        self._browser = browser
        self._free: list[playwright.BrowserContext] = []

    def take(self) -> playwright.BrowserContext:
        """A context without pages, as of a new visitor."""
        if self._free:
            return self._free.pop()
        made = self._browser.new_context(reduced_motion="reduce")
        made.set_default_timeout(90_000)  # a busy machine is slow, not wrong
        return made

    def give_back(self, context: playwright.BrowserContext) -> None:
        """Close its pages and forget what they stored."""
        origins = {origin_of(page.url) for page in context.pages}
        for page in context.pages:
            page.close()
        blank = context.new_page()
        session = context.new_cdp_session(blank)
        for origin in origins:
            which = {"origin": origin, "storageTypes": "all"}
            session.send("Storage.clearDataForOrigin", which)
        blank.close()
        self._free.append(context)


Arrive = Callable[..., "playwright.Page"]
"""Given an address, and a width and height in pixels: the page that a new visitor has open."""


def origin_of(url: str) -> str:
    """Scheme, host and port of an address."""
    return "/".join(url.split("/")[:3])


def is_foreign(url: str, address: str) -> bool:
    """Whether a page at ``address`` asked somebody else."""
    return not url.startswith((address.rstrip("/"), "data:", "blob:"))
