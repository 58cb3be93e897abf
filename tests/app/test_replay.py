"""A run saved as a page of its own: opened from a disk, the network off, it shows the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import needs_browser, playwright, shared, visiting
from scripted_page import TEXT, ScriptedBackend

ROOT = "#race .mars-race"
HOSTILE = "Say </script><script>alert(1)</script><!-- ${x} {{y}} <b>it</b>."
SHOWN = """(root) => {
  const all = (what) => [...root.querySelectorAll(what)];
  const { state, steps, lanes, at } = root.dataset;
  return {
    data: { state, steps, lanes, at },
    texts: all(".rv-text").map((node) => node.innerText),
    tokens: all(".rv-t").map((node) => [node.className, node.textContent]),
    chunks: all(".rv-c").map((node) => [node.className, node.dataset.n || ""]),
    heads: all(".rv-head h3, .rv-head .rv-num, .rv-verdict").map((node) => node.textContent),
    said: all(".rv-status, .rv-note, .rv-prompt, .rv-once").map((n) => n.innerText),
    figures: all(".rv-figures, .rv-env, .rv-legend").map((n) => n.innerText),
    place: root.querySelector(".pl-position").innerText,
    card: root.querySelector(".rv-card").innerText,
    panel: all("[role=tabpanel]:not([hidden])").map((node) => node.textContent),
    charts: all(".rv-plot").map(({ data }) => JSON.stringify(data.map(({ x, y }) => [x, y]))),
  };
}"""

pytestmark = needs_browser


@pytest.fixture(scope="module")
def live(address: str, scripted_backend: ScriptedBackend) -> Iterator[playwright.Page]:
    """The page after a race whose tau was low, so that forwards took several tokens."""
    scripted_backend.text = TEXT[:160]
    with visiting() as take:
        page = take(address)
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(address)
        page.wait_for_selector(f"{ROOT}[data-state=empty]")
        page.fill("#tau input[type=number]", "0.5")
        page.fill("#prompt textarea", HOSTILE)
        page.evaluate("window.mars.answers = []")  # what only a server can answer, no file offers
        page.click("#run")
        wait_until_drawn(page)
        yield page


@pytest.fixture(scope="module")
def saved(live: playwright.Page, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that the export menu gives."""
    live.click(f"{ROOT} .ex-menu summary")
    with live.expect_download() as begun:
        live.click(f"{ROOT} .ex-menu button:has-text('HTML')")
    file = tmp_path_factory.mktemp("saved") / begun.value.suggested_filename
    begun.value.save_as(file)
    live.keyboard.press("Escape")
    return file


@pytest.fixture(scope="module")
def replay(saved: Path) -> Iterator[playwright.Page]:
    """The file, opened without a network; fails the tests if it asks for anything or breaks."""
    asked: list[str] = []
    context = shared().browser.new_context(offline=True, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(90_000)
    page = context.new_page()
    page.on("pageerror", lambda error: asked.append(str(error)))
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(saved.as_uri())
    wait_until_drawn(page)
    yield page
    assert asked == [saved.as_uri()]
    context.close()


def wait_until_drawn(page: playwright.Page) -> None:
    page.wait_for_selector(".mars-race[data-state=finished]")
    page.locator(".mars-race .rv-plot.js-plotly-plot").nth(2).wait_for()


def shown(page: playwright.Page) -> dict[str, Any]:
    """Everything that a visitor sees of the run, once its charts have caught up."""
    page.wait_for_timeout(700)
    return page.locator(".mars-race .rv-panes >> xpath=..").first.evaluate(SHOWN)


def test_a_saved_replay_shows_what_the_page_showed(
    live: playwright.Page, replay: playwright.Page
) -> None:
    before, after = shown(live), shown(replay)
    assert len(before["tokens"]) > 100
    assert any("rv-n4" in name for name, _ in before["chunks"])
    assert max(map(len, before["charts"])) > 50
    assert after == before


def test_the_same_steps_lead_to_the_same_place(
    live: playwright.Page, replay: playwright.Page
) -> None:
    for page in (live, replay):
        page.focus(".rv-pane[data-lane=mars] .rv-text")
        for key in ("Home", "ArrowRight", "ArrowDown", "ArrowDown", "Enter"):
            page.keyboard.press(key)
    before, after = shown(live), shown(replay)
    assert "forward 3" in before["card"]
    assert after == before
    for page in (live, replay):
        page.keyboard.press("Escape")
        page.keyboard.press("Escape")
        page.click(".mars-race [aria-label='To the start']")
        for _ in range(5):
            page.click(".mars-race [aria-label='One forward on']")
    before, after = shown(live), shown(replay)
    assert before["data"]["at"] == "5"
    assert after == before
    for page in (live, replay):
        page.click(".mars-race [aria-label='To the end']")


def test_every_panel_says_the_same(live: playwright.Page, replay: playwright.Page) -> None:
    tabs = live.locator(f"{ROOT} .rv-tab").all_inner_texts()
    assert replay.locator(".mars-race .rv-tab").all_inner_texts() == tabs
    for tab in tabs:
        for page in (live, replay):
            page.click(f".mars-race .rv-tab:has-text('{tab}')")
        assert shown(replay)["panel"] == shown(live)["panel"]


def test_what_was_typed_and_written_stays_text(replay: playwright.Page) -> None:
    assert replay.inner_text(".rv-prompt") == HOSTILE
    assert replay.locator(":is(h1, .rv-prompt, .rv-text) :is(b, script)").count() == 0
    assert "${HOME}<b>bold</b>" in "".join(
        replay.locator(".rv-pane[data-lane=mars] .rv-t").all_text_contents()
    )


def test_a_replay_offers_no_replay_and_asks_no_server(replay: playwright.Page) -> None:
    assert replay.evaluate("window.mars.answers") is None
    replay.click(".ex-menu summary")
    replay.locator(".ex-menu button").first.wait_for()
    offers = replay.locator(".ex-menu button").all_inner_texts()
    assert "JSONL" in offers
    assert "HTML" not in offers
    replay.keyboard.press("Escape")
    assert replay.inner_text(".rv-recorded").startswith("recorded 20")
