"""Methods side by side on the real page over a scripted backend: chosen, raced, linked, asked."""

from __future__ import annotations

import pytest
from browser import Arrive, needs_browser, playwright
from scripted_page import ScriptedBackend

pytestmark = needs_browser
ROOT = "#race .mars-race"
PANE = f"{ROOT} .rv-pane[data-lane={{}}]"
CHOICE = "#view label:has-text('{}') input"
OVER = f"{ROOT}[data-state=finished]"


@pytest.fixture
def page(arrive: Arrive, address: str, scripted_backend: ScriptedBackend) -> playwright.Page:
    """The page opened by a link for three methods, after their race."""
    scripted_backend.forward_seconds = 0.001
    link = "?prompt=Say+it.&tau=0.5&max_new_tokens=40&lanes=jacobi,mars,ar"
    opened = arrive(address + link, 1280, 900)
    opened.wait_for_selector(ROOT)
    opened.wait_for_function("!document.querySelector('#footer').innerText.startsWith('Load')")
    opened.click("#more > button")
    opened.wait_for_function("document.querySelectorAll('#view input:checked').length === 3")
    opened.click("#run")
    opened.wait_for_selector(f"{OVER}[data-lanes='3']")
    return opened


def test_jacobi_is_raced_beside_the_others_and_asked_again(page: playwright.Page) -> None:
    assert page.locator(f"{ROOT} .rv-head h3").all_inner_texts() == ["MARS", "plain AR", "Jacobi"]
    said = {lane: page.inner_text(f"{PANE.format(lane)} .rv-head") for lane in ("mars", "jacobi")}
    assert "τ" in said["mars"]
    assert "τ" not in said["jacobi"]
    assert "B 4" in said["jacobi"]
    assert "same text" in said["jacobi"]
    texts = [page.inner_text(f"{PANE.format(lane)} .rv-text") for lane in ("ar", "jacobi")]
    assert texts[0] == texts[1] != ""
    colours = page.eval_on_selector_all(f"{ROOT} .rv-pane", "all => all.map(p => p.dataset.colour)")
    assert len(set(colours)) == 3
    assert page.locator(f"{ROOT} .rv-run b").all_inner_texts() == ["MARS", "plain AR", "Jacobi"]
    # A lane alone: what panels and asks speak of is then its own.
    for title in ("MARS", "plain AR"):
        page.uncheck(CHOICE.format(title))
    page.click("#run")
    page.wait_for_selector(f"{OVER}[data-lanes='1']")
    page.hover(f"{PANE.format('jacobi')} .rv-t >> nth=3")
    page.wait_for_selector(f"{ROOT} .rv-card:not([hidden])")
    card = page.inner_text(f"{ROOT} .rv-card")
    assert "AR's own" in card or "Nothing was guessed" in card
    tau = page.input_value("#tau input[type=range]")
    before = page.get_attribute(ROOT, "data-run")
    page.evaluate(f"document.querySelector('{ROOT}').lineView.ask('run', {{}})")
    page.wait_for_selector(f"{OVER}[data-lanes='1']:not([data-run='{before}'])")
    assert page.input_value("#tau input[type=range]") == tau
    assert page.is_checked(CHOICE.format("Jacobi"))


def test_without_a_method_nothing_runs_and_one_sentence_says_why(page: playwright.Page) -> None:
    for title in ("MARS", "plain AR", "Jacobi"):
        page.uncheck(CHOICE.format(title))
    page.click("#run")
    page.wait_for_selector("text=Choose 1 to 4 methods to run")
