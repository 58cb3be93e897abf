"""An answer as it is meant to be read: Markdown, the forward under the pointer, pages of HTML that
run and load nothing, and scripts that are read from the right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright, sent
from panel_browser import ROOT, VIEW, put, settle, still_page
from race_browser import MARS
from race_page import head, interleaved, value

pytestmark = needs_browser
ANSWER = """# Two ways

Here is **bold** text with `code` and a [link](https://evil.example/x).

1. first
2. second

| name | count |
| :--- | ----: |
| apples | 3 |

```python
def add(a, b):
    return a + b
```

<img src=x onerror="window.hit = 1"><script>window.hit = 1</script>
"""
PAGE = """<!DOCTYPE html><html><body><h1>Hi</h1><script>top.hit = 1; parent.hit = 1</script>
<img src="https://evil.example/pixel.png"><meta http-equiv="refresh" content="0;url=https://evil.example/">
<link rel="stylesheet" href="https://evil.example/a.css"></body></html>"""
TOGGLE, RENDERED = f"{MARS} .rv-md-toggle", f"{MARS} .rv-md"
ARABIC, HEBREW = "كتب الولد رسالة إلى أمه.", "שלום לכולם, זה טקסט בעברית."
BOTH_WAYS = f"{ARABIC}\n\nAn English line.\n\n- {HEBREW}\n"
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
    """The race view by itself."""
    with still_page() as made:
        yield made


def show(page: playwright.Page, text: str, steps_shown: int | None = None) -> None:
    end = "eos" if steps_shown is None else None
    lanes = samples.lanes(samples.Script(text, end=end, steps_shown=steps_shown))
    page.evaluate(f"{VIEW}.read('')")
    put(page, value(head("rendered", race_scenes.BOTH), interleaved(lanes)).whole())


def test_markdown_is_rendered_where_a_visitor_asks_for_it(page: playwright.Page) -> None:
    show(page, ANSWER)
    body = page.locator(RENDERED)
    assert body.is_hidden()
    page.click(TOGGLE)
    assert page.locator(f"{MARS} .rv-text").is_hidden()
    tags = body.evaluate("(node) => [...node.children].map((each) => each.tagName)")
    assert tags == ["H1", "P", "OL", "TABLE", "PRE", "P"]
    assert body.locator("strong").inner_text() == "bold"
    assert body.locator("td").all_inner_texts() == ["apples", "3"]
    assert body.locator("pre").inner_text() == "def add(a, b):\n    return a + b\n"
    assert "<script>window.hit = 1</script>" in body.inner_text()
    assert body.locator("script, img, a").count() == 0
    assert page.evaluate("window.hit") is None
    lane = f"{VIEW}.run.lanes[0]"
    step = page.evaluate(f"{lane}.steps.findIndex((step) => step.count > 2 && step.index > 3)")
    span = page.locator(f"{RENDERED} [data-forward='{step}']").first
    span.hover()
    lit = page.locator(f"{MARS} .rv-md-on").all_inner_texts()
    text = page.evaluate(
        f"{lane}.tokens.filter((t) => t.step.index === {step}).map((t) => t.text).join('')"
    )
    assert lit
    assert all(item in text for item in lit)
    span.click()
    settle(page)
    assert page.evaluate(f"{VIEW}.selected.step") == step
    page.mouse.move(2, 2)
    page.click(TOGGLE)
    assert page.locator(f"{MARS} .rv-text").is_visible()
    assert body.is_hidden()
    show(page, ANSWER, steps_shown=4)  # a run that has not ended
    page.click(TOGGLE)
    assert 0 < len(body.inner_text()) < len(ANSWER) / 2
    page.click(TOGGLE)


def test_a_page_of_html_runs_and_loads_nothing(page: playwright.Page) -> None:
    requests: list[playwright.Request] = []
    page.on("request", lambda request: requests.append(request))
    show(page, PAGE)
    page.click(TOGGLE)
    frame = page.locator(f"{MARS} .rv-md-frame")
    assert frame.get_attribute("sandbox") == ""
    assert page.locator(f"{MARS} .rv-text").is_visible()  # the marks are in its tokens
    inner = page.frame_locator(f"{MARS} .rv-md-frame")
    inner.locator("link").wait_for(state="attached")  # all of it has been read
    assert inner.locator("h1").inner_text() == "Hi"
    assert page.evaluate("[window.hit, top.hit]") == [None, None]
    assert [url for url in sent(requests) if "evil" in url] == []
    page.click(TOGGLE)


def test_each_paragraph_starts_at_the_side_of_its_script(page: playwright.Page) -> None:
    show(page, BOTH_WAYS)
    settle(page)
    for word, is_right in (("كتب", True), ("An", False), ("שלום", True)):
        left, right = page.evaluate(GAPS, [MARS, word])
        assert (right < left) == is_right, word
        assert min(left, right) < 80
    groups = page.locator(f"{MARS} .rv-c").evaluate_all(
        "nodes => nodes.map((node) => [node.textContent, node.classList.contains('rv-rtl')])"
    )
    letters = [(next(filter(str.isalpha, text), ""), is_marked) for text, is_marked in groups]
    assert any(is_marked for _, is_marked in letters)
    assert all(is_marked == (letter > "\u0590") for letter, is_marked in letters if letter)
    page.click(TOGGLE)
    blocks = page.locator(f"{RENDERED} > *").evaluate_all(
        "nodes => nodes.map((node) => [node.localName, getComputedStyle(node).direction])"
    )
    page.click(TOGGLE)
    assert blocks == [["p", "rtl"], ["p", "ltr"], ["ul", "rtl"]]
    left, right = page.locator(f"{ROOT} .rv-prompt").evaluate(
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
