"""Runs in a notebook: what a cell's output draws, in a browser and in JupyterLab itself."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from browser import chromium, needs_browser, playwright, shared
from environments import free_port, make_environment, wait_until_it_serves
from sample_traces import HOSTILE, PROSE, Script, run

from mars_runtime import MarsError, notebook, show
from mars_runtime.api import Comparison, Result
from mars_runtime.settings import DecodeSettings
from mars_runtime.speedup import run_speedup
from mars_runtime.trace import Trace

AROUND = "<!doctype html><html><body style='color: {}'><div>{}</div></body></html>"
DONE = ".mars-race[data-state=done]"
SHOW_CELLS = (
    "import mars_runtime as mars\nmodel = mars.load('mars-tiny')\nmodel.generate('Once')",
    "race = model.compare('Once')\nrace",
    "mars.show(race)",
)
READY = """() => {
  const context = window.jupyterapp?.shell.currentWidget?.context;
  return context?.isReady && context.sessionContext.session?.kernel;
}"""


def trace_of_text(text: str, method: str = "mars") -> Trace:
    return run(Script(text, DecodeSettings(method=method)))


@pytest.fixture(scope="module")
def race() -> Comparison:
    mars, ar = (Result(trace_of_text(PROSE, method)) for method in ("mars", "ar"))
    return Comparison(mars, ar, run_speedup(mars.trace.events, ar.trace.events))


@contextmanager
def output(made: str, colour: str = "#111") -> Iterator[tuple[playwright.Page, playwright.Frame]]:
    """A page around a cell's output, without a network, and the frame in it; fails if a script
    fails."""
    context = shared().browser.new_context(offline=True, color_scheme="light")
    page, troubles = context.new_page(), list[str]()
    page.set_default_timeout(90_000)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", lambda dialog: (troubles.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: troubles.append(request.url))
    page.set_content(AROUND.format(colour, made))
    page.frame_locator("iframe").locator(".mars-race").wait_for()
    yield page, page.frames[1]
    assert [trouble for trouble in troubles if not trouble.startswith("about:")] == []
    context.close()


def test_a_result_in_a_terminal_is_one_line(race: Comparison) -> None:
    assert re.fullmatch(
        r"<Result: \d+ tokens in \d+ forward passes, ended by eos>", repr(race.mars)
    )
    assert re.fullmatch(r"<Comparison: \d+ forward passes instead of \d+>", repr(race))


@needs_browser
def test_a_race_is_drawn_with_groups_passes_and_headline(race: Comparison) -> None:
    with output(race._repr_html_()) as (page, frame):
        frame.wait_for_selector(DONE)
        steps = [len(entry.steps) for entry in (race.mars, race.ar)]
        assert frame.inner_text(".rv-saying").startswith(f"{steps[0]} passes instead of {steps[1]}")
        assert frame.locator(".rv-pane").count() == 2
        for pane, item in zip(frame.locator(".rv-pane").all(), (race.mars, race.ar), strict=True):
            assert pane.locator(".rv-text").inner_text().split() == item.text.split()
            assert pane.locator(".rv-c").count() == pane.locator(".rp-bars i").count()
            assert pane.locator(".rv-c").count() == len(item.steps)
        holder, content = page.locator("iframe"), frame.locator("html")
        playwright.expect(page.locator("pre")).to_be_hidden()
        assert holder.bounding_box()["height"] == content.bounding_box()["height"]


@needs_browser
@pytest.mark.parametrize(
    ("colour", "is_dark"), [("rgba(255, 255, 255, 0.87)", True), ("#111", False)]
)
def test_it_follows_the_theme_of_the_notebook(race: Comparison, colour: str, is_dark: bool) -> None:
    """The colour of text is known in every notebook; the background is transparent in some."""
    with output(race.mars._repr_html_(), colour) as (page, frame):
        frame.wait_for_selector(DONE)
        assert (frame.locator("html.dark").count() == 1) == is_dark
        page.evaluate(f"document.body.style.color = '{'#111' if is_dark else '#eee'}'")
        frame.wait_for_selector("html:not(.dark)" if is_dark else "html.dark")


@needs_browser
def test_text_of_a_model_runs_nothing_and_ends_nothing() -> None:
    text = f"{HOSTILE}</script></pre></iframe><script>alert(1)</script>\"'"
    result = Result(trace_of_text(text))
    with output(result._repr_html_()) as (page, frame):
        frame.wait_for_selector(DONE)
        assert page.locator("body > div > *").evaluate_all(
            "all => all.map(({tagName}) => tagName)"
        ) == ["DIV"]
        assert frame.locator("img, .rv-text script").count() == 0
        assert "</iframe><script>alert(1)</script>" in frame.inner_text(".rv-text")


def test_the_plain_text_is_there_for_notebooks_that_show_no_frames() -> None:
    made = Result(trace_of_text(HOSTILE))._repr_html_()
    (text,) = re.findall(r"<pre data-mars-text[^>]*>(.*?)</pre>", made, re.DOTALL)
    assert html.unescape(text) == Result(trace_of_text(HOSTILE)).text
    assert "<script" not in made


def test_outside_a_notebook_a_browser_opens_the_replay(
    race: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(notebook.webbrowser, "open", opened.append)
    monkeypatch.setattr(notebook.tempfile, "tempdir", str(tmp_path))
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


def test_what_cannot_be_shown_is_one_sentence(race: Comparison, tmp_path: Path) -> None:
    for runs in ((), (race, race, race)):
        with pytest.raises(MarsError, match="show accepts 1 to 4 runs"):
            show(*runs)
    with pytest.raises(MarsError, match="cannot be read"):
        show(tmp_path / "none.jsonl")
    (tmp_path / "broken.jsonl").write_bytes(b"\xff{}\n")
    with pytest.raises(MarsError):
        show(tmp_path / "broken.jsonl")


def cell(source: str) -> dict[str, object]:
    empty: dict[str, object] = {"metadata": {}, "outputs": [], "execution_count": None}
    return {"cell_type": "code", "source": source, **empty}


@pytest.mark.slow
@pytest.mark.timeout(900)
@needs_browser
def test_a_notebook_in_jupyterlab_shows_runs_light_and_dark(tmp_path: Path) -> None:
    """With this process's packages, in an environment of JupyterLab's own."""
    python = make_environment(tmp_path / "environment", "jupyterlab")
    (packages,) = (tmp_path / "environment").glob("lib/python*/site-packages")
    others = [path for path in sys.path if path.endswith("site-packages")]
    root = str(Path(__file__).parents[1])
    (packages / "others.pth").write_text("\n".join([root, *others]) + "\n")
    folder = tmp_path / "notebooks"
    folder.mkdir()
    result = Result(trace_of_text(PROSE))
    shown = {"text/html": result._repr_html_(), "text/plain": repr(result)}
    sent = {"output_type": "display_data", "data": shown, "metadata": {}}
    write_notebook(folder / "run.ipynb", [*map(cell, SHOW_CELLS)])
    write_notebook(folder / "sent.ipynb", [{**cell(""), "outputs": [sent]}])
    with jupyterlab(python, folder) as address, chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(120_000)
        page.goto(f"{address}/lab/tree/run.ipynb")
        page.wait_for_function(READY)
        page.evaluate("jupyterapp.commands.execute('notebook:run-all-cells')")
        for number in range(len(SHOW_CELLS)):
            drawn = page.frame_locator(".jp-OutputArea iframe >> nth=" + str(number))
            drawn.locator(".mars-race:is([data-state=done], [data-state=finished])").wait_for()
            drawn.locator("html:not(.dark)").wait_for()
        dark = "jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' })"
        page.evaluate(dark)
        for number in range(len(SHOW_CELLS)):
            drawn = page.frame_locator(".jp-OutputArea iframe >> nth=" + str(number))
            drawn.locator("html.dark").wait_for()
        page.goto(f"{address}/lab/tree/sent.ipynb")  # by somebody else, so it is not trusted
        page.get_by_text(PROSE[:80]).wait_for()
        assert page.locator(".jp-OutputArea iframe").count() == 0


def write_notebook(path: Path, cells: list[dict[str, object]]) -> None:
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    made = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 4}
    path.write_text(json.dumps(made))


@contextmanager
def jupyterlab(python: Path, folder: Path) -> Iterator[str]:
    """JupyterLab on a folder; yields its address."""
    port = free_port()
    command = [
        str(python), "-m", "jupyterlab", "--allow-root", "--no-browser", f"--port={port}",
        "--IdentityProvider.token=", f"--ServerApp.root_dir={folder}",
        "--LabApp.expose_app_in_browser=True",
    ]  # fmt: skip
    log = folder.parent / "log"
    environment = {**os.environ, "HOME": str(folder.parent)}
    with (
        log.open("wb") as out,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
        subprocess.Popen(command, env=environment, stdout=out, stderr=out) as process,
    ):
        try:
            wait_until_it_serves(client, process, log, "/lab")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
