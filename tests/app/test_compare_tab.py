"""The Compare tab as a visitor uses it: runs pinned, kept, compared and folded.

Skipped where Debian's chromium is not installed. Nothing here needs weights.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import sample_traces as samples
from browser import Arrive, needs_browser, playwright
from compare_page import (
    MARS,
    PNG,
    ROW,
    Visit,
    bring,
    open_tab,
    opened_by,
    saved,
    trace_file,
    unfold,
)
from live_page import run
from scripted_page import TEXT, ScriptedBackend

from app.serving.settings import AppSettings
from mars_runtime import folds
from mars_runtime.settings import DecodeSettings
from mars_runtime.trace import read_trace

pytestmark = needs_browser


@pytest.fixture
def visit(arrive: Arrive, address: str) -> Visit:
    return opened_by(arrive, address)


def test_a_live_run_is_pinned_named_rated_and_still_there_after_a_reload(
    visit: Visit, scripted_backend
) -> None:
    scripted_backend.forward_seconds = 0.001
    page = visit()
    run(page, "Say <i>it</i>.")
    menu = "#race .rv-top .ex-menu"
    live = {
        line: saved(page, menu, "trace, one line per forward", line)[1].decode() for line in (0, 1)
    }
    for line, method in ((0, "mars"), (1, "ar")):
        assert read_trace(live[line].splitlines()).header.settings.method == method
    page.click("#race .rv-pane[data-lane=mars] .rv-pin")
    page.wait_for_selector("#race .rv-pin:text('Pinned')")
    page.click("#race .rv-pane[data-lane=ar] .rv-pin")
    open_tab(page, 2)
    unfold(page)
    mars = page.locator(ROW).nth(1)
    assert mars.locator(".cv-name").input_value().endswith("Say <i>it</i>.")
    page.wait_for_selector(f"{ROW}:nth-child(2) .cv-facts:text('scripted')")
    trace = read_trace(live[0].splitlines())
    assert f"{folds.tpf(trace.events):.2f} TPF" in mars.locator(".cv-figures").inner_text()
    mars.locator(".cv-name").fill("My <b>run</b>")
    mars.locator(".cv-note").fill("Line one\nand two")
    mars.locator(".cv-rating input[value='0']").focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.locator(".cv-name").first.focus()
    page.reload()
    page.wait_for_selector("#race .mars-race[data-state=empty]")
    open_tab(page, 2)
    unfold(page)
    assert mars.locator(".cv-name").input_value() == "My <b>run</b>"
    assert mars.locator(".cv-note").input_value() == "Line one\nand two"
    assert mars.locator(".cv-rating input:checked").get_attribute("value") == "4"
    assert page.locator("#compare :is(b, i):not(.cv-table b)").count() == 0
    name, text = saved(page, f"{ROW}:nth-child(2) .ex-menu", "trace, one line per forward")
    assert text.decode() == live[0]
    assert name.startswith("scripted-tau0-Bauto-lossless-")
    page.locator(ROW).nth(1).get_by_role("button", name="Delete").click()
    page.wait_for_selector('#compare .mars-compare[data-pins="1"]')
    page.get_by_role("button", name="Undo").click()
    page.wait_for_selector('#compare .mars-compare[data-pins="2"]')
    assert mars.locator(".cv-name").input_value() == "My <b>run</b>"


def test_two_windows_of_a_visitor_show_the_same_tray(visit: Visit) -> None:
    page = visit()
    other = page.context.new_page()
    other.goto(page.url)
    for window in (page, other):
        window.wait_for_selector("#race .mars-race[data-state=empty]")
        open_tab(window, 0)
    bring(page, trace_file("a.jsonl", MARS))
    other.wait_for_selector('#compare .mars-compare[data-pins="1"]')
    page.locator(f"{ROW} .cv-note").fill("Seen here")
    other.wait_for_function(f"document.querySelector('{ROW} .cv-note').value === 'Seen here'")
    other.locator(f"{ROW} .cv-rating input[value='3']").check()
    page.wait_for_selector(f"{ROW} .cv-rating input[value='3']:checked")
    assert page.locator(f"{ROW} .cv-note").input_value() == "Seen here"
    page.reload()
    open_tab(page, 1)
    assert page.locator(f"{ROW} .cv-note").input_value() == "Seen here"
    other.locator(ROW).get_by_role("button", name="Delete").click()
    page.wait_for_selector('#compare .mars-compare[data-pins="0"]')


def test_runs_are_compared_opened_and_drawn(visit: Visit) -> None:
    page = visit()
    open_tab(page, 0)
    plain = replace(MARS, settings=DecodeSettings(method="ar"))
    said = bring(
        page,
        trace_file("mars.jsonl", replace(MARS, change=(60, " deep")), date="2026-11-20T09:00"),
        trace_file("ar.jsonl", plain, date="2026-11-20T09:01"),
        trace_file("far.jsonl", replace(MARS, seed=3), hardware="<img src=x>", date="2026-11-21"),
    )
    assert said == "3 runs were imported."
    unfold(page)
    page.wait_for_selector(f"{ROW}:first-child .cv-facts:text('imported')")
    boxes = page.locator(f"{ROW} .cv-tick input")
    boxes.nth(1).focus()
    page.keyboard.press("Space")
    boxes.nth(2).check()
    page.wait_for_selector("#compare .cv-texts .rv-pane >> nth=1")
    table = page.locator("#compare .cv-table")
    columns = table.locator("th[scope=col]").all_inner_texts()
    assert [column[0] for column in columns] == ["A", "B"]
    traces = [samples.run(script) for script in (plain, replace(MARS, change=(60, " deep")))]
    row = table.locator("tr", has_text="tokens per forward").locator("td").all_inner_texts()
    values = [f"{folds.tpf(trace.events):.2f}" for trace in traces]
    assert [cell.split()[0] for cell in row] == values
    assert ["best" in cell for cell in row] == [False, True]
    assert page.locator("#compare .cv-remark").count() == 0
    assert page.locator("#compare .cv-texts .rv-pane .cv-differs").all_inner_texts() == [
        traces[0].vocabulary[folds.accepted_tokens(traces[0].events)[60]].decode(),
        " deep",
    ]
    assert "from token 61 on" in page.inner_text("#compare .cv-texts .rv-pane >> nth=1")
    page.select_option("#compare .cv-reference select", index=1)
    assert "the reference" in page.inner_text("#compare .cv-texts .rv-pane >> nth=1")
    page.focus("#compare .cv-texts .rv-pane >> nth=0 >> .rv-text")
    page.keyboard.press("Home")
    assert page.locator("#compare .cv-texts .rv-pane >> nth=1 >> .cv-here").count() == 1
    assert "token 1" in page.inner_text("#compare .rv-card")
    page.wait_for_function("document.querySelectorAll('#compare .js-plotly-plot').length === 2")
    page.evaluate("window.kept = [...document.querySelectorAll('#compare .rv-plot')]")
    boxes.nth(0).check()
    page.wait_for_selector("#compare .cv-texts .rv-pane >> nth=2")
    assert "different machines" in page.inner_text("#compare .cv-figuretable")
    row = table.locator("tr", has_text="tokens per second").locator("td").all_inner_texts()
    assert not any("best" in cell for cell in row)
    assert page.locator("#compare img").count() == 0
    assert page.evaluate(
        """[...document.querySelectorAll('#compare .rv-plot')].every((node, i) => (
          node === window.kept[i] && node.data.map((trace) => trace.name).join('') === 'ABC'))"""
    )
    for hint in ("picture of the aligned texts", "picture of the charts"):
        name, picture = saved(page, ".cv-comparehead .ex-menu", hint)
        assert picture.startswith(PNG)
        assert name.endswith(".png")
        assert len(picture) > 20_000
    page.locator(ROW).nth(2).get_by_role("button", name="Open").click()
    page.wait_for_selector("#opened .mars-race[data-state=finished]")
    shown = "nodes => nodes.map((node) => node.textContent).join('')"
    assert page.eval_on_selector_all("#opened .rv-t", shown) == folds.text(traces[1])
    page.locator(ROW).nth(2).get_by_role("button", name="Close").click()
    page.wait_for_selector("#opened .mars-race", state="hidden")


def test_runs_of_the_same_text_are_one_row_that_opens(visit: Visit) -> None:
    page = visit()
    open_tab(page, 0)
    plain = replace(MARS, settings=DecodeSettings(method="ar"))
    bring(
        page,
        trace_file("other.jsonl", replace(MARS, change=(60, " deep"))),
        trace_file("ar.jsonl", plain),
        trace_file("mars.jsonl", MARS),
    )
    assert page.locator("#compare .cv-list > li").count() == 2
    assert page.locator(f"{ROW}:visible").count() == 1
    fold = page.locator("#compare .cv-fold")
    assert fold.locator(".cv-foldbutton").inner_text() == "2 runs wrote the same text"
    settings = fold.locator(".cv-foldruns li").all_inner_texts()
    assert settings[0].startswith("Run 3MARS · τ 0.95 · B 8 · ")
    assert settings[1] == "Run 2plain AR · one per forward · 1.00 TPF"
    tick_all = fold.locator(".cv-foldhead input")
    tick_all.check()
    page.wait_for_selector("#compare .cv-texts .rv-pane >> nth=1")
    columns = page.locator("#compare .cv-table th[scope=col] .cv-run").all_inner_texts()
    assert columns == ["Run 3", "Run 2"]
    fold.locator(".cv-foldbutton").focus()
    page.keyboard.press("Enter")
    playwright.expect(page.locator(f"{ROW}:visible")).to_have_count(3)
    fold.locator(".cv-row .cv-tick input").first.uncheck()
    assert tick_all.evaluate("node => [node.checked, node.indeterminate]") == [False, True]
    assert page.locator("#compare .cv-comparison").is_hidden()
    fold.get_by_role("button", name="Delete").first.click()
    page.wait_for_selector('#compare .mars-compare[data-pins="2"]')
    assert fold.count() == 0


def test_a_branch_is_named_and_a_run_wears_its_colour_everywhere(
    visit: Visit, scripted_backend: ScriptedBackend
) -> None:
    scripted_backend.forward_seconds = 0.001
    page = visit()
    run(page, "Say it.")
    pane, worn = "#race .rv-pane[data-lane=mars]", {}
    colour = "node => node.dataset.colour"
    line = "document.querySelector('#race [data-chart=time] .rv-plot').data[0].line.color"
    page.wait_for_function("document.querySelector('#race [data-chart=time] .rv-plot').data")
    worn["Run 1"] = page.eval_on_selector(pane, colour), page.evaluate(line)
    page.click(f"{pane} .rv-pin")
    page.wait_for_selector(f"{pane} .rv-pin:text('Pinned')")
    before = page.get_attribute("#race .mars-race", "data-run")
    page.evaluate("""() => document.querySelector("#race .mars-race").lineView.ask(
      "branch", { lane: { name: "mars" }, token: 8, id: 66 })""")
    page.wait_for_selector(f"#race .mars-race[data-state=finished]:not([data-run='{before}'])")
    assert page.eval_on_selector(pane, colour) == worn["Run 1"][0]  # a lane keeps its colour
    page.click(f"{pane} .rv-pin")  # and only a pin whose colour is taken gets another
    page.wait_for_function(f"{line} !== '{worn['Run 1'][1]}'")  # charts are drawn a frame later
    worn["Run 2"] = page.eval_on_selector(pane, colour), page.evaluate(line)
    open_tab(page, 2)
    names = page.locator("#compare .cv-name").evaluate_all("nodes => nodes.map((n) => n.value)")
    assert names[0] == f"Branch of Run 1 at token 9: “B” instead of “{TEXT[8]}”"
    assert worn["Run 1"][0] != worn["Run 2"][0]
    for again in (False, True):
        if again:
            page.reload()
            open_tab(page, 2)
        for row in page.locator(ROW).all():
            label = row.locator(".cv-run").inner_text()
            assert row.get_attribute("data-colour") == worn[label][0]
        for box in page.locator(f"{ROW} .cv-tick input").all():
            box.check()
        page.wait_for_function("document.querySelectorAll('#compare .js-plotly-plot').length === 2")
        drawn = "document.querySelector('#compare .rv-plot').data.map((trace) => trace.line.color)"
        assert page.evaluate(drawn) == [worn["Run 2"][1], worn["Run 1"][1]]
        dashes = "document.querySelector('#compare .rv-plot').data.map((trace) => trace.line.dash)"
        assert page.evaluate(dashes) == ["solid", "dash"]  # never by colour alone


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
