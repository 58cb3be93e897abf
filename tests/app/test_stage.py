"""A result and what visitors do next to it: the stage never refers to another prompt."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import needs_browser, opened, playwright, settle
from live_page import ROOT, choose, over, run, set_knob, wait_loaded
from scripted_page import ScriptedBackend

pytestmark = needs_browser
PROMPT, FOREIGN = f"{ROOT} .rv-prompt", f"{ROOT} .rv-foreign"
BOX = "#prompt textarea"
PASTE = """([box, text]) => {
  document.querySelector(box).focus();
  document.execCommand("insertText", false, text);
}"""
WATCH = """root => {
  const places = (window.places = new Set());
  const look = () => {
    if (window.places !== places) return;
    const node = document.querySelector(root);
    const parts = [".rv-player", ".rv-panes", ".rv-side"].map((part) => node.querySelector(part));
    places.add(parts.map((part) => part.offsetTop).join());
    requestAnimationFrame(look);
  };
  look();
}"""
"""Note where lanes and texts are, in each frame."""


@pytest.fixture(autouse=True)
def _quickly(scripted_backend: ScriptedBackend) -> None:
    scripted_backend.forward_seconds = 0.001


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[playwright.Page]:
    with opened(f"{address}?max_new_tokens=40&system=<b>Be brief.</b>") as made:
        wait_loaded(made)
        yield made


def wait_foreign(page: playwright.Page, is_so: bool) -> None:
    page.wait_for_selector(f"{ROOT} .rv-asked[data-foreign={str(is_so).lower()}]", state="attached")
    assert page.locator(FOREIGN).is_visible() == is_so


def test_a_long_paste_is_kept_and_refused_in_a_sentence(page: playwright.Page) -> None:
    page.fill(BOX, "")
    page.evaluate(PASTE, [BOX, "long " * 1800])
    assert len(page.input_value(BOX)) == 9000
    page.click("#run")
    refusal = page.locator("#prompt :text('Shorten the prompt to at most 8,000')")
    refusal.wait_for()
    assert page.get_attribute(ROOT, "data-state") == "empty"
    for size in "35":  # the error message stays while other things are answered
        with page.expect_response("**/run/predict*"):
            choose(page, "block_size", size)
        settle(page)
        assert refusal.is_visible()
    page.fill(BOX, "Short.")
    refusal.wait_for(state="detached")


def test_a_comma_and_a_cleared_box(page: playwright.Page) -> None:
    set_knob(page, "tau", 0.5)
    box, slider = (page.locator(f"#tau input[type={kind}]") for kind in ("number", "range"))
    box.click(click_count=3)
    page.keyboard.type("0,8")
    page.keyboard.press("Tab")
    playwright.expect(slider).to_have_value("0.8")
    box.click(click_count=3)
    page.keyboard.press("Backspace")
    assert box.input_value() == ""
    page.keyboard.press("Tab")
    playwright.expect(box).to_have_value("0.8")
    assert slider.input_value() == "0.8"


def test_a_result_carries_its_prompt(page: playwright.Page) -> None:
    run(page, "Say <b>it</b>.\nTwice.")
    assert page.inner_text(PROMPT) == "Say <b>it</b>.\nTwice."
    for setting in ("limit 40 tokens", "<b>Be brief.</b>"):
        assert setting in page.inner_text(f"{ROOT} .rv-once")
    wait_foreign(page, False)
    page.fill(BOX, "Say something else.")
    wait_foreign(page, True)
    assert page.inner_text(PROMPT) == "Say <b>it</b>.\nTwice."
    page.fill(BOX, "Say <b>it</b>.\nTwice.")
    wait_foreign(page, False)
    assert not page.locator(".mars-conversation").is_visible()  # a model of single tasks has none

    over(page, lambda: page.click("#examples .chip:visible >> nth=0"))
    wait_foreign(page, False)
    assert page.inner_text(PROMPT) == page.input_value(BOX)


def test_nothing_jumps_when_run_is_pressed(
    page: playwright.Page, scripted_backend: ScriptedBackend
) -> None:
    """The lanes and their texts stay in place: while a prompt is typed, and during its run."""
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        scripted_backend.forward_seconds = 0.001
        run(page, f"Say it at {width}.")
        page.evaluate(WATCH, ROOT)
        page.fill(BOX, "Say something else.")
        page.wait_for_selector(FOREIGN)
        assert page.locator(FOREIGN).evaluate("n => n.scrollWidth <= n.clientWidth")  # all of it
        scripted_backend.forward_seconds = 0.01
        run(page)
        assert page.locator(f"{ROOT} .rv-status").evaluate("n => n.scrollWidth <= n.clientWidth")
        assert len(page.evaluate("[...window.places]")) == 1
