"""The Frontier tab in a real browser: measured ways, the visitor's run, a point opened as a run.

One visitor's page, which each test leaves as the next one needs it. Skipped where Debian's chromium
is not installed. Nothing here needs weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import needs_browser, opened, playwright
from live_page import open_tab, over, run, wait_loaded
from scripted_page import ScriptedBackend

from app.tradeoff import frontier
from app.tradeoff.frontier import Failure
from mars_runtime.settings import DecodeSettings

pytestmark = needs_browser

VIEW = "#frontier .mars-frontier"
HEADERS = "document.querySelector('#race .mars-race').lineView.run.lanes.map((l) => l.header)"
AR = {"method": "ar", "tau": 1.0, "block_size": 1}
BOLD = {"tau": 0.5, "block_size": 4}
FAILURE = Failure(
    "Too bold", "See why.", "Fail.", "scripted", DecodeSettings(tau=0.5, block_size=4)
)
SPECULATIVE = {"method": "speculative", "draft": "a-draft-of-a-long-name", "masked": "both"}
LOSSLESS = {"tau": 0.0, "block_size": 8, "lossless": True, "mask_layout": "every"}


def estimate(value: float) -> dict[str, float]:
    return {"value": value, "low": value * 0.9, "high": min(1.0, value * 1.1)}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Results of the page's only checkpoint, and the paper's own."""
    folder = tmp_path_factory.mktemp("results")
    ways = [(AR, 1.0, 1.0), (BOLD, 0.6, 1.8), (LOSSLESS, 1.0, 2.4)]
    rows = [
        {"checkpoint": "scripted", "settings": way, "agreement": quality, "tpf": estimate(tpf)}
        for way, quality, tpf in ways
    ]
    drafted = {**rows[0], "settings": SPECULATIVE}
    judged_rows = [{**row, "accuracy": estimate(0.7)} for row in (*rows, drafted)]
    (folder / "chat_evaluation.json").write_text(json.dumps({"requests": rows}), encoding="utf-8")
    (folder / "evaluation.json").write_text(json.dumps({"averages": judged_rows}), encoding="utf-8")
    (folder / "paper.json").write_bytes(Path(frontier.RESULTS / "paper.json").read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frontier, "RESULTS", folder)
        patch.setattr(frontier, "failures", lambda: [FAILURE])
        yield


@pytest.fixture(scope="module")
def page(
    results: None, address: str, scripted_backend: ScriptedBackend
) -> Iterator[playwright.Page]:
    scripted_backend.forward_seconds = 0.001
    link = "?prompt=Say+it.&tau=0.95&lossless=false&max_new_tokens=24"
    with opened(address + link, 1280, 900) as made:
        wait_loaded(made)
        made.wait_for_function("document.querySelector('#tau input[type=range]').value === '0.95'")
        yield made


@pytest.fixture(autouse=True)
def _opened(page: playwright.Page) -> None:
    open_frontier(page)


def open_frontier(page: playwright.Page) -> None:
    """At what was measured of the page's own checkpoint."""
    open_tab(page, "frontier")
    page.select_option(f"{VIEW} select", index=0)
    page.wait_for_selector(f"{VIEW}[data-points='3']")


def test_every_method_is_in_chart_and_table(page: playwright.Page) -> None:
    names = ["AR", "MARS τ=0.5 B=4", "lossless τ=0 B=8 groups"]
    drawn = page.locator(f"{VIEW} .fv-point")
    assert [drawn.nth(n).get_attribute("data-name") for n in range(3)] == names
    assert page.locator(f"{VIEW} .fv-open").all_inner_texts() == names[::-1]
    best = page.locator(f"{VIEW} .fv-point[data-best=true]")
    assert best.get_attribute("data-name") == names[2]
    assert "Runs from the Live tab appear here." in page.inner_text(f"{VIEW} .fv-said")
    assert page.locator(f"{VIEW} .fv-layer").is_hidden()  # the paper's agreement was not measured
    chart = page.locator(f"{VIEW} .fv-plot").bounding_box()
    named = page.locator(f"{VIEW} .fv-way").all()
    assert len(named) >= 1
    for box in (item.bounding_box() for item in named):  # no name is cut
        assert chart["x"] <= box["x"]
        assert box["x"] + box["width"] <= chart["x"] + chart["width"]


def test_the_visitors_run_is_a_point_and_a_point_opens_as_a_run(page: playwright.Page) -> None:
    open_tab(page, "live")
    run(page)
    open_frontier(page)
    assert page.locator(f"{VIEW} circle.fv-own").count() == 1
    said = page.inner_text(f"{VIEW} .fv-said")
    assert "1.00 tokens per forward pass, the same text as AR" in said
    assert "No listed method matches its settings." in said
    over(page, page.locator(f"{VIEW} .fv-point[data-name='MARS τ=0.5 B=4'] .fv-dot").click)
    header, _ = page.evaluate(HEADERS)
    assert header["prompt"] == "Say it."
    assert header["checkpoint"] == "scripted"
    chosen = header["settings"]
    assert (chosen["tau"], chosen["block_size"], chosen["lossless"]) == (0.5, 4, False)
    open_frontier(page)
    said = page.inner_text(f"{VIEW} .fv-said")
    assert "4.00 tokens per forward" in said
    assert "Matching method: MARS τ=0.5 B=4." in said
    page.select_option(f"{VIEW} select", index=1)
    assert page.locator(f"{VIEW} path.fv-own").count() == 1


def test_a_way_of_the_table_and_what_goes_wrong_open_as_runs(page: playwright.Page) -> None:
    page.locator(f"{VIEW} .fv-open", has_text="lossless").focus()
    assert "lossless τ=0 B=8 groups" in page.inner_text(f"{VIEW} .fv-readout")
    over(page, lambda: page.keyboard.press("Enter"))
    settings = page.evaluate(HEADERS)[0]["settings"]
    assert (settings["lossless"], settings["mask_layout"]) == (True, "every")
    open_frontier(page)
    assert page.inner_text(f"{VIEW} .fv-failures li") == "Too bold: See why."
    over(page, page.locator(f"{VIEW} .fv-failure", has_text="Too bold").click)
    mars, plain = page.evaluate(HEADERS)
    assert (mars["prompt"], mars["settings"]["tau"], mars["settings"]["lossless"]) == (
        *("Fail.", 0.5, False),
    )
    assert plain["settings"]["method"] == "ar"
