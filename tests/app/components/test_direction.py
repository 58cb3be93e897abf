"""Arabic and Hebrew start at the right edge, paragraph by paragraph, wherever text is shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright
from panel_browser import ROOT, put, settle, still_page
from race_browser import MARS

pytestmark = needs_browser
ARABIC = "كتب الولد رسالة إلى أمه."
ENGLISH = "An English line."
HEBREW = "שלום לכולם, זה טקסט בעברית."
TEXT = f"{ARABIC}\n\n{ENGLISH}\n\n- {HEBREW}\n"
GAPS = """([pane, word]) => {
  const tokens = [...document.querySelectorAll(`${pane} .rv-t`)];
  const text = tokens.map((token) => token.textContent).join("");
  let at = 0;
  const token = tokens.find((each) => (at += each.textContent.length) > text.indexOf(word));
  const [own, box] = [token, token.closest(".rv-text")].map((node) => node.getBoundingClientRect());
  return [own.left - box.left, box.right - own.right];
}"""
"""Distances of the token that begins ``word`` from the left and from the right edge of the text."""


@pytest.fixture(scope="module")
def page() -> Iterator[playwright.Page]:
    with still_page() as made:
        (value,) = race_scenes.finished(
            replace(samples.Script(TEXT, race_scenes.START)), recorded="2026-11-20"
        )()
        put(made, value)
        settle(made)
        yield made


def test_each_paragraph_starts_at_the_side_of_its_script(page: playwright.Page) -> None:
    for word, is_right in (("كتب", True), ("An", False), ("שלום", True)):
        left, right = page.evaluate(GAPS, [MARS, word])
        assert (right < left) == is_right, word
        assert min(left, right) < 80


def test_groups_from_the_right_are_marked(page: playwright.Page) -> None:
    groups = page.locator(f"{MARS} .rv-c").evaluate_all(
        "nodes => nodes.map((node) => [node.textContent, node.classList.contains('rv-rtl')])"
    )
    letters = [
        (next((letter for letter in text if letter.isalpha()), ""), is_marked)
        for text, is_marked in groups
    ]
    assert any(is_marked for _, is_marked in letters)
    assert all(is_marked == (letter > "\u0590") for letter, is_marked in letters if letter)


def test_the_rendered_answer_follows_each_block(page: playwright.Page) -> None:
    page.locator(f"{MARS} .rv-md-toggle").click()
    blocks = page.locator(f"{MARS} .rv-md > *").evaluate_all(
        "nodes => nodes.map((node) => [node.localName, getComputedStyle(node).direction])"
    )
    page.locator(f"{MARS} .rv-md-toggle").click()
    assert blocks == [["p", "rtl"], ["p", "ltr"], ["ul", "rtl"]]


def test_the_prompt_starts_at_the_right(page: playwright.Page) -> None:
    prompt = page.locator(f"{ROOT} .rv-prompt")
    left, right = prompt.evaluate(
        """(node, text) => {
      node.textContent = text;
      const range = document.createRange();
      range.selectNodeContents(node);
      const [box, own] = [node.getBoundingClientRect(), range.getBoundingClientRect()];
      return [own.left - box.left, box.right - own.right];
    }""",
        HEBREW,
    )
    assert right < 2 < left
