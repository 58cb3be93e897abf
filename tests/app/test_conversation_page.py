"""A conversation as a visitor has it, on the real page over a scripted backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import Arrive, needs_browser, playwright
from live_page import LOADED, over
from scripted_page import ScriptedBackend, make_handlers, page_served
from test_given import chat

pytestmark = needs_browser
RACE, TURNS = "#race .mars-race", ".mars-conversation .ct-turn"
BOX = "#prompt textarea"
ASK = ".mars-conversation .ct-ask textarea"
"""Where the follow-up is typed, below the answer."""
HINT = "n => getComputedStyle(n, '::placeholder').color"
ANSWER = "Yes: ${HOME}<b>bold</b>."
PRESENTED = """() => {
  const race = document.querySelector("#race .mars-race");
  const { checkpoint, settings } = race.lineView.run.lanes[0].header;
  const detail = { kind: "settings", isKept: true, prompt: "Another's?", checkpoint, settings };
  race.dispatchEvent(new CustomEvent("mars-ask", { bubbles: true, detail }));
}"""
"""Run another prompt as the tour does, which leaves the prompt box as it is."""
ASKED = 'Say <img src="x" onerror="window.hacked = 1"> it.'


@pytest.fixture(scope="module")
def scripted_backend() -> ScriptedBackend:
    return ScriptedBackend(ANSWER, 0.001)


@pytest.fixture(scope="module")
def address(
    tmp_path_factory: pytest.TempPathFactory, scripted_backend: ScriptedBackend
) -> Iterator[str]:
    """A page with a checkpoint that can have conversations."""
    folder = tmp_path_factory.mktemp("page")
    with page_served(make_handlers(folder, scripted_backend, path=None, port=0)) as url:
        yield url


@pytest.fixture
def page(visit: Arrive) -> playwright.Page:
    return visit("?max_new_tokens=32")


def ask(page: playwright.Page, prompt: str, box: str = ASK, key: str = "Enter") -> None:
    """Ask, and wait until it is a turn that has ended."""
    page.fill(box, prompt)
    over(page, lambda: page.press(box, key))
    page.wait_for_selector(f"{TURNS}[aria-current=true]:enabled", state="attached")


def test_turns_follow_each_other(page: playwright.Page, scripted_backend: ScriptedBackend) -> None:
    def asked() -> tuple[int, ...]:
        """The prompt of both lanes of the latest race."""
        mars, ar = scripted_backend.prompts[-2:]
        assert mars == ar
        return mars

    assert page.locator(ASK).is_hidden()
    ask(page, ASKED, BOX, "Shift+Enter")
    assert asked() == tuple(chat(ASKED))
    tops = [page.locator(item).bounding_box()["y"] for item in (f"{RACE} .rv-panes", ASK)]
    assert tops == sorted(tops)  # the field is below the answer
    ask(page, "And?")
    assert page.input_value(ASK) == ""
    assert page.eval_on_selector(ASK, HINT) == page.eval_on_selector(BOX, HINT)
    assert asked() == tuple(chat(ASKED, ANSWER, "And?"))
    assert page.locator(f"{TURNS} .ct-question").all_inner_texts() == [ASKED, "And?"]
    assert page.locator(f"{TURNS} .ct-answer").all_inner_texts() == [ANSWER] * 2
    assert page.evaluate("window.hacked") is None
    page.click(f"{TURNS} >> nth=0")
    playwright.expect(page.locator(f"{RACE} .rv-prompt")).to_have_text(ASKED)
    assert page.get_attribute(f"{TURNS} >> nth=0", "aria-current") == "true"
    assert not page.locator(f"{RACE} .rv-foreign").is_visible()
    ask(page, "So?")  # behind the last turn, whichever is on show
    before = (ASKED, ANSWER, "And?", ANSWER, "So?")
    assert asked() == tuple(chat(*before))
    page.reload()
    page.wait_for_selector(f"{TURNS}[aria-current=true] >> text=So?")
    page.wait_for_selector(f"{RACE}[data-state=finished]")
    page.wait_for_function(LOADED)
    assert not page.locator(f"{RACE} .rv-foreign").is_visible()
    ask(page, "Why?")
    assert asked() == tuple(chat(*before, ANSWER, "Why?"))
    ask(page, "Else?", BOX, "Shift+Enter")  # the prompt box starts a new conversation
    assert asked() == tuple(chat("Else?"))
    assert page.locator(f"{TURNS} .ct-question").all_inner_texts() == ["Else?"]

    scripted_backend.forward_seconds = 0.6  # a busy machine is slow to press Stop
    page.fill(BOX, "One?")
    page.click("#run")
    page.wait_for_selector(f"{RACE}[data-state=running]")
    page.wait_for_selector(f"{TURNS}:disabled", state="attached")
    page.click("#stop")
    page.wait_for_selector(f"{RACE}[data-state=stopped]")
    scripted_backend.forward_seconds = 0.001
    page.wait_for_selector(f"{TURNS}:enabled", state="attached")
    written = page.locator(f"{TURNS} .ct-answer").text_content().removesuffix("…")
    ask(page, "Two?")  # a stopped answer is a turn
    assert ANSWER.startswith(written)
    assert asked() == tuple(chat("One?", written, "Two?"))

    over(page, lambda: page.evaluate(PRESENTED))
    page.wait_for_selector(ASK, state="hidden")  # it would not continue what is on show
    page.wait_for_selector(f"{RACE} .rv-foreign:visible")
    assert page.inner_text(f"{RACE} .rv-prompt") == "Another's?"
    page.click(f"{TURNS} >> nth=1")
    page.wait_for_selector(ASK)
    playwright.expect(page.locator(f"{RACE} .rv-prompt")).to_have_text("Two?")
