"""The tour over the real page: a run requested live, and the recording that replaces it."""

from __future__ import annotations

import pytest
from browser import Arrive, needs_browser, playwright
from live_page import set_knob
from scripted_page import TEXT, ScriptedBackend

from app.handlers import Handlers
from app.ui.recordings import FOLDER, read_value
from mars_runtime.runs import folds

MARK = ".mars-present .pr-mark"
SHOWN = """() => [...document.querySelector(".pr-lane").querySelectorAll(".rv-t")]
  .filter((t) => t.getClientRects().length).map((t) => t.textContent).join("")"""

pytestmark = needs_browser


@pytest.fixture
def page(visit: Arrive) -> playwright.Page:
    """The page with the tour open at its race, which can be run live."""
    made = visit()
    made.click("#present")
    made.wait_for_selector(".pr-stage")
    while not made.locator(".pr-lane").count():
        made.keyboard.press("PageDown")
    return made


def recorded() -> tuple[str, str]:
    """Prompt and text of the recording that is run live."""
    trace = read_value((FOLDER / "average.txt").read_text("utf-8"))["mars"]
    return trace.header.prompt, folds.text(trace)


SERVED = """() => {
  const { recorded } = document.querySelector("dialog.mars-present").presenter.scene;
  for (const lane of recorded.lanes) lane.header.checkpoint = "scripted";
}"""
"""The stop's recording becomes one of the only model that is served here."""
WAITED = """(ms) => {
  document.querySelector("dialog.mars-present").presenter.scene.live.waited = ms;
}"""
"""How long the run was waited for. A busy machine may need longer than the page is patient."""


def go_live(page: playwright.Page, waited: float) -> None:
    page.evaluate(SERVED)
    page.keyboard.press("l")
    page.evaluate(WAITED, waited)


def test_a_live_run_writes_into_the_tour_and_is_stopped_when_left(
    page: playwright.Page, scripted_backend: ScriptedBackend, served_handlers: Handlers
) -> None:
    scripted_backend.forward_seconds = 0.1  # it is still going when it is left
    set_knob(page, "tau", 0.6)
    before = page.input_value("#prompt textarea")
    go_live(page, waited=-1e9)
    page.wait_for_selector(f"{MARK}[data-kind=live]")
    page.wait_for_function(f"({SHOWN})().length > 12")
    assert TEXT.startswith(page.evaluate(SHOWN)[:12])
    header = page.evaluate(
        "document.querySelector('#race .mars-race').lineView.run.lanes[0].header"
    )
    settings = header["settings"]
    assert (header["prompt"], header["checkpoint"]) == (recorded()[0], "scripted")
    assert (settings["tau"], settings["lossless"], settings["max_new_tokens"]) == (0.3, True, 256)
    assert page.input_value("#prompt textarea") == before  # it is the visitor's
    page.keyboard.press("Escape")
    page.wait_for_selector("#race .mars-race[data-state=stopped]")
    page.wait_for_function("document.querySelector('#tau input[type=range]').value === '0.6'")
    assert page.input_value("#prompt textarea") == before


def test_a_late_run_is_replaced(page: playwright.Page, scripted_backend: ScriptedBackend) -> None:
    scripted_backend.forward_seconds = 1.0
    go_live(page, waited=3001)
    page.wait_for_selector(f"{MARK}[data-kind=fallback]")
    scripted_backend.forward_seconds = 0.001
    prompt, text = recorded()
    assert prompt in page.inner_text(".pr-prompt")
    page.wait_for_function(f"(text) => ({SHOWN})() === text", arg=text)

    while not page.locator(".pr-ask").count():  # the audience's prompt
        page.keyboard.press("PageDown")
    page.evaluate(SERVED)
    page.fill(".pr-ask input", "What does the room ask?")
    page.press(".pr-ask input", "Enter")
    page.evaluate(WAITED, -1e9)
    page.wait_for_selector(f"{MARK}[data-kind=live-over]")
    assert "What does the room ask?" in page.inner_text(".pr-prompt")
    assert TEXT.startswith(page.evaluate(SHOWN)[:12])
