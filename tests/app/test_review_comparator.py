"""LLM Comparator's own viewer, as its wheel carries it, opens what Review exports.

Skipped where the package is not installed (``pip install --no-deps llm-comparator``).
"""

from __future__ import annotations

import http.server
import importlib.util
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from browser import chromium, needs_browser, playwright
from review_page import write_set

from mars_runtime.review import exports
from mars_runtime.review.judgements import Judgement
from mars_runtime.review.prompts import Item

PACKAGE = importlib.util.find_spec("llm_comparator")
pytestmark = [
    needs_browser,
    pytest.mark.slow,
    pytest.mark.skipif(PACKAGE is None, reason="llm-comparator is not installed"),
]


@pytest.fixture
def viewer(tmp_path: Path) -> Iterator[str]:
    """Where the viewer is served, with a file beside it."""
    assert PACKAGE
    [home] = PACKAGE.submodule_search_locations or []
    shutil.copytree(Path(home) / "data", tmp_path / "viewer")
    items = [Item(str(n), f"<b>Prompt</b> {n}", category="ab"[n % 2]) for n in range(4)]
    review = write_set(
        tmp_path / "set", ["ar", "tau=0"], items, lambda n, way: f"Answer {n} by way {way}"
    )
    rows = [Judgement(f"{n}", "anna", str(n), "ar", "tau=0", "left") for n in range(3)]
    text = exports.to_comparator(review, rows, 1)
    (tmp_path / "viewer" / "pair.json").write_text(text, encoding="utf-8")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "viewer"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def test_the_released_viewer_opens_a_pair(viewer: str) -> None:
    def own(route: playwright.Route) -> None:
        """Fonts of the net are not requested."""
        (route.continue_ if route.request.url.startswith(viewer) else route.abort)()

    with chromium() as browser:
        page = browser.new_page()
        troubles: list[str] = []
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.route("**/*", own)
        page.goto(f"{viewer}?results_path={viewer}pair.json")
        page.wait_for_selector("text=Prompt</b> 3")
        for text in ("Answer 2 by way 1", "Answer 0 by way 0", "tau=0"):
            page.get_by_text(text).first.wait_for(timeout=20_000)  # within its own elements
        assert troubles == []
