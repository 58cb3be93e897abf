"""The Compare tab's files as a visitor uses them: runs taken out, brought in, and refused.

Skipped where Debian's chromium is not installed. Nothing here needs weights.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import sample_traces as samples
from browser import Arrive, needs_browser
from compare_page import MARS, PNG, ROW, Visit, bring, open_tab, opened_by, saved, trace_file

from app.serving.settings import AppSettings

pytestmark = needs_browser


@pytest.fixture
def visit(arrive: Arrive, address: str) -> Visit:
    return opened_by(arrive, address)


def test_what_is_exported_comes_back_the_same(visit: Visit) -> None:
    page = visit(theme="dark")
    open_tab(page, 0)
    hostile = trace_file("hostile.jsonl", replace(MARS, text=samples.HOSTILE + "\x00\x07\ufffe"))
    assert bring(page, hostile, trace_file("prose.jsonl", MARS)) == "2 runs were imported."
    page.locator(".cv-name").last.fill("renamed")
    page.locator(".cv-note").last.fill("a note")
    page.locator(".cv-rating").last.locator("label").nth(5).click()
    name, tray = saved(page, ".cv-head .ex-menu", "traces with names, notes and ratings")
    assert name == "tray.jsonl"
    traces = [line for line in tray.decode().splitlines() if not line.startswith('{"type":"pin"')]
    assert "\n".join(traces) + "\n" == trace_file("", MARS)[1] + hostile[1]
    row = f"{ROW}:nth-child(2) .ex-menu"
    assert saved(page, row, "trace, one line per forward")[1].decode() == hostile[1]
    assert b"forward,clock_s" in saved(page, row, "table of the forwards")[1]
    assert b"run,forward" in saved(page, ".cv-head .ex-menu", "table of the forwards")[1]
    for hint in ("picture of the text", "picture of the charts"):
        picture = saved(page, row, hint)[1]
        assert picture.startswith(PNG)
        assert len(picture) > 20_000
    again = visit()
    open_tab(again, 0)
    assert bring(again, ("tray.jsonl", tray)) == "2 runs were imported."
    assert (
        sorted(again.locator(".cv-name").evaluate_all("l => l.map(n => n.value)"))[-1] == "renamed"
    )
    assert "a note" in again.locator(".cv-note").evaluate_all("l => l.map(n => n.value)")
    assert again.locator(".cv-rating input[value='5']:checked").count() == 1
    assert bring(again, ("tray.jsonl", tray)) == "Nothing was imported."
    assert "in the tray already" in again.inner_text(".cv-refused")


BROKEN = {
    "empty.jsonl": b"",
    "binary.jsonl": bytes(range(256)) * 40,
    "foreign.json": b'{"openapi": "3.1"}',
    "page.html": b"<script>alert(1)</script><img src=x onerror=alert(2)>",
    "nan.jsonl": trace_file("", MARS)[1].replace('"seconds":', '"seconds":NaN,"x":', 1).encode(),
    "huge.jsonl": trace_file("", MARS)[1].replace('"start":', '"start":1e400,"x":', 1).encode(),
    "types.jsonl": trace_file("", MARS)[1].replace('"rows":[', '"rows":7,"x":[', 1).encode(),
    "large.jsonl": b"x" * (AppSettings().max_import_bytes + 1),
    "half.jsonl": (trace_file("", MARS)[1] + json.dumps({"type": "header"})).encode(),
}


def test_what_is_no_trace_gets_a_sentence_and_changes_nothing(visit: Visit) -> None:
    page = visit(width=390)
    open_tab(page, 0)
    assert bring(page, trace_file("good.jsonl", MARS)) == "1 run was imported."
    page.wait_for_selector(f"{ROW} .cv-facts:text('imported')")
    before = page.inner_text("#compare .cv-list")
    assert bring(page, *BROKEN.items()) == "Nothing was imported."
    sentences = page.locator("#compare .cv-refused li").all_inner_texts()
    assert [sentence.partition(":")[0] for sentence in sentences] == list(BROKEN)
    for sentence in sentences:
        assert sentence.endswith(".")
        assert len(sentence) < 200
    assert "MB" in sentences[list(BROKEN).index("large.jsonl")]
    assert "run 2" in sentences[-1]
    assert page.inner_text("#compare .cv-list") == before
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    data = page.evaluate_handle(
        """(text) => {
          const data = new DataTransfer();
          data.items.add(new File([text], "<b>drop</b>.jsonl"));
          return data;
        }""",
        trace_file("", replace(MARS, seed=9))[1],
    )
    page.dispatch_event("#compare .cv-list", "drop", {"dataTransfer": data})
    page.wait_for_selector('#compare .mars-compare[data-pins="2"]')
    assert page.locator("#compare b").count() == 0
