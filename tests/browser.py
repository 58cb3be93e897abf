"""Debian's chromium for tests: how it is started, when tests are left out, whom a page may ask."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from shutil import which

import pytest

try:
    from playwright import sync_api as playwright
except ImportError:
    playwright = None

CHROMIUM = os.environ.get("CHROMIUM") or which("chromium-headless-shell") or which("chromium")
"""The one without windows where it is installed: it opens pages a second faster."""
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--in-process-gpu",  # what is drawn by the processor needs no process of its own
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--num-raster-threads=1",
    # Otherwise each stack trace of plotly.js parses all of it again: a second per page.
    "--js-flags=--no-enable-lazy-source-positions",
]

PATIENCE = 90_000  # milliseconds at most for what has to come: a busy machine is slow, not wrong
LOOK_EVERY = 30  # milliseconds between two looks at what is waited for
WIDE = {"width": 1280, "height": 720}  # a tab whose size no test has changed
FORGET = """() => {
  if (!location.protocol.startsWith("http")) return;
  window.sessionStorage.clear();
  Storage.prototype.setItem = () => {};
}"""
"""What a tab keeps for itself goes, and nothing follows it while the page is left."""

needs_browser = pytest.mark.skipif(
    playwright is None or not CHROMIUM, reason="chromium or playwright is not installed"
)


@contextmanager
def chromium() -> Iterator[playwright.Browser]:
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield launched
        launched.close()


_open = ExitStack()
_shared: list[Visitors] = []


def shared() -> Visitors:
    """Where all tests of this process open pages; the first page of a browser costs most."""
    if not _shared:
        _shared.append(Visitors(_open.enter_context(chromium())))
    return _shared[0]


def close_shared() -> None:
    _shared.clear()
    _open.close()


class Visitors:
    """Pages of visitors, one after another in the same tab: what was fetched and compiled stays,
    what a visitor stored does not. They prefer reduced motion. What else a test sets on the tab
    (routes, listeners), it takes back."""

    def __init__(self, browser: playwright.Browser) -> None:
        playwright.expect.set_options(timeout=PATIENCE)
        self.browser = browser
        self._free: list[playwright.Page] = []

    def take(self) -> playwright.Page:
        if self._free:
            return self._free.pop()
        made = self.browser.new_context(reduced_motion="reduce")
        made.set_default_timeout(PATIENCE)
        page = made.new_page()
        # Each look would ask for a frame, which costs more than what is looked at.
        page.wait_for_function = partial(page.wait_for_function, polling=LOOK_EVERY)
        return page

    def give_back(self, page: playwright.Page, address: str = "") -> None:
        """Leave its pages and forget what they stored at ``address`` and where they were."""
        context = page.context
        urls = [address, *(item.url for item in context.pages)]
        origins = {origin_of(url) for url in urls if url.startswith("http")}
        if page.is_closed():
            page = context.new_page()
        context.set_offline(False)
        context.clear_permissions()
        page.emulate_media(media="null", color_scheme="null", reduced_motion="reduce")
        page.set_viewport_size(WIDE)
        page.evaluate(FORGET)
        for other in context.pages:
            if other is not page:
                other.close()
        page.mouse.move(0, 0)  # there, not on the next page, which would miss that it leaves
        page.goto("about:blank")
        session = context.new_cdp_session(page)
        for origin in origins:
            which = {"origin": origin, "storageTypes": "all"}
            session.send("Storage.clearDataForOrigin", which)
        session.send("Page.resetNavigationHistory")
        session.detach()
        self._free.append(page)


@contextmanager
def listening() -> Iterator[Callable[[playwright.Page, str], None]]:
    """Pages, each with the only address that it may ask; fails at the end on script errors, dialogs
    and requests to other addresses."""
    troubles: list[str] = []
    foreign: list[playwright.Request] = []
    heard: list[tuple[playwright.Page, str, Callable[..., object]]] = []

    def listen(page: playwright.Page, address: str) -> None:
        hears = {
            "pageerror": lambda error: troubles.append(str(error)),
            "dialog": lambda dialog: (troubles.append(dialog.message), dialog.dismiss()),
            "request": lambda r: is_foreign(r.url, address) and foreign.append(r),
        }
        for event, hear in hears.items():
            page.on(event, hear)
            heard.append((page, event, hear))

    try:
        yield listen
    finally:
        for page, event, hear in heard:
            page.remove_listener(event, hear)
    assert troubles + sent(foreign) == []


def see(place: playwright.Locator) -> None:
    """Scroll so that it is at the top, where nothing above it that grows can push it away."""
    place.evaluate("node => node.scrollIntoView()")


def settle(page: playwright.Page) -> None:
    """Wait for the next two frames."""
    page.evaluate("() => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))")


@contextmanager
def visiting() -> Iterator[Callable[[str], playwright.Page]]:
    """Blank pages of the shared browser for an address each, as by ``listening``."""
    taken: list[tuple[playwright.Page, str]] = []
    try:
        with listening() as listen:

            def take(address: str) -> playwright.Page:
                page = shared().take()
                taken.append((page, address))
                listen(page, address)
                return page

            yield take
    finally:  # one page's trouble keeps no other from its tab
        for page, address in taken:
            shared().give_back(page, address)


@contextmanager
def opened(url: str, width: int = 1440, height: int = 1000) -> Iterator[playwright.Page]:
    """An address as a new visitor has it open."""
    with visiting() as take:
        page = take(origin_of(url))
        page.set_viewport_size({"width": width, "height": height})
        page.goto(url)
        yield page


Arrive = Callable[..., "playwright.Page"]
"""Given an address, and a width and height in pixels: the page that a new visitor has open."""


def origin_of(url: str) -> str:
    return "/".join(url.split("/")[:3])


def sent(requests: Iterable[playwright.Request]) -> list[str]:
    """Return the addresses of requests that were sent; Chromium also reports those that the policy
    of the page forbids."""
    return [request.url for request in requests if request.failure != "csp"]


def is_foreign(url: str, address: str) -> bool:
    return not url.startswith((address.rstrip("/"), "data:", "blob:"))
