"""The Compare tab as a visitor uses it: runs pinned, kept, compared and folded.

One visitor's page; all tests but the first two begin with an empty tray. Skipped where Debian's
chromium is not installed. Nothing here needs weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
import sample_traces as samples
from browser import needs_browser, opened, playwright, see
from compare_page import (
    MARS,
    PNG,
    ROW,
    bring,
    empty_tray,
    open_tab,
    saved,
    trace_file,
    unfold,
)
from live_page import run, wait_loaded, wait_state
from scripted_page import TEXT, ScriptedBackend

from app.settings import AppSettings
from mars_runtime import folds
from mars_runtime.settings import DecodeSettings
from mars_runtime.trace import read_trace

pytestmark = needs_browser
PANE = "#race .rv-pane[data-lane={}]"
LINE = "document.querySelector('#race [data-chart=time] .rv-plot').data[{}].line.color"


@pytest.fixture(scope="module")
def page(address: str, scripted_backend: ScriptedBackend) -> Iterator[playwright.Page]:
    scripted_backend.forward_seconds = 0.001
    with opened(f"{address}?max_new_tokens=48") as made:
        wait_loaded(made)
        yield made


@pytest.fixture
def tray(page: playwright.Page) -> playwright.Page:
    """The page at the tab, without a run in it."""
    page.set_viewport_size({"width": 1440, "height": 1000})
    page.evaluate("document.body.classList.remove('dark')")
    empty_tray(page)
    return page


Worn = dict[str, tuple[str, str]]
"""Run -> number and value of its colour on the Live tab."""


@pytest.fixture(scope="module")
def worn(page: playwright.Page, live: list[str]) -> Worn:
    """Three runs pinned on the Live tab: both lanes of a race, and a branch of the first."""
    found = {"Run 1": worn_by(page, 0), "Run 2": worn_by(page, 1)}
    for lane in ("mars", "ar"):
        page.click(PANE.format(lane) + " .rv-pin")
        page.wait_for_selector(PANE.format(lane) + " .rv-pin:text('Pinned')")
    before = page.get_attribute("#race .mars-race", "data-run")
    page.evaluate("""() => document.querySelector("#race .mars-race").lineView.ask(
      "branch", { lane: { name: "mars" }, token: 8, id: 66 })""")
    page.wait_for_selector(f"#race .mars-race[data-state=finished]:not([data-run='{before}'])")
    mars = PANE.format("mars")  # a lane keeps its colour
    assert page.eval_on_selector(mars, "node => node.dataset.colour") == found["Run 1"][0]
    page.click(f"{mars} .rv-pin")  # and only a pin whose colour is taken gets another
    see(page.locator("#race [data-chart=time]"))
    page.wait_for_function(f"{LINE.format(0)} !== '{found['Run 1'][1]}'")  # drawn a frame later
    return {**found, "Run 3": worn_by(page, 0)}


@pytest.fixture(scope="module")
def live(page: playwright.Page) -> list[str]:
    """The traces of a race's two lanes, as the Live tab exports them."""
    run(page, "Say <i>it</i>.")
    see(page.locator("#race [data-chart=time]"))
    page.wait_for_function("document.querySelector('#race [data-chart=time] .rv-plot').data")
    menu, hint = "#race .rv-top .ex-menu", "trace, one line per forward"
    return [saved(page, menu, hint, line)[1].decode() for line in (0, 1)]


def worn_by(page: playwright.Page, place: int) -> tuple[str, str]:
    """Number and value of the colour of a lane on the Live tab."""
    panes = page.locator("#race .rv-pane")
    return panes.nth(place).get_attribute("data-colour"), page.evaluate(LINE.format(place))


def assert_wears(page: playwright.Page, worn: Worn) -> None:
    """Every run that is kept has its colour, in its row and in the charts."""
    for row in page.locator(ROW).all():
        label = row.locator(".cv-run").inner_text()
        assert row.get_attribute("data-colour") == worn[label][0]
    for box in page.locator(f"{ROW} .cv-tick input").all():
        box.check()
    see(page.locator("#compare .rv-charts"))
    page.wait_for_function("document.querySelectorAll('#compare .js-plotly-plot').length === 2")
    drawn = "document.querySelector('#compare .rv-plot').data.map((trace) => trace.line.color)"
    assert page.evaluate(drawn) == [worn[label][1] for label in ("Run 3", "Run 2", "Run 1")]
    dashes = "document.querySelector('#compare .rv-plot').data.map((trace) => trace.line.dash)"
    assert page.evaluate(dashes) == ["solid", "dash", "dot"]  # never by colour alone


def test_a_live_run_is_pinned_and_wears_its_colour_and_a_branch_is_named(
    page: playwright.Page, live: list[str], worn: Worn
) -> None:
    for line, method in ((0, "mars"), (1, "ar")):
        assert read_trace(live[line].splitlines()).header.settings.method == method
    assert len({colour for colour, _ in worn.values()}) == 3
    open_tab(page, 3)
    unfold(page)
    names = page.locator("#compare .cv-name").evaluate_all("nodes => nodes.map((n) => n.value)")
    assert names[0] == f"Branch of Run 1 at token 9: “B” instead of “{TEXT[8]}”"
    mars = page.locator(ROW).nth(2)
    assert mars.locator(".cv-name").input_value().endswith("Say <i>it</i>.")
    page.wait_for_selector(f"{ROW} .cv-facts:text('scripted') >> nth=2")
    trace = read_trace(live[0].splitlines())
    assert f"{folds.tpf(trace.events):.2f} TPF" in mars.locator(".cv-figures").inner_text()
    assert_wears(page, worn)


def test_two_windows_of_a_visitor_show_the_same_tray_and_a_reload_keeps_it(
    page: playwright.Page, live: list[str], worn: Worn
) -> None:
    with page.expect_popup() as popup:
        page.evaluate("window.open(location.href)")
    other = popup.value
    wait_state(other, "empty")
    for window in (page, other):
        open_tab(window, 3)
    unfold(other)
    mars, there = page.locator(ROW).nth(2), other.locator(ROW).nth(2)
    mars.locator(".cv-name").fill("My <b>run</b>")
    mars.locator(".cv-note").fill("Line one\nand two")
    playwright.expect(there.locator(".cv-note")).to_have_value("Line one\nand two")
    there.locator(".cv-rating input[value='3']").check()
    playwright.expect(mars.locator(".cv-rating input[value='3']")).to_be_checked()
    assert mars.locator(".cv-note").input_value() == "Line one\nand two"
    mars.locator(".cv-rating input[value='3']").focus()
    page.keyboard.press("ArrowRight")
    page.locator(".cv-name").first.focus()
    playwright.expect(there.locator(".cv-rating input[value='4']")).to_be_checked()

    page.bring_to_front()  # a page behind another is drawn once a second
    page.reload()
    wait_state(page, "finished")  # the reload brings the last run back
    open_tab(page, 3)
    unfold(page)
    assert mars.locator(".cv-name").input_value() == "My <b>run</b>"
    assert mars.locator(".cv-note").input_value() == "Line one\nand two"
    assert mars.locator(".cv-rating input:checked").get_attribute("value") == "4"
    assert page.locator("#compare :is(b, i):not(.cv-table b)").count() == 0
    assert_wears(page, worn)
    name, text = saved(page, f":nth-match({ROW}, 3) .ex-menu", "trace, one line per forward")
    assert text.decode() == live[0]
    assert name.startswith("scripted-tau0-Bauto-lossless-")
    there.get_by_role("button", name="Delete").click()
    for window in (page, other):
        window.wait_for_selector('#compare .mars-compare[data-pins="2"]')
    other.get_by_role("button", name="Undo").click()
    page.wait_for_selector('#compare .mars-compare[data-pins="3"]')
    assert mars.locator(".cv-name").input_value() == "My <b>run</b>"
    other.close()


def test_runs_are_compared_opened_and_drawn(tray: playwright.Page) -> None:
    page = tray
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
    see(page.locator("#compare .rv-charts"))
    page.wait_for_function("document.querySelectorAll('#compare .js-plotly-plot').length === 2")
    page.evaluate("window.kept = [...document.querySelectorAll('#compare .rv-plot')]")
    boxes.nth(0).check()
    page.wait_for_selector("#compare .cv-texts .rv-pane >> nth=2")
    assert "different machines" in page.inner_text("#compare .cv-figuretable")
    row = table.locator("tr", has_text="tokens per second").locator("td").all_inner_texts()
    assert not any("best" in cell for cell in row)
    assert page.locator("#compare img").count() == 0
    see(page.locator("#compare .rv-charts"))
    page.wait_for_function(
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


OUTSIDE = """() => {
  const outside = [...document.querySelectorAll("#compare .cv-texts .rv-pane")].flatMap((pane) => {
    const edge = pane.getBoundingClientRect().right + 1;
    return [...pane.querySelectorAll("*")].filter((node) => node.checkVisibility()
      && !node.closest(".rv-card") && node.getBoundingClientRect().right > edge);
  });
  return outside.map((node) => node.className);
}"""
"""The classes of what reaches out of its pane to the right."""


@pytest.mark.parametrize("width", [1440, 1280, 390])
def test_texts_of_three_runs_stay_in_their_panes(tray: playwright.Page, width: int) -> None:
    page = tray
    text = "An answer with a_name_that_has_no_space_at_all_and_goes_past_any_edge " * 6
    script = replace(samples.Script(text), change=(3, " other"))
    files = [
        trace_file(f"{seed}.jsonl", replace(script, seed=seed), date=f"2026-11-20T09:0{seed}")
        for seed in (1, 2, 3)
    ]
    bring(page, *files)
    unfold(page)
    for place, name in enumerate(("MARS, lossless, B auto, prompt lookup, penalty 1.05", "x" * 90)):
        page.locator(".cv-name").nth(place).fill(name)
        page.locator(".cv-name").nth(place).blur()
    for box in page.locator(f"{ROW} .cv-tick input").all():
        box.check()
    page.wait_for_selector("#compare .cv-texts .rv-pane >> nth=2")
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_runs_of_the_same_text_are_one_row_that_opens(tray: playwright.Page) -> None:
    page = tray
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


def test_what_is_exported_comes_back_the_same(tray: playwright.Page) -> None:
    page = tray
    page.evaluate("document.body.classList.add('dark')")
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
    empty_tray(page)
    assert bring(page, ("tray.jsonl", tray)) == "2 runs were imported."
    assert (
        sorted(page.locator(".cv-name").evaluate_all("l => l.map(n => n.value)"))[-1] == "renamed"
    )
    assert "a note" in page.locator(".cv-note").evaluate_all("l => l.map(n => n.value)")
    assert page.locator(".cv-rating input[value='5']:checked").count() == 1
    assert bring(page, ("tray.jsonl", tray)) == "Nothing was imported."
    assert "in the tray already" in page.inner_text(".cv-refused")


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


def test_what_is_no_trace_gets_a_sentence_and_changes_nothing(tray: playwright.Page) -> None:
    page = tray
    page.set_viewport_size({"width": 390, "height": 1000})
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
    num_bold = page.locator("#compare b").count()
    page.dispatch_event("#compare .cv-list", "drop", {"dataTransfer": data})
    page.wait_for_selector('#compare .mars-compare[data-pins="2"]')
    assert page.locator("#compare b").count() == num_bold
