"""What tests of the conversation share: two answers, and what a visitor does and sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import live_page
from browser import playwright
from scripted_page import ScriptedBackend

from mars_runtime.engine.request import Request
from mars_runtime.events import Event
from mars_runtime.settings import DecodeSettings

RACE, TURNS = "#race .mars-race", ".mars-conversation .ct-turn"
BOX = "#prompt textarea"
ASK = ".mars-conversation .ct-ask textarea"
"""Where the next question is typed, below the answer."""
ANSWER = "Yes: ${HOME}<b>bold</b>."


class TwoAnswers(ScriptedBackend):
    """MARS writes something else than AR where a test says so."""

    of_mars = ""

    def decode(self, request: Request, settings: Callable[[], DecodeSettings]) -> Iterator[Event]:
        if not self.of_mars or settings().method == "ar":
            return super().decode(request, settings)
        other = ScriptedBackend(self.of_mars, self.forward_seconds)
        other.prompts = self.prompts
        return other.decode(request, settings)


def over(page: playwright.Page, begin: Callable[[], object]) -> None:
    """Begin a run and wait until it is a turn that has ended."""
    live_page.over(page, begin)
    page.wait_for_selector(f"{TURNS}[aria-current=true] .ct-figure:not(:empty)")


def ask(page: playwright.Page, prompt: str) -> None:
    page.fill(ASK, prompt)
    over(page, lambda: page.press(ASK, "Enter"))


def press(page: playwright.Page, what: str, number: int) -> None:
    page.click(f"[data-key='{what} {number}']")


def questions(page: playwright.Page) -> list[str]:
    return page.locator(f"{TURNS} .ct-question").all_inner_texts()


def wait_shown(page: playwright.Page, prompt: str) -> None:
    """Until the run of this prompt is the one that is shown."""
    playwright.expect(page.locator(f"{RACE} .rv-prompt")).to_have_text(prompt)


def asked(backend: ScriptedBackend) -> tuple[int, ...]:
    """The prompt of both lanes of the latest race."""
    mars, ar = backend.prompts[-2:]
    assert mars == ar
    return mars
