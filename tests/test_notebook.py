"""Runs in a notebook: what a cell's output draws, in a browser and in JupyterLab itself."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from browser import needs_browser, playwright, shared
from sample_traces import HOSTILE, PROSE, Script, run

from mars_runtime import show
from mars_runtime.api import Comparison, Result
from mars_runtime.display import notebook
from mars_runtime.runs.speedup import run_speedup
from mars_runtime.settings import DecodeSettings

AROUND = "<!doctype html><html><body style='color: #111'><div>{}</div></body></html>"
DONE = ".mars-race[data-state=finished]"


def result_of(text: str, method: str = "mars") -> Result:
    return Result(run(Script(text, DecodeSettings(method=method))))


@pytest.fixture(scope="module")
def race() -> Comparison:
    mars, ar = (result_of(PROSE, method) for method in ("mars", "ar"))
    return Comparison(mars, ar, run_speedup(mars.trace.events, ar.trace.events))


@contextmanager
def output(made: str) -> Iterator[tuple[playwright.Page, playwright.Frame]]:
    """A page around a cell's output, without a network, and the frame in it; fails if a script
    fails."""
    context = shared().browser.new_context(offline=True, color_scheme="light")
    page, troubles = context.new_page(), list[str]()
    page.set_default_timeout(90_000)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", lambda dialog: (troubles.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: troubles.append(request.url))
    page.set_content(AROUND.format(made))
    page.frame_locator("iframe").locator(DONE).wait_for()
    yield page, page.frames[1]
    assert [trouble for trouble in troubles if not trouble.startswith("about:")] == []
    context.close()


def test_a_result_in_a_terminal_is_one_line(race: Comparison) -> None:
    one = r"<Result: \d+ tokens in \d+ forward passes, ended by eos>"
    assert re.fullmatch(one, repr(race.mars))
    assert re.fullmatch(r"<Comparison: .*\d.*, same text>", repr(race))


@needs_browser
def test_a_race_is_drawn_and_follows_the_theme_of_the_notebook(race: Comparison) -> None:
    """The colour of text is known in every notebook; the background is transparent in some."""
    with output(race._repr_html_()) as (page, frame):
        steps = [len(entry.steps) for entry in (race.mars, race.ar)]
        assert frame.inner_text(".rv-saying").startswith(f"{steps[0]} passes instead of {steps[1]}")
        assert frame.locator(".rv-pane").count() == 2
        for pane, item in zip(frame.locator(".rv-pane").all(), (race.mars, race.ar), strict=True):
            assert pane.locator(".rv-text").inner_text().split() == item.text.split()
            assert pane.locator(".rv-c").count() == len(item.steps)
        holder, content = page.locator("iframe"), frame.locator("html")
        playwright.expect(page.locator("pre")).to_be_hidden()
        heights = [node.bounding_box()["height"] for node in (holder, content)]
        assert heights[0] == pytest.approx(heights[1], abs=1)
        assert frame.locator("html.dark").count() == 0
        page.evaluate("document.body.style.color = 'rgba(255, 255, 255, 0.87)'")
        frame.wait_for_selector("html.dark")


@needs_browser
def test_text_of_a_model_runs_nothing_and_ends_nothing() -> None:
    text = f"{HOSTILE}</script></pre></iframe><script>alert(1)</script>\"'"
    with output(result_of(text)._repr_html_()) as (page, frame):
        children = page.locator("body > div > *").evaluate_all("all => all.map((a) => a.tagName)")
        assert children == ["DIV"]
        assert frame.locator("img, .rv-text script").count() == 0
        assert "</iframe><script>alert(1)</script>" in frame.inner_text(".rv-text")


def test_outside_a_notebook_a_browser_opens_the_replay(
    race: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(notebook.webbrowser, "open", opened.append)
    monkeypatch.setattr(notebook.sys, "platform", "linux")
    monkeypatch.setattr(notebook.tempfile, "tempdir", str(tmp_path))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    show([race.mars])
    assert (opened, "replay.html" in capsys.readouterr().out) == ([], True)
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    file = tmp_path / "run.jsonl"
    race.mars.save(file)
    show(race, file)
    (address,) = opened
    page = Path(address.removeprefix("file://")).read_text("utf-8")
    data = json.loads(re.findall(r'id="data">(.*?)</script>', page)[0])
    assert data["title"] == "MARS against plain AR against MARS"
    head, *lines = data["value"].splitlines()
    assert [lane["lane"] for lane in json.loads(head)["lanes"]] == ["mars", "ar", "mars-2"]
    saved = [f"mars-2\t{line}" for line in file.read_text().splitlines()]
    assert lines[-len(saved) :] == saved


def test_a_notebook_gets_the_answer_as_plain_text_too(
    race: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[dict[str, str]] = []
    display = SimpleNamespace(display=lambda data, raw: shown.append(data))
    module = SimpleNamespace(display=display, get_ipython=lambda: SimpleNamespace(kernel=None))
    monkeypatch.setitem(sys.modules, "IPython", module)
    show(race.mars)
    assert shown[0]["text/plain"] == race.mars.text
    assert "<iframe" in shown[0]["text/html"]
    written: list[str] = []
    for item in (race, race.mars):  # a console of IPython
        item._repr_pretty_(SimpleNamespace(text=written.append), cycle=False)
    assert written == [race.mars.text] * 2
