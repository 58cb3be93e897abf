"""The Batch tab in a real browser, over the real engine and decoders and a scripted model.

One visitor's page, which each test leaves as the next one needs it. Skipped where Debian's chromium
is not installed. Nothing here needs weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from batch_page import TEXT, BatchBackend, make_page
from browser import needs_browser, opened, playwright, see
from live_page import open_tab, over
from scripted_page import page_served

from app.handlers import Handlers

pytestmark = needs_browser
PROMPTS = "One ${HOME}<b>.\nSecond.\nThe third ⏎ row."
BATCH = "#batch .mars-batch"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Handlers, BatchBackend]:
    return make_page(tmp_path_factory.mktemp("page"), port=0)


@pytest.fixture(scope="module")
def handlers(made: tuple[Handlers, BatchBackend]) -> Handlers:
    return made[0]


@pytest.fixture
def backend(made: tuple[Handlers, BatchBackend]) -> BatchBackend:
    made[1].forward_seconds = 0.002
    return made[1]


@pytest.fixture(scope="module")
def visited(handlers: Handlers) -> Iterator[playwright.Page]:
    with page_served(handlers) as url, opened(url) as page:
        yield page


@pytest.fixture
def page(visited: playwright.Page, backend: BatchBackend) -> playwright.Page:
    """At the tab, with three prompts."""
    open_tab(visited, "batch")
    visited.fill("#batch-prompts textarea", PROMPTS)
    return visited


IS_DRAWN = f"""() => {{ const {{ frame, feed }} = document.querySelector("{BATCH}").lineView;
  return !frame && !feed.lines.length; }}"""


def run_batch(page: playwright.Page) -> None:
    over(page, lambda: page.click("#batch-run"), BATCH, "data-phase")
    page.wait_for_function(IS_DRAWN)


def begin_batch(page: playwright.Page, press: Callable[[], object], count: int) -> None:
    """Begin another run and wait for its first forwards."""
    before = page.get_attribute(BATCH, "data-run")
    press()
    page.wait_for_selector(f"{BATCH}:not([data-run='{before}'])")
    page.wait_for_function(
        "n => +document.querySelector('.bv-side[data-side=a]')?.dataset.forwards >= n", arg=count
    )


def test_the_tab_opens_on_mars_against_ar(page: playwright.Page) -> None:
    run_batch(page)
    titles = page.locator("#batch .bv-head h3").all_inner_texts()
    assert titles == ["MARS, cursor cache, lossless", "plain AR"]
    rows = page.locator(".bv-side[data-side=a] .bv-beside").all_inner_texts()
    assert rows == ["identical to AR"] * 3
    assert not any(page.locator(".bv-side[data-side=b] .bv-beside").all_inner_texts())
    forwards = [
        page.locator(f".bv-side[data-side={side}] .bv-cell:not([data-wait])").count()
        for side in ("a", "b")
    ]
    assert forwards[0] < forwards[1]
    tpf = page.locator("#batch .rv-figure[data-key=tpf]")
    assert float(tpf.locator(".rv-value").inner_text()) > 1
    assert tpf.locator(".rv-sub").inner_text() == "plain AR: 1.00"
    counts = [page.get_attribute(f".bv-side[data-side={side}]", "data-forwards") for side in "ab"]
    passes = page.locator("#batch .rv-figure[data-key=forwards]")
    assert passes.locator(".rv-value").inner_text() == counts[0]
    assert passes.locator(".rv-sub").inner_text() == f"plain AR: {counts[1]}"
    saved = int(100 * (1 - int(counts[0]) / int(counts[1])))
    rate = page.inner_text("#batch .rv-figure[data-key=perSecond] .rv-value")
    kind = page.get_attribute("#batch .rv-figure[data-key=speedup]", "data-kind")
    assert rate.startswith("–") == (kind == "busy")  # without a ratio there is no pair of rates
    finding = page.inner_text("#batch .rv-finding")
    assert f"the same texts in {saved} % fewer forward passes than plain AR" in finding
    assert re.search(r"times as fast|about as fast|slower|speed is not reported|too busy", finding)
    legend = page.inner_text("#batch .bv-legend")
    assert "block" not in legend
    assert all(word in legend for word in ("stored", "added", "temporary"))


def test_lanes_idle_marks_totals_and_both_figures(page: playwright.Page) -> None:
    page.fill("#batch-batch_size input[type=number]", "8")  # rows that wait for each other
    page.click("#batch-second input")
    page.click("[role=option]:text-is('MARS, block cache')")
    run_batch(page)
    cursor, block = ".bv-side[data-side=a]", ".bv-side[data-side=b]"
    for side in (cursor, block):
        assert page.locator(f"{side} .bv-lane").count() == 3
        assert page.locator(f"{side} .bv-lane[data-end=eos]").count() == 3
    assert page.locator(f"{cursor} .bv-cell[data-wait]").count() == 0
    assert page.locator(f"{cursor} .bv-commit").count() == 0
    assert "stores a full block" in page.inner_text("#batch .bv-legend")
    for wait in ("block", "finished"):
        assert page.locator(f"{block} .bv-cell[data-wait={wait}]").count() > 0
    assert page.locator(f"{block} .bv-cell.bv-commit").count() > 3
    forwards = page.locator(f"{block} .bv-lane[data-row='0'] .bv-cell").count()
    assert str(forwards) in page.inner_text(f"{block} .bv-count")
    text = page.locator(f"{block} .bv-lane[data-row='0'] .bv-text").evaluate("e => e.textContent")
    assert text == TEXT[: len(text)]
    assert "${HOME}<b>" in text
    assert page.locator(".bv-lane b b, .bv-text b").count() == 0
    assert "One ${HOME}<b>." in page.inner_text(f"{cursor} .bv-lane[data-row='0'] .bv-ask")
    speedup = page.inner_text(".rv-figure[data-key=speedup] .rv-value:visible")
    assert re.fullmatch(
        r"[\d.]+times as fast|slower: [\d.]+times|about as fast|not measured", speedup
    )
    assert "block cache 16" in page.inner_text("#batch .rv-figure[data-key=tpf] .rv-sub")
    assert "idle rows" in page.inner_text("#batch .rv-small")
    assert "bytes" in page.inner_text("#batch .rv-small")  # a byte a slot
    assert "float32" in page.inner_text("#batch .rv-env")
    page.locator(f"{block} .bv-cell[data-wait=block]").first.hover()
    assert "idle: its block is full" in page.inner_text(f"{block} .bv-readout")
    see(page.locator(".bv-charts"))
    page.wait_for_function("document.querySelectorAll('.bv-charts .js-plotly-plot').length === 2")
    drawn = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('.bv-charts figure')].map(
          (f) => [f.dataset.chart, f.querySelector('.rv-plot').data.map((t) => t.name)]))"""
    )
    assert drawn["time"] == ["MARS, cursor cache, lossless", "MARS, block cache 16"]
    assert drawn["forwards"][3:] == [
        "tokens accepted",
        "waiting for the other rows' blocks",
        "finished",
    ]
    colour = "document.querySelector('.bv-charts .rv-plot').data[0].line.color"
    assert page.evaluate(colour).startswith("#")
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("document.documentElement.scrollWidth <= 390")
    page.set_viewport_size({"width": 1440, "height": 1000})


TOP = "document.querySelector('#batch .bv-sides').getBoundingClientRect().top + scrollY"


def test_the_keyboard_runs_reads_lanes_and_stops(
    page: playwright.Page, backend: BatchBackend
) -> None:
    backend.forward_seconds = 0.3  # slow enough to be stopped on a busy machine
    page.focus("#batch-prompts textarea")
    note = "document.querySelector('#batch .rv-figure dd.rv-sub')"
    page.evaluate(f"() => {{ {note}.style.height = '90px'; }}")  # as if it had many lines
    top = page.evaluate(TOP)
    begin_batch(page, lambda: page.keyboard.press("Control+Enter"), 3)
    heading = page.inner_text("#batch .rv-finding")
    assert re.fullmatch(r"3 prompts: .+, compared with .+", heading)
    assert page.evaluate(TOP) == pytest.approx(top, abs=1)  # nothing jumps when a run starts
    page.keyboard.press("Escape")
    page.wait_for_selector(f"{BATCH}[data-phase=stopped]")
    page.focus(".bv-side[data-side=a] .bv-list")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    readout = page.inner_text(".bv-side[data-side=a] .bv-readout")
    assert readout.startswith("Row 2, pass 2: ")
    assert re.search(r"\d+ stored · \d+ added · \d+ temporary", readout)
    assert page.inner_text("#batch .rv-live") == readout
    assert page.locator(".bv-side[data-side=b] .bv-cell").count() == 0
