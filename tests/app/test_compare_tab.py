"""The Compare tab as a visitor uses it: runs pinned, kept, compared and folded.

One visitor's page; all tests but the first begin with an empty tray.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sample_traces as samples
from browser import needs_browser, opened, playwright, see
from live_page import open_tab, run, wait_loaded, wait_state
from scripted_page import TEXT, ScriptedBackend

from app.settings import AppSettings
from mars_runtime import folds
from mars_runtime.settings import DecodeSettings
from mars_runtime.trace import read_trace

pytestmark = needs_browser
PANE = "#race .rv-pane[data-lane={}]"
LINE = "document.querySelector('#race [data-chart=time] .rv-plot').data[{}].line.color"
VIEW = "#compare .mars-compare"
ROW = "#compare .cv-row"
TEXTS = "#compare .cv-texts .rv-pane"
TRACE = "trace, one line per pass"
MARS = samples.Script(samples.PROSE, DecodeSettings(tau=0.95, block_size=8))
PLAIN = replace(MARS, settings=DecodeSettings(method="ar"))
DEEP = replace(MARS, change=(60, " deep"))
VALUES = "nodes => nodes.map((node) => node.value)"
CAMERA = "#compare .modebar-btn[data-title='Download plot as a PNG']"
HAS_CHARTS = "document.querySelectorAll('#compare .js-plotly-plot').length === 2"


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


def open_tray(page: playwright.Page, num_pins: int) -> None:
    open_tab(page, "compare")
    page.wait_for_selector(f'{VIEW}[data-pins="{num_pins}"]')


def empty_tray(page: playwright.Page) -> None:
    """Open the tab and delete every run that is kept."""
    open_tab(page, "compare")
    page.evaluate("""() => {
      const buttons = document.querySelectorAll("#compare .cv-row button");
      for (const each of buttons) if (each.textContent === "Delete") each.click();
    }""")
    open_tray(page, 0)


def unfold(page: playwright.Page) -> None:
    """Open the row of the runs that wrote the same text."""
    page.click("#compare .cv-foldbutton")
    page.wait_for_selector(f"#compare .cv-fold {ROW.split()[1]}")


def tick_all(page: playwright.Page, num: int) -> None:
    for box in page.locator(f"{ROW} .cv-tick input").all():
        box.check()
    page.wait_for_selector(f"{TEXTS} >> nth={num - 1}")


def bring(page: playwright.Page, *files: tuple[str, bytes | str]) -> str:
    """Give files to the picker; what is said of them."""
    page.evaluate("document.querySelector('.cv-said').textContent = ''")
    payload = [
        {"name": name, "mimeType": "", "buffer": data if isinstance(data, bytes) else data.encode()}
        for name, data in files
    ]
    page.set_input_files("#compare .cv-files", payload)
    page.wait_for_function("document.querySelector('.cv-said').textContent.endsWith('imported.')")
    return page.inner_text("#compare .cv-said")


def trace_file(name: str, script: samples.Script, **header: str) -> tuple[str, str]:
    trace = samples.run(script)
    trace.header = replace(trace.header, **header)
    return name, "\n".join(trace.lines()) + "\n"


def saved(page: playwright.Page, menu: str, hint: str, line: int = 0) -> tuple[str, bytes]:
    """Open an export menu, press one of its buttons; the file's name and what is in it."""
    page.locator(f"{menu} > summary").click()
    with page.expect_download() as download:
        page.locator(f"{menu} .ex-line button[title='{hint}']").nth(line).click()
    made = download.value.suggested_filename, Path(download.value.path()).read_bytes()
    page.wait_for_selector(f"{menu} .ex-said:text('{made[0]}')")
    page.keyboard.press("Escape")
    assert page.locator(f"{menu} .ex-panel").is_hidden()
    return made


def worn_by(page: playwright.Page, place: int) -> tuple[str, str]:
    """Number and value of the colour of a lane on the Live tab."""
    panes = page.locator("#race .rv-pane")
    return panes.nth(place).get_attribute("data-colour"), page.evaluate(LINE.format(place))


def assert_wears(page: playwright.Page, worn: dict[str, tuple[str, str]]) -> None:
    """Every run that is kept has its colour, in its row and in the charts."""
    for row in page.locator(ROW).all():
        label = row.locator(".cv-run").inner_text()
        assert row.get_attribute("data-colour") == worn[label][0]
    tick_all(page, 3)
    see(page.locator("#compare .rv-charts"))
    page.wait_for_function(HAS_CHARTS)
    lines = "document.querySelector('#compare .rv-plot').data.map((trace) => trace.line)"
    colours = [worn[label][1] for label in ("Run 3", "Run 2", "Run 1")]
    wanted = zip(colours, ("solid", "dash", "dot"), strict=True)  # never only by colour
    assert [(line["color"], line["dash"]) for line in page.evaluate(lines)] == list(wanted)


def test_live_runs_are_pinned_in_their_colours_and_kept_in_every_window(
    page: playwright.Page,
) -> None:
    """Both lanes of a race and a branch of the first; a second window, then a reload."""
    run(page, "Say <i>it</i>.")
    see(page.locator("#race [data-chart=time]"))
    page.wait_for_function("document.querySelector('#race [data-chart=time] .rv-plot').data")
    live = [saved(page, "#race .rv-top .ex-menu", TRACE, line)[1].decode() for line in (0, 1)]
    methods = [read_trace(text.splitlines()).header.settings.method for text in live]
    assert methods == ["mars", "ar"]
    worn = {"Run 1": worn_by(page, 0), "Run 2": worn_by(page, 1)}
    for lane in ("mars", "ar"):
        page.click(PANE.format(lane) + " .rv-pin")
        page.wait_for_selector(PANE.format(lane) + " .rv-pin:text('Pinned')")
    before = page.get_attribute("#race .mars-race", "data-run")
    page.evaluate("""() => document.querySelector("#race .mars-race").lineView.ask(
      "branch", { lane: { name: "mars" }, token: 8, id: 66 })""")
    page.wait_for_selector(f"#race .mars-race[data-state=finished]:not([data-run='{before}'])")
    mars = PANE.format("mars")  # a lane keeps its colour
    assert page.eval_on_selector(mars, "node => node.dataset.colour") == worn["Run 1"][0]
    page.click(f"{mars} .rv-pin")  # only a pin with a colour that is taken gets another one
    see(page.locator("#race [data-chart=time]"))
    page.wait_for_function(f"{LINE.format(0)} !== '{worn['Run 1'][1]}'")  # drawn a frame later
    worn["Run 3"] = worn_by(page, 0)
    assert len({colour for colour, _ in worn.values()}) == 3

    open_tray(page, 3)
    unfold(page)
    names = page.locator("#compare .cv-name").evaluate_all(VALUES)
    assert names[0] == f"Branch of Run 1 at token 9: “B” instead of “{TEXT[8]}”"
    first = page.locator(ROW).nth(2)
    assert names[2].endswith("Say <i>it</i>.")
    page.wait_for_selector(f"{ROW} .cv-facts:text('scripted') >> nth=2")
    tpf = folds.tpf(read_trace(live[0].splitlines()).events)
    assert f"{tpf:.2f} tokens per pass" in first.locator(".cv-figures").inner_text()
    assert_wears(page, worn)

    with page.expect_popup() as popup:
        page.evaluate("window.open(location.pathname)")
    other = popup.value
    wait_state(other, "empty")
    open_tray(other, 3)
    unfold(other)
    there = other.locator(ROW).nth(2)
    first.locator(".cv-name").fill("My <b>run</b>")
    first.locator(".cv-note").fill("Line one\nand two")
    playwright.expect(there.locator(".cv-note")).to_have_value("Line one\nand two")
    there.locator(".cv-rating input[value='3']").check()
    playwright.expect(first.locator(".cv-rating input[value='3']")).to_be_checked()
    page.bring_to_front()  # a page behind another is drawn once a second
    page.reload()
    finished = "#race .mars-race[data-state=finished]"
    page.wait_for_selector(finished, state="attached")  # the reload brings the last run back
    open_tray(page, 3)
    unfold(page)
    assert first.locator(".cv-name").input_value() == "My <b>run</b>"
    assert first.locator(".cv-note").input_value() == "Line one\nand two"
    assert first.locator(".cv-rating input:checked").get_attribute("value") == "3"
    assert page.locator("#compare :is(b, i):not(.cv-table b)").count() == 0
    assert_wears(page, worn)
    name, text = saved(page, f":nth-match({ROW}, 3) .ex-menu", TRACE)
    assert text.decode() == live[0]
    assert name.startswith("scripted-tau0-Bauto-lossless-")
    there.get_by_role("button", name="Delete").click()
    for window in (page, other):
        window.wait_for_selector(f'{VIEW}[data-pins="2"]')
    other.get_by_role("button", name="Undo").click()
    page.wait_for_selector(f'{VIEW}[data-pins="3"]')
    assert first.locator(".cv-name").input_value() == "My <b>run</b>"
    other.close()


def test_runs_are_compared_opened_and_drawn(tray: playwright.Page) -> None:
    page = tray
    said = bring(
        page,
        trace_file("mars.jsonl", DEEP, date="2026-11-20T09:00"),
        trace_file("ar.jsonl", PLAIN, date="2026-11-20T09:01"),
        trace_file("far.jsonl", replace(MARS, seed=3), hardware="<img src=x>", date="2026-11-21"),
    )
    assert said == "3 runs were imported."
    unfold(page)
    page.wait_for_selector(f"{ROW}:first-child .cv-facts:text('imported')")
    boxes = page.locator(f"{ROW} .cv-tick input")
    boxes.nth(1).focus()
    page.keyboard.press("Space")
    boxes.nth(2).check()
    page.wait_for_selector(f"{TEXTS} >> nth=1")
    table = page.locator("#compare .cv-table")
    columns = table.locator("th[scope=col]").all_inner_texts()
    assert [column[0] for column in columns] == ["A", "B"]
    traces = [samples.run(script) for script in (PLAIN, DEEP)]
    row = table.locator("tr", has_text="tokens per pass").locator("td").all_inner_texts()
    assert [cell.split()[0] for cell in row] == [f"{folds.tpf(t.events):.2f}" for t in traces]
    assert ["best" in cell for cell in row] == [False, True]
    assert page.locator("#compare .cv-remark").count() == 0
    assert page.locator(f"{TEXTS} .cv-differs").all_inner_texts() == [
        traces[0].vocabulary[folds.accepted_tokens(traces[0].events)[60]].decode(),
        " deep",
    ]
    assert "different from token 61 onwards:" in page.inner_text(f"{TEXTS} >> nth=1")
    assert page.locator(f"{TEXTS} .cv-letter").all_inner_texts() == ["A", "B"]
    assert "not in the reference" in page.inner_text("#compare .cv-legend")
    page.select_option("#compare .cv-reference select", index=1)
    assert "the reference" in page.inner_text(f"{TEXTS} >> nth=1")
    page.focus(f"{TEXTS} >> nth=0 >> .rv-text")
    page.keyboard.press("Home")
    assert page.locator(f"{TEXTS} >> nth=1 >> .cv-here").count() == 1
    see(page.locator("#compare .rv-charts"))
    page.wait_for_function(HAS_CHARTS)
    boxes.nth(0).check()
    page.wait_for_selector(f"{TEXTS} >> nth=2")
    assert "different machines" in page.inner_text("#compare .cv-figuretable")
    row = table.locator("tr", has_text="tokens per second").locator("td").all_inner_texts()
    assert not any("best" in cell for cell in row)
    assert page.locator("#compare img").count() == 0
    see(page.locator("#compare .rv-charts"))
    page.wait_for_function(
        """[...document.querySelectorAll('#compare .rv-plot')].every(
          (node) => node.data.map((trace) => trace.name).join('') === 'ABC')"""
    )
    page.hover("#compare .js-plotly-plot >> nth=0")
    with page.expect_download() as picture:
        page.click(f"{CAMERA} >> nth=0")
    assert Path(picture.value.path()).read_bytes().startswith(b"\x89PNG")
    page.locator(ROW).nth(2).get_by_role("button", name="Open").click()
    page.wait_for_selector("#opened .mars-race[data-state=finished]")
    shown = "nodes => nodes.map((node) => node.textContent).join('')"
    assert page.eval_on_selector_all("#opened .rv-t", shown) == folds.text(traces[1])
    page.locator(ROW).nth(2).get_by_role("button", name="Close").click()
    page.wait_for_selector("#opened .mars-race", state="hidden")


GOOD = trace_file("", MARS)[1]
BROKEN = {
    "empty.jsonl": b"",
    "binary.jsonl": bytes(range(256)) * 40,
    "page.html": b"<script>alert(1)</script><img src=x onerror=alert(2)>",
    "nan.jsonl": GOOD.replace('"seconds":', '"seconds":NaN,"x":', 1).encode(),
    "large.jsonl": b"x" * (AppSettings().max_import_bytes + 1),
    "half.jsonl": (GOOD + json.dumps({"type": "header"})).encode(),
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
    assert all(sentence.endswith(".") and len(sentence) < 200 for sentence in sentences)
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
    page.wait_for_selector(f'{VIEW}[data-pins="2"]')
    assert page.locator("#compare b").count() == num_bold
