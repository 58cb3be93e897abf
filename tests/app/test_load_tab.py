"""The Load lab tab in a real browser, over the real engine and a scripted backend.

Skipped where Debian's chromium is not installed. Nothing here needs weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from browser import Arrive, needs_browser, playwright
from load_page import make_page
from scripted_page import ScriptedBackend

from app.handlers import Handlers

pytestmark = needs_browser


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, ScriptedBackend, Handlers]]:
    from app.serving.serve import serve

    handlers, backend = make_page(tmp_path_factory.mktemp("page"), port=0)
    page = serve(handlers, is_blocking=False)
    yield page.local_url, backend, handlers
    page.close()
    handlers.engines.close()


@pytest.fixture
def visit(
    arrive: Arrive, served: tuple[str, ScriptedBackend, Handlers]
) -> Callable[..., playwright.Page]:
    """Open the tab as a new visitor and ask for a second of short answers, two ways."""

    def open_tab(seconds: float = 0.001) -> playwright.Page:
        served[1].forward_seconds = seconds
        page = arrive(served[0])
        page.get_by_role("tab", name="Load lab").click()
        wait_phase(page, "empty")
        for name, value in (("seconds", "1"), ("max_new_tokens", "8")):
            page.fill(f"#load-{name} input[type=number]", value)
        page.get_by_label("lossless", exact=True).uncheck()
        page.get_by_label("fixed τ", exact=True).uncheck()
        return page

    return open_tab


def wait_phase(page: playwright.Page, phase: str) -> None:
    page.wait_for_selector(f"#load .mars-load[data-phase={phase}]")


def cell(page: playwright.Page, way: str, column: int) -> str:
    return page.inner_text(f"#load tr[data-way={way}] td >> nth={column}")


def test_a_visitor_compares_two_ways_then_asks_for_a_curve(visit) -> None:
    page = visit()
    assert "without waiting for each other" in page.inner_text("#load .lv-status")
    page.click("#load-run")
    wait_phase(page, "finished")
    assert page.locator("#load tbody th").all_inner_texts() == [
        "plain AR", "τ 0.95 to 0.5, by load",
    ]  # fmt: skip
    arrived = page.get_attribute("#load tr[data-way=ar]", "data-arrived")
    for way in ("ar", "follow"):
        assert cell(page, way, 1) == f"{arrived} of {arrived}"
        assert cell(page, way, 7) == "100"  # the scripted text is the same by any way
    assert cell(page, "ar", 6) == "1.00"
    words = page.inner_text("#load .lv-words")
    assert all(word in words for word in ("Throughput", "Time to first token", "p50 and p99"))
    shown = page.locator("#load .lv-charts figure:visible").evaluate_all(
        "nodes => nodes.map((node) => node.dataset.chart)"
    )
    assert shown == ["rate", "queue", "rows", "tau"]
    page.wait_for_selector("#load [data-chart=tau] .scatterlayer .points path")
    assert page.inner_text("#load .lv-day h3") == "A simulation: a day of such requests"
    page.wait_for_selector("#load [data-chart=day] .bars path >> nth=5")

    page.get_by_label("saturation curve").check()
    page.get_by_label("τ by a controller", exact=True).uncheck()
    page.fill("#load-rate input[type=number]", "4")
    page.click("#load-run")
    page.wait_for_selector("#load [data-chart=answered]:visible .points path >> nth=4")
    wait_phase(page, "finished")
    said = page.inner_text("#load .lv-env")
    assert re.match(r"plain AR (kept up with|saturates at) [\d.]+ requests/s", said)


def test_stop_ends_it_and_too_much_is_one_sentence(visit) -> None:
    page = visit(seconds=0.05)
    page.click("#load-run")
    page.wait_for_selector("#load tr[data-way=ar][data-arrived]")
    weight = "getComputedStyle(document.querySelector('#load-stop')).fontWeight"
    assert page.evaluate(weight) == "600"
    page.click("#load-stop")
    wait_phase(page, "stopped")
    assert page.evaluate(weight) == "500"
    assert page.inner_text("#load .lv-status").startswith("Stopped")
    page.fill("#load-rate input[type=number]", "40")
    page.fill("#load-seconds input[type=number]", "20")
    page.click("#load-run")
    page.get_by_text("Ask for at most 120 requests at a time").first.wait_for()


def test_recorded_arrivals_are_typed_where_they_are_wanted(visit) -> None:
    page = visit()
    assert page.locator("#load-recorded").count() == 0
    page.get_by_label("recorded", exact=True).check()
    page.fill("#load-recorded textarea", "0, 0.2, 0.3")
    page.click("#load-run")
    wait_phase(page, "finished")
    assert cell(page, "ar", 1) == "3 of 3"
    assert "recorded arrivals, 3 requests" in page.inner_text("#load .lv-env")
