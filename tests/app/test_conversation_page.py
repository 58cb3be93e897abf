"""A conversation as a visitor has it, on the real page over a scripted backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import quote_plus

import live_page
import pytest
from browser import needs_browser, playwright, visiting
from live_page import LOADED, SETTINGS, set_knob
from scripted_page import ScriptedBackend, make_handlers
from test_given import chat

from app.handlers import Handlers
from mars_runtime.engine.request import Request
from mars_runtime.events import Event
from mars_runtime.settings import DecodeSettings

pytestmark = needs_browser
RACE, TURNS = "#race .mars-race", ".mars-conversation .ct-turn"
BOX = "#prompt textarea"
ASK = ".mars-conversation .ct-ask textarea"
"""Where the next question is typed, below the answer."""
NEW = ".mars-conversation .ct-new"
ANSWER = "Yes: ${HOME}<b>bold</b>."
ASKED = 'Say <img src="x" onerror="window.hacked = 1"> it.'
LINK = """async () => {
  let link = "";
  const writeText = async (text) => { link = text; };
  Object.defineProperty(navigator, "clipboard", { value: { writeText }, configurable: true });
  await window.mars.share("", ["prompt"], [""]);
  return link;
}"""


class TwoAnswers(ScriptedBackend):
    """MARS writes another text than AR if a test requests it."""

    of_mars = ""

    def decode(self, request: Request, settings: Callable[[], DecodeSettings]) -> Iterator[Event]:
        if not self.of_mars or settings().method == "ar":
            return super().decode(request, settings)
        other = ScriptedBackend(self.of_mars, self.forward_seconds)
        other.prompts = self.prompts
        return other.decode(request, settings)

    def asked(self) -> tuple[int, ...]:
        """The prompt of both lanes of the latest race."""
        mars, ar = self.prompts[-2:]
        assert mars == ar
        return mars


@pytest.fixture(scope="module")
def scripted_backend() -> TwoAnswers:
    return TwoAnswers(ANSWER, 0.001)


@pytest.fixture(scope="module")
def served_handlers(
    tmp_path_factory: pytest.TempPathFactory, scripted_backend: ScriptedBackend
) -> Iterator[Handlers]:
    """A page with a checkpoint that can have conversations."""
    folder = tmp_path_factory.mktemp("page")
    made = make_handlers(folder, scripted_backend, path=None, port=0)
    yield made
    made.engines.close()


@pytest.fixture(scope="module")
def open_page(address: str) -> Iterator[playwright.Page]:
    """The page, at full speed; fails on script errors and strangers."""
    with visiting() as take:
        made = take(address)
        made.set_viewport_size({"width": 1440, "height": 1000})
        made.goto(f"{address}?max_new_tokens=32")
        made.wait_for_selector(f"{RACE}[data-state=empty]")
        made.wait_for_function(LOADED)
        set_knob(made, "pace", 0)
        yield made


@pytest.fixture
def page(open_page: playwright.Page, scripted_backend: TwoAnswers) -> playwright.Page:
    """Without a conversation."""
    scripted_backend.capacity, scripted_backend.of_mars = 100_000, ""
    scripted_backend.prompts.clear()
    if open_page.locator(NEW).is_visible():
        open_page.click(NEW)
    open_page.wait_for_selector(f"{RACE}[data-state=empty]")
    return open_page


def over(page: playwright.Page, begin: Callable[[], object]) -> None:
    """Begin a run and wait until it is a turn that has ended."""
    live_page.over(page, begin)
    page.wait_for_selector(f"{TURNS}[aria-current=true] .ct-figure:not(:empty)")


def ask(page: playwright.Page, *prompts: str) -> None:
    for prompt in prompts:
        page.fill(ASK, prompt)
        over(page, lambda: page.press(ASK, "Enter"))


def press(page: playwright.Page, what: str, number: int) -> None:
    page.click(f"[data-key='{what} {number}']")


def questions(page: playwright.Page) -> list[str]:
    return page.locator(f"{TURNS} .ct-question").all_inner_texts()


def wait_shown(page: playwright.Page, prompt: str) -> None:
    """Until the run of this prompt is the one that is shown."""
    playwright.expect(page.locator(f"{RACE} .rv-prompt")).to_have_text(prompt)


def test_turns_follow_each_other_any_is_shown_again_and_a_reload_keeps_them(
    page: playwright.Page, address: str, scripted_backend: TwoAnswers
) -> None:
    assert page.get_attribute(ASK, "placeholder") == "Ask a question"
    ask(page, ASKED)
    assert page.input_value(ASK) == ""
    assert page.get_attribute(ASK, "placeholder") == "Ask a follow-up"
    tops = [page.locator(item).bounding_box()["y"] for item in (f"{RACE} .rv-panes", TURNS, ASK)]
    assert tops == sorted(tops)  # the box is below the answer
    assert scripted_backend.asked() == tuple(chat(ASKED))
    ask(page, "And?")
    assert scripted_backend.asked() == tuple(chat(ASKED, ANSWER, "And?"))
    assert questions(page) == [ASKED, "And?"]
    assert page.locator(f"{TURNS} .ct-answer").all_inner_texts() == [ANSWER] * 2
    assert page.evaluate("window.hacked") is None
    assert page.inner_text(f"{RACE} .rv-context summary") == "Turn 2 of a conversation."
    page.click(f"{RACE} .rv-context summary")
    page.wait_for_selector(f"{RACE} .rv-earlier li p")  # filled once it has opened
    assert page.locator(f"{RACE} .rv-earlier li p").all_inner_texts() == [ASKED, ANSWER]
    press(page, "show", 1)
    wait_shown(page, ASKED)
    assert page.get_attribute(f"{TURNS} >> nth=0", "aria-current") == "true"
    assert not page.locator(f"{RACE} .rv-foreign").is_visible()
    assert page.evaluate(LINK).endswith("?prompt=" + quote_plus(ASKED, safe="*"))
    ask(page, "So?")  # a follow-up goes behind the last turn, whichever is on show
    assert scripted_backend.asked() == tuple(chat(ASKED, ANSWER, "And?", ANSWER, "So?"))
    page.reload()
    page.wait_for_selector(f"{TURNS}[aria-current=true] >> text=So?")
    assert questions(page) == [ASKED, "And?", "So?"]
    page.wait_for_selector(f"{RACE}[data-state=finished]")
    wait_shown(page, "So?")
    page.wait_for_function(LOADED)
    ask(page, "Why?")
    before = chat(ASKED, ANSWER, "And?", ANSWER, "So?", ANSWER, "Why?")
    assert scripted_backend.asked() == tuple(before)
    page.goto(f"{address}?max_new_tokens=32")  # as by a link
    page.wait_for_selector(f"{RACE}[data-state=empty]")
    assert not page.locator(TURNS).count()
    page.wait_for_function(LOADED)


def test_the_answer_to_a_follow_up_is_in_the_window(page: playwright.Page) -> None:
    ask(page, "One?")
    top = "panes => panes.getBoundingClientRect().top"
    panes = page.locator(f"{RACE} .rv-panes")
    for width, height in ((1280, 720), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        page.locator(ASK).evaluate("box => box.scrollIntoView({ block: 'start' })")
        assert panes.evaluate(top) < 0
        ask(page, "And?")
        assert 0 <= panes.evaluate(top) <= height / 2 + 100
    page.set_viewport_size({"width": 1440, "height": 1000})


def test_an_edited_question_and_a_branch_replace_the_turns_after_them(
    page: playwright.Page, scripted_backend: TwoAnswers
) -> None:
    ask(page, "One?", "Two?", "Three?")
    press(page, "edit", 2)
    box = page.locator(f"{TURNS} textarea")
    assert box.input_value() == "Two?"
    box.press("Escape")
    assert questions(page) == ["One?", "Two?", "Three?"]
    press(page, "edit", 2)
    box.fill("Another?")
    over(page, lambda: box.press("Control+Enter"))
    assert questions(page) == ["One?", "Another?"]
    assert scripted_backend.asked() == tuple(chat("One?", ANSWER, "Another?"))
    ask(page, "Three?")
    press(page, "show", 2)
    wait_shown(page, "Another?")

    branch = {"lane": {"name": "mars"}, "token": 5, "id": 78}
    call = "([root, data]) => document.querySelector(root).lineView.ask('branch', data)"
    over(page, lambda: page.evaluate(call, [RACE, branch]))
    before = tuple(chat("One?", ANSWER, "Another?"))
    assert set(scripted_backend.prompts[-2:]) == {(*before, *b"Yes: N"), (*before, *b"Yes: $")}
    assert questions(page) == ["One?", "Another?"]
    ask(page, "Three?")
    given = "Yes: N" + ANSWER
    assert scripted_backend.asked() == tuple(chat("One?", ANSWER, "Another?", given, "Three?"))


def test_a_question_is_sent_again_with_the_settings_of_now(
    page: playwright.Page, scripted_backend: TwoAnswers
) -> None:
    ask(page, "One?", "Two?")
    set_knob(page, "tau", 0.5)
    press(page, "edit", 1)
    over(page, lambda: press(page, "send", 1))
    assert scripted_backend.asked() == tuple(chat("One?"))
    assert questions(page) == ["One?"]
    assert "τ 0.5" in page.get_attribute(f"{RACE} {SETTINGS}", "title")
    ask(page, "Two?")
    page.fill(BOX, "")
    over(page, lambda: page.click("#run"))  # with nothing in the box: the question on show again
    assert questions(page) == ["One?", "Two?"]
    assert scripted_backend.asked() == tuple(chat("One?", ANSWER, "Two?"))
    set_knob(page, "tau", 0)


def test_a_conversation_nearly_full_is_announced_and_then_says_what_it_left_out(
    page: playwright.Page, scripted_backend: TwoAnswers
) -> None:
    """One? takes 23 ids and is answered by 24 tokens; One?, its answer and Two? take 72."""
    scripted_backend.capacity = 72 + 32
    ask(page, "One?")
    room = page.inner_text(".mars-conversation .ct-room")
    assert room.startswith("Nearly full: 57 tokens of 104 left")
    ask(page, "Two?", "Six?")
    assert scripted_backend.asked() == tuple(chat("Two?", ANSWER, "Six?"))
    notice = "Turn 3 of a conversation. The oldest turn did not fit and was left out."
    assert page.inner_text(f"{RACE} .rv-context summary") == notice
    assert questions(page) == ["One?", "Two?", "Six?"]


def test_both_lanes_share_ars_answers_or_keep_each_its_own(
    page: playwright.Page, scripted_backend: TwoAnswers
) -> None:
    scripted_backend.of_mars = "No."
    ask(page, "One?")
    row = page.locator(TURNS)
    assert row.locator(".ct-answer").inner_text() == ANSWER
    assert "MARS wrote another answer" in row.inner_text()
    ask(page, "Two?")
    assert scripted_backend.asked() == tuple(chat("One?", ANSWER, "Two?"))
    page.select_option(".mars-conversation select", "own")
    assert row.locator(".ct-answer").all_inner_texts() == ["No."] * 2
    press(page, "edit", 2)
    over(page, lambda: press(page, "send", 2))
    expected = {tuple(chat("One?", answer, "Two?")) for answer in ("No.", ANSWER)}
    assert set(scripted_backend.prompts[-2:]) == expected
    page.select_option(".mars-conversation select", "ar")


def test_what_begins_a_new_conversation_and_what_does_not(
    page: playwright.Page, scripted_backend: TwoAnswers
) -> None:
    ask(page, "One?")
    over(page, lambda: page.click(".chips:visible button >> nth=0"))
    (question,) = questions(page)
    assert scripted_backend.asked() == tuple(chat(question))
    page.click(NEW)
    page.wait_for_selector(f"{RACE}[data-state=empty]")
    assert not page.locator(TURNS).count()
    assert page.evaluate(f"document.activeElement === document.querySelector('{ASK}')")
    page.fill(BOX, "Else?")
    over(page, lambda: page.click("#run"))
    assert scripted_backend.asked() == tuple(chat("Else?"))
    assert page.input_value(BOX) == "Else?"
    page.fill(ASK, "A line")
    page.press(ASK, "Shift+Enter")
    over(page, lambda: page.click(".mars-conversation .ct-send"))
    assert scripted_backend.asked() == tuple(chat("Else?", ANSWER, "A line\n"))
    page.fill(ASK, "x" * 8001)
    page.press(ASK, "Enter")
    page.wait_for_selector("#prompt :text('Shorten the prompt')")
    assert len(page.input_value(ASK)) == 8001
    ask(page, "Six?")
    assert questions(page) == ["Else?", "A line", "Six?"]


def test_a_stopped_answer_is_a_turn_that_can_be_followed(
    page: playwright.Page, scripted_backend: TwoAnswers
) -> None:
    scripted_backend.forward_seconds = 0.6  # a busy machine is slow to press Stop
    page.fill(BOX, "One?")
    page.click("#run")
    page.wait_for_selector(f"{RACE}[data-state=running]")
    assert page.is_disabled("[data-key='edit 1']")
    page.click("#stop")
    page.wait_for_selector(f"{RACE}[data-state=stopped]")
    scripted_backend.forward_seconds = 0.001
    page.wait_for_selector("[data-key='edit 1']:enabled")
    written = page.inner_text(f"{TURNS} .ct-answer")
    ask(page, "Two?")
    assert ANSWER.startswith(written)
    assert scripted_backend.asked() == tuple(chat("One?", written, "Two?"))


def test_axe_finds_nothing_serious_in_a_conversation(page: playwright.Page) -> None:
    axe = pytest.importorskip("test_axe")
    ask(page, "One?")
    press(page, "edit", 1)
    problems = axe.in_both_themes(page, "a question edited", within="#stage")
    page.locator(f"{TURNS} textarea").press("Escape")
    assert not problems, "\n".join(problems)
