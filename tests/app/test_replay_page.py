"""The replay document in a real browser, opened from the disk with the network off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from browser import needs_browser, opened, playwright, see, settle, shared
from live_page import ROOT, wait_loaded
from scripted_page import TEXT, ScriptedBackend

from app.ui.recordings import load
from mars_runtime.display import replay_page
from mars_runtime.runs import folds
from mars_runtime.runs.trace import read_trace

pytestmark = needs_browser


PROBE = "http://127.0.0.1:9/"  # asked for by a test, and refused by the page
TAKE = """async (probe) => {
  const seen = [];
  const see = (event) => seen.push(event.effectiveDirective);
  document.addEventListener("securitypolicyviolation", see);
  const script = document.createElement("script");
  script.textContent = "window.taken = true";
  document.body.append(script);
  new Image().src = probe;
  await fetch(probe).catch(() => {});
  while (seen.length < 3) await new Promise((resolve) => setTimeout(resolve, 5));
  return [window.taken, seen.sort()];
}"""
"""Run and fetch something else: what came of it, and what the page's policy refused."""
HOSTILE = "</script><script>document.title='taken'</script><!--<b>${x}{{y}}"


@contextmanager
def offline(height: int, *own: str) -> Iterator[playwright.Page]:
    """A page without a network; fails at the end if it broke or requested anything but its own."""
    context = shared().browser.new_context(
        offline=True, viewport={"width": 1280, "height": height}, color_scheme="light"
    )
    context.set_default_timeout(90_000)  # a busy machine is slow, not wrong
    page, troubles = context.new_page(), list[str]()
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", lambda dialog: (troubles.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: troubles.append(request.url))
    yield page
    context.close()
    assert [trouble for trouble in troubles if not trouble.startswith(own)] == []


def test_a_document_from_python(tmp_path: Path) -> None:
    recording = next(recording for recording in load() if recording.name == "average")
    traces = recording.traces()
    file = tmp_path / "replay.html"
    file.write_text(replay_page.replay([*traces.values()]), encoding="utf-8")
    with offline(900, file.as_uri()) as page:
        page.goto(file.as_uri())
        page.wait_for_selector(".mars-race[data-state=finished]")
        text = "".join(page.locator(".rv-pane[data-lane=mars] .rv-t").all_text_contents())
        assert text == folds.text(traces["mars"])
        assert page.inner_text(".rv-prompt") == recording.prompt
        header = traces["mars"].header
        assert header.date[:10] in page.inner_text(".rv-recorded")
        assert header.hardware in page.text_content(".rv-env")
        wait_until_drawn(page)
        axe = pytest.importorskip("test_axe")
        problems = axe.violations(page, "replay")
        page.emulate_media(color_scheme="dark")
        page.wait_for_selector("html.dark")
        problems += axe.violations(page, "replay, dark", rules=axe.CONTRAST)
        assert not problems, "\n".join(problems)
        page.set_viewport_size({"width": 390, "height": 844})
        page.wait_for_function(
            "() => innerWidth === 390 && document.documentElement.scrollWidth <= innerWidth"
        )


def test_hostile_text_stays_text_and_can_request_nothing(tmp_path: Path) -> None:
    traces = [*load()[0].traces().values()]
    for trace in traces:
        trace.header = replace(trace.header, prompt=HOSTILE, name=HOSTILE)
    file = tmp_path / "hostile.html"
    file.write_text(replay_page.replay(traces, has_charts=False), encoding="utf-8")
    refused = "Fetch API cannot load", "Executing inline", "Connecting to", "Loading the image"
    with offline(900, file.as_uri(), PROBE, *refused) as page:
        page.goto(file.as_uri())
        page.wait_for_selector(".mars-race[data-state=finished]")
        title = f"{HOSTILE} against {HOSTILE}"
        assert page.title() == f"{title} · MARS live"
        assert page.inner_text("h1") == title
        assert page.inner_text(".rv-prompt") == HOSTILE
        assert page.locator(":is(h1, .rv-prompt, h3) :is(b, script)").count() == 0
        assert page.locator(".rv-noplot:visible").count() == 0
        assert page.evaluate(TAKE, PROBE) == [None, ["connect-src", "img-src", "script-src-elem"]]


SHOWN = """(root) => {
  const all = (what) => [...root.querySelectorAll(what)];
  const { state, steps, lanes, at } = root.dataset;
  return {
    data: { state, steps, lanes, at },
    texts: all(".rv-text").map((node) => node.innerText),
    tokens: all(".rv-t").map((node) => [node.className, node.textContent]),
    chunks: all(".rv-c").map((node) => [node.className, node.dataset.n || ""]),
    heads: all(".rv-head h3, .rv-head .rv-num, .rv-verdict").map((node) => node.textContent),
    said: all(".rv-status, .rv-note, .rv-prompt, .rv-once").map((n) => n.textContent),
    figures: all(".rv-figures, .rv-env, .rv-legend").map((n) => n.textContent),
    place: root.querySelector(".pl-position").innerText,
    drawer: root.querySelector(".rv-drawer").innerText,
    charts: all(".rv-plot").map(({ data }) => JSON.stringify(data.map(({ x, y }) => [x, y]))),
  };
}"""


AT_REST = """() => {
  const { charts, reader, frame } = document.querySelector(".mars-race").lineView;
  const isDone = ({ plot }) => !plot.timer && (!plot.isDue || !plot.node.clientWidth);
  const isDrawn = charts.charts.every(isDone);
  return isDrawn && !frame && !reader.lines.length;
}"""

TALL: playwright.ViewportSize = {"width": 1280, "height": 2400}  # charts are drawn in sight


def wait_until_drawn(page: playwright.Page) -> None:
    page.wait_for_selector(".mars-race[data-state=finished]")
    page.mouse.move(0, 0)  # not over what is scrolled under it
    see(page.locator(".mars-race .rv-charts"))
    page.locator(".mars-race .rv-plot.js-plotly-plot").nth(1).wait_for()


def shown(page: playwright.Page) -> dict[str, Any]:
    """Everything that a visitor sees of the run, once its charts have caught up."""
    settle(page)
    page.wait_for_function(AT_REST)
    return page.locator(".mars-race:has(.rv-t)").first.evaluate(SHOWN)


def test_a_saved_replay_shows_what_the_page_showed(
    address: str, scripted_backend: ScriptedBackend, tmp_path: Path
) -> None:
    """Where it opens, and where the same steps lead."""
    scripted_backend.text = TEXT[:160]
    link = f"{address}?tau=0.5&lossless=false&prompt={quote(HOSTILE)}"
    with opened(link, **TALL) as live:
        wait_loaded(live)
        live.evaluate("window.mars.answers = []")  # what only a server can answer, no file offers
        live.click("#run")
        wait_until_drawn(live)
        live.click(f"{ROOT} .ex-menu summary")
        with live.expect_download() as begun:
            live.click(f"{ROOT} .ex-menu button:has-text('HTML')")
        file = tmp_path / "run.html"
        begun.value.save_as(file)
        live.keyboard.press("Escape")
        with offline(TALL["height"], file.as_uri()) as replay:
            replay.goto(file.as_uri())
            wait_until_drawn(replay)
            before, after = shown(live), shown(replay)
            assert len(before["tokens"]) > 100
            assert any("rv-n4" in name for name, _ in before["chunks"])
            assert max(map(len, before["charts"])) > 50
            assert after == before
            for page in (live, replay):
                page.focus(".rv-pane[data-lane=mars] .rv-text")
                for key in ("Home", "ArrowRight", "ArrowDown", "ArrowDown", "Enter"):
                    page.keyboard.press(key)
            before, after = shown(live), shown(replay)
            assert "pass 3" in before["drawer"]
            assert after == before
            assert replay.inner_text(".rv-prompt") == HOSTILE
            assert replay.locator(":is(h1, .rv-prompt, .rv-text) :is(b, script)").count() == 0
            replay.click(".ex-menu summary")
            replay.locator(".ex-menu button").first.wait_for()
            assert replay.get_by_role("button", name="HTML").count() == 0
            with replay.expect_download() as saved:
                replay.get_by_text("JSONL", exact=True).first.click()
            trace = read_trace(saved.value.path().read_text("utf-8").splitlines())
            assert TEXT.startswith(folds.text(trace))
            assert replay.inner_text(".rv-recorded").startswith("scripted, recorded 20")
