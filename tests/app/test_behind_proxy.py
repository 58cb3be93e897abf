"""The page behind reverse proxies: everything that it fetches is at the address that
visitors use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from shutil import which

import pytest
from browser import PATIENCE, needs_browser, playwright, shared
from live_page import LOADED, ROOT, open_tab
from reverse_proxy import ReverseProxy, framing, proxied, write_certificate
from scripted_page import TEXT, ScriptedBackend, make_handlers, page_served

pytestmark = needs_browser

VIEWPORT = {"width": 1440, "height": 1000}
HAS_PLOT = "document.querySelector('#race [data-chart=time] .rv-plot')?.data"


@pytest.fixture
def place() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_tls_at_a_port_of_its_own(address: str, place: ExitStack, tmp_path: Path) -> None:
    if not which("openssl"):
        pytest.skip("openssl is not installed")
    proxy = place.enter_context(proxied(address, "", write_certificate(tmp_path / "tls.pem")))
    visit(place, proxy.address, proxy, tmp_path)


def test_a_folder_unknown_to_the_page_in_a_frame_of_another_site(
    address: str, place: ExitStack, tmp_path: Path
) -> None:
    proxy = place.enter_context(proxied(address, "/some/mars"))
    visit(place, place.enter_context(framing(proxy.address)), proxy, tmp_path)


def test_a_folder_known_to_the_page(
    place: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADIO_ROOT_PATH", "/mars")
    handlers = make_handlers(tmp_path, ScriptedBackend(TEXT), port=0)
    upstream = place.enter_context(page_served(handlers))
    proxy = place.enter_context(proxied(upstream, "/mars"))
    visit(place, proxy.address, proxy, tmp_path)


def visit(place: ExitStack, opens: str, proxy: ReverseProxy, folder: Path) -> None:
    """Use the page behind the proxy, or in a frame of the page that is opened: a race with its
    charts, Review, a run as a file. Fails on script errors and on requests to
    anywhere else."""
    address = proxy.address
    context = shared().browser.new_context(
        ignore_https_errors=True, viewport=VIEWPORT, reduced_motion="reduce"
    )
    place.callback(context.close)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    requests: list[str] = []
    troubles: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto(opens)
    frame = (
        page.main_frame if opens == address else page.wait_for_selector("iframe").content_frame()
    )
    assert frame is not None
    linked = frame.eval_on_selector_all("link[href]", "links => links.map(link => link.href)")
    assert f"{address}favicon.ico" in linked
    assert [url for url in linked if not url.startswith(address)] == []  # fetched or not
    race_with_charts(frame)
    open_tab(frame, "review")
    frame.wait_for_selector(".mars-review[data-phase=ready] .rv-pane >> nth=1")
    replay_opens(page, frame, folder / "run.html")
    page.goto("about:blank")
    outside = [url for url in requests if not url.startswith((address, "data:", "blob:", "about:"))]
    assert (outside, troubles) == ([opens] * (opens != address), [])
    assert proxy.strays == []


def race_with_charts(frame: playwright.Frame) -> None:
    frame.wait_for_selector(f"{ROOT}[data-state=empty]")
    frame.wait_for_function(LOADED)
    frame.fill("#prompt textarea", "Say it.")
    frame.click("#run")
    frame.wait_for_selector(f"{ROOT}[data-state=finished]")
    frame.locator("#race [data-chart=time]").evaluate("node => node.scrollIntoView()")
    frame.wait_for_function(HAS_PLOT)


def replay_opens(page: playwright.Page, frame: playwright.Frame, file: Path) -> None:
    """The run as a file of its own, with the network off."""
    open_tab(frame, "live")
    frame.click("#race .rv-top .ex-menu summary")
    with page.expect_download() as begun:
        frame.click("#race .rv-top .ex-menu button:has-text('HTML')")
    begun.value.save_as(file)
    other = shared().browser.new_context(offline=True, viewport=VIEWPORT)
    replay = other.new_page()
    replay.goto(file.as_uri())
    replay.wait_for_selector(".mars-race[data-state=finished]")
    other.close()
