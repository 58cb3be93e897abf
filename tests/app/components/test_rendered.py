"""An answer as it is meant to be read: words and structure, the forward under the pointer, frames
that run and load nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sample_traces as samples
from browser import needs_browser, playwright, sent
from panel_browser import ROOT, VIEW, put, settle, still_page
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
PANE = f"{ROOT} .rv-pane[data-lane=mars]"


@pytest.fixture(scope="module")
def page() -> Iterator[playwright.Page]:
    """The race view by itself."""
    with still_page() as made:
        yield made


def show(page: playwright.Page, text: str, steps_shown: int | None = None) -> None:
    end = "eos" if steps_shown is None else None
    lanes = samples.lanes(samples.Script(text, end=end, steps_shown=steps_shown))
    page.evaluate(f"{VIEW}.read('')")
    titles = {"mars": "MARS", "ar": "plain AR"}
    put(page, value(head("rendered", titles), interleaved(lanes)).whole())


def test_markdown_is_read_and_raw_is_what_opens(page: playwright.Page) -> None:
    show(page, ANSWER)
    body = page.locator(f"{PANE} .rv-md")
    assert body.is_hidden()
    assert page.locator(f"{PANE} .rv-text").is_visible()
    page.locator(f"{PANE} .rv-md-toggle").click()
    assert page.locator(f"{PANE} .rv-text").is_hidden()
    tags = body.evaluate("(node) => [...node.children].map((each) => each.tagName)")
    assert tags == ["H1", "P", "OL", "TABLE", "PRE", "P"]
    assert body.locator("strong").inner_text() == "bold"
    assert body.locator("td").all_inner_texts() == ["apples", "3"]
    assert body.locator("pre").inner_text() == "def add(a, b):\n    return a + b\n"
    assert "<script>window.hit = 1</script>" in body.inner_text()
    assert body.locator("script, img, a").count() == 0
    assert page.evaluate("window.hit") is None
    page.locator(f"{PANE} .rv-md-toggle").click()
    assert page.locator(f"{PANE} .rv-text").is_visible()
    assert body.is_hidden()


def test_the_forward_under_the_pointer_is_marked_and_can_be_chosen(page: playwright.Page) -> None:
    show(page, ANSWER)
    page.locator(f"{PANE} .rv-md-toggle").click()
    lane = f"{VIEW}.run.lanes[0]"
    step = page.evaluate(f"{lane}.steps.findIndex((step) => step.count > 2 && step.index > 3)")
    span = page.locator(f"{PANE} .rv-md [data-forward='{step}']").first
    span.hover()
    lit = page.locator(f"{PANE} .rv-md-on").all_inner_texts()
    text = page.evaluate(
        f"{lane}.tokens.filter((t) => t.step.index === {step}).map((t) => t.text).join('')"
    )
    assert lit
    assert all(each in text for each in lit)
    span.click()
    settle(page)
    assert page.evaluate(f"{VIEW}.selected.step") == step
    page.mouse.move(2, 2)
    page.locator(f"{PANE} .rv-md-toggle").click()


def test_it_follows_a_run_that_goes_on(page: playwright.Page) -> None:
    show(page, ANSWER, steps_shown=4)
    page.locator(f"{PANE} .rv-md-toggle").click()
    few = page.locator(f"{PANE} .rv-md").inner_text()
    lines = page.evaluate(f"{VIEW}.run.lanes[0].steps.length")
    assert lines == 4
    assert 0 < len(few) < len(ANSWER) / 2
    page.locator(f"{PANE} .rv-md-toggle").click()


def test_a_page_of_html_runs_and_loads_nothing(page: playwright.Page) -> None:
    asked: list[playwright.Request] = []
    page.on("request", lambda request: asked.append(request))
    show(page, PAGE)
    page.locator(f"{PANE} .rv-md-toggle").click()
    frame = page.locator(f"{PANE} .rv-md-frame")
    assert frame.is_visible()
    assert frame.get_attribute("sandbox") == ""
    assert page.locator(f"{PANE} .rv-text").is_visible()  # the marks are in its tokens
    inner = page.frame_locator(f"{PANE} .rv-md-frame")
    assert inner.locator("h1").inner_text() == "Hi"
    page.wait_for_timeout(300)
    assert page.evaluate("[window.hit, top.hit]") == [None, None]
    assert [url for url in sent(asked) if "evil" in url] == []
