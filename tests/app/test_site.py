"""The site of recorded runs in a real browser, opened from the disk with the network off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import needs_browser, playwright, see, shared, visiting
from scripted_page import TEXT, ScriptedBackend

from app.ui.recordings import RecordingsError, load, measured
from mars_runtime import folds
from mars_runtime.loops import find_loop
from mars_runtime.replay_page import filled, shell
from tools.make_site import README, build_site

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
WITH_CHARTS = ("lossless", "tau-moved")
"""Recordings with pages that are also checked on a phone, and by axe."""
HOSTILE = "</script><script>document.title='taken'</script><!--<b>${x}{{y}}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the site of the bundled recordings."""
    folder = tmp_path_factory.mktemp("site")
    build_site(folder, load())
    return folder


@contextmanager
def offline(height: int, *own: str) -> Iterator[playwright.Page]:
    """A page without a network; fails at the end if it broke or requested anything but its own."""
    context = shared().browser.new_context(
        offline=True, viewport={"width": 1280, "height": height}, color_scheme="light"
    )
    context.set_default_timeout(90_000)  # a busy machine is slow, not wrong
    page, troubles = context.new_page(), list[str]()
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", lambda dialog: (troubles.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: troubles.append(request.url))
    yield page
    context.close()
    assert [trouble for trouble in troubles if not trouble.startswith(own)] == []


@pytest.fixture(scope="module")
def page() -> Iterator[playwright.Page]:
    with offline(900, "file:", "data:", "blob:", PROBE) as opened:
        yield opened


def wait_until_shown(page: playwright.Page) -> None:
    page.wait_for_selector(".mars-race[data-state=finished]")


def see_charts(page: playwright.Page) -> None:
    """Bring the charts into sight, where they are drawn."""
    see(page.locator(".mars-race .rv-charts"))
    page.locator(".mars-race .rv-plot.js-plotly-plot").nth(1).wait_for()


def look_on_a_phone(page: playwright.Page) -> None:
    """Nothing is wider than the screen."""
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function(
        "() => innerWidth === 390 && document.documentElement.scrollWidth <= innerWidth"
    )
    page.set_viewport_size({"width": 1280, "height": 900})


def look_with_axe(page: playwright.Page, where: str) -> None:
    """It finds nothing in light, nor of contrast when the system turns dark."""
    try:
        from test_axe import CONTRAST, violations
    except pytest.skip.Exception:
        return
    problems = violations(page, where)
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector("html.dark")
    problems += violations(page, f"{where}, dark", rules=CONTRAST)
    page.emulate_media(color_scheme="light")
    page.wait_for_selector("html:not(.dark)")
    assert not problems, "\n".join(problems)


def ground(page: playwright.Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_the_list_says_what_each_recording_measured_and_leads_to_it(
    page: playwright.Page, site: Path
) -> None:
    """In the system's theme until somebody chooses, which the page of a recording keeps to."""
    page.goto((site / "index.html").as_uri())
    recordings = load()
    links = page.locator(".rp-list a")
    assert links.all_inner_texts() == [recording.title for recording in recordings]
    items = page.locator(".rp-list li").all_inner_texts()
    for item, recording in zip(items, recordings, strict=True):
        actual = measured(recording)
        assert f"{actual.tpf:.2f} tokens per pass" in item
        assert (f"{actual.speedup:.2f}×" if actual.speedup else "tokens per pass") in item
        assert ("×" in item) == bool(actual.speedup)
        assert actual.against in item
    header = measured(recordings[0]).header
    for part in (header.hardware, header.checkpoint, header.date[:10]):
        assert part in page.inner_text("main")
    look_on_a_phone(page)
    look_with_axe(page, "index")

    light = ground(page)
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector("html.dark")
    assert ground(page) != light
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches('.rp-theme')")
    page.click(".rp-theme")
    assert ground(page) == light
    for _ in ("how it works", "present", "the first recording"):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    wait_until_shown(page)
    assert ground(page) == light
    page.evaluate("localStorage.clear()")
    page.emulate_media(color_scheme="light")

    assert page.inner_text("h1") == recordings[0].title
    see_charts(page)
    assert page.evaluate(TAKE, PROBE) == [None, ["connect-src", "img-src", "script-src-elem"]]
    page.click(".rp-back")
    links.nth(len(recordings) - 1).wait_for()


@pytest.mark.parametrize("others", [2, pytest.param(None, marks=pytest.mark.slow)])
def test_every_page_shows_its_recording(
    page: playwright.Page, site: Path, others: int | None
) -> None:
    """Text and figures do without charts."""
    page.route("**/plotly.min.js", lambda route: route.abort())
    bundled = sorted(load(), key=lambda recording: recording.name in WITH_CHARTS)
    for recording in [*bundled[: -len(WITH_CHARTS)][:others], *bundled[-len(WITH_CHARTS) :]]:
        if recording.name in WITH_CHARTS:
            page.unroute("**/plotly.min.js")
        page.goto((site / f"{recording.name}.html").as_uri())
        wait_until_shown(page)
        for lane, trace in recording.traces().items():
            tokens = page.locator(f".rv-pane[data-lane={lane}] .rv-t").all_text_contents()
            assert "".join(tokens) == folds.text(trace)
        assert page.inner_text(".rv-prompt") == recording.prompt
        assert page.inner_text(".rp-why") == recording.why
        header = measured(recording).header
        assert page.inner_text(".rv-recorded") == f"recorded {header.date[:10]}"
        assert header.hardware in page.inner_text(".rv-env")
        if recording.name in WITH_CHARTS:
            look_on_a_phone(page)
            see_charts(page)
            look_with_axe(page, recording.name)


def test_how_it_works_and_the_tour_come_with_the_site(page: playwright.Page, site: Path) -> None:
    page.goto((site / "index.html").as_uri())
    page.click(".rp-more a >> nth=1")
    page.wait_for_selector(".mars-present[data-stop='0']")
    assert page.locator(".pr-lane").count() == 2
    assert page.locator(".pr-golive").is_hidden()
    for _ in range(2):
        page.keyboard.press(" ")
    assert "passes instead of" in page.inner_text(".pr-figure")
    page.keyboard.press("Escape")
    assert page.locator(".ex-picture .ex-said").count() == 4
    assert page.locator(".ex-mask svg").is_visible()
    look_on_a_phone(page)
    page.click(".rp-present")
    assert page.locator(".mars-present").count() == 1
    page.keyboard.press("Escape")


def test_hostile_titles_and_values_stay_text(page: playwright.Page, tmp_path: Path) -> None:
    recording = load()[0]
    head, *lines = recording.value.splitlines()
    lane, _, header = lines[0].partition("\t")
    lines[0] = f"{lane}\t{json.dumps({**json.loads(header), 'prompt': HOSTILE})}"
    file = tmp_path / "hostile.html"
    value = "\n".join([head, *lines]) + "\n"
    text = filled(shell(), {"title": HOSTILE, "why": HOSTILE, "value": value})
    file.write_text(text, encoding="utf-8")
    page.goto(file.as_uri())
    wait_until_shown(page)
    assert page.title() == f"{HOSTILE} · MARS live"
    for place in ("h1", ".rp-why", ".rv-prompt"):
        assert page.inner_text(place) == HOSTILE
    figures_of_page = (
        ":is(.rv-saying, .rv-beat, .rv-count) > b"  # the page's own, which hold numbers only
    )
    assert not any("x" in text for text in page.locator(figures_of_page).all_text_contents())
    stray = f":is(h1, main) :is(b:not([class]):not({figures_of_page}), script)"
    assert page.locator(stray).count() == 0


def test_the_site_is_a_static_space_and_a_strange_name_writes_nowhere(
    site: Path, tmp_path: Path
) -> None:
    front = README.split("---\n")[1].splitlines()
    assert {"sdk: static", "app_file: index.html"} <= set(front)
    assert (site / "README.md").read_text(encoding="utf-8") == README
    entry = {"name": "../out", "title": "", "why": "", "prompt": "", "settings": {}}
    (tmp_path / "index.json").write_text(json.dumps([entry]))
    (tmp_path.parent / "out.txt").write_text(load()[0].value)
    with pytest.raises(RecordingsError, match="has no recordings"):
        load(tmp_path)


ROOT = "#race .mars-race"
HOSTILE_PROMPT = "Say </script><script>alert(1)</script><!-- ${x} {{y}} <b>it</b>."
SHOWN = """(root) => {
  const all = (what) => [...root.querySelectorAll(what)];
  const { state, steps, lanes, at } = root.dataset;
  return {
    data: { state, steps, lanes, at },
    texts: all(".rv-text").map((node) => node.innerText),
    tokens: all(".rv-t").map((node) => [node.className, node.textContent]),
    chunks: all(".rv-c").map((node) => [node.className, node.dataset.n || ""]),
    heads: all(".rv-head h3, .rv-head .rv-num, .rv-verdict").map((node) => node.textContent),
    said: all(".rv-status, .rv-note, .rv-prompt, .rv-once").map((n) => n.innerText),
    figures: all(".rv-figures, .rv-env, .rv-legend").map((n) => n.innerText),
    place: root.querySelector(".pl-position").innerText,
    card: root.querySelector(".rv-card").innerText,
    panel: all("[role=tabpanel]:not([hidden])").map((node) => node.textContent),
    charts: all(".rv-plot").map(({ data }) => JSON.stringify(data.map(({ x, y }) => [x, y]))),
  };
}"""


AT_REST = """() => {
  const { charts, feed, frame } = document.querySelector(".mars-race").lineView;
  return !charts.dirty.size && !charts.timer && !frame && !feed.lines.length;
}"""

TALL: playwright.ViewportSize = {"width": 1280, "height": 2400}  # charts are drawn in sight


@pytest.fixture(scope="module")
def live(address: str, scripted_backend: ScriptedBackend) -> Iterator[playwright.Page]:
    """The page after a race with a low tau, so that forwards accepted several tokens."""
    scripted_backend.text = TEXT[:160]
    with visiting() as take:
        page = take(address)
        page.set_viewport_size(TALL)
        page.goto(address)
        page.wait_for_selector(f"{ROOT}[data-state=empty]")
        page.fill("#tau input[type=number]", "0.5")
        page.fill("#prompt textarea", HOSTILE_PROMPT)
        page.evaluate("window.mars.answers = []")  # what only a server can answer, no file offers
        page.click("#run")
        wait_until_drawn(page)
        yield page


@pytest.fixture(scope="module")
def saved(live: playwright.Page, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that the export menu gives."""
    live.click(f"{ROOT} .ex-menu summary")
    with live.expect_download() as begun:
        live.click(f"{ROOT} .ex-menu button:has-text('HTML')")
    file = tmp_path_factory.mktemp("saved") / begun.value.suggested_filename
    begun.value.save_as(file)
    live.keyboard.press("Escape")
    return file


@pytest.fixture(scope="module")
def replay(saved: Path) -> Iterator[playwright.Page]:
    """The file, which requests nothing."""
    with offline(TALL["height"], saved.as_uri()) as opened:
        opened.goto(saved.as_uri())
        wait_until_drawn(opened)
        yield opened


def wait_until_drawn(page: playwright.Page) -> None:
    page.wait_for_selector(".mars-race[data-state=finished]")
    assert page.get_attribute(".mars-race", "data-clock") == "passes"  # a file opens as the page
    loop = find_loop(list(TEXT[:160].encode()))
    assert loop is not None
    said = page.inner_text(".mars-race .rv-saying")
    assert said.startswith(f"The text repeats itself after token {loop.kept}. Up to that point: ")
    assert f"passes instead of {loop.kept} for the same text" in said
    page.click(".mars-race .rv-clock button >> text=Seconds")  # the clock that shows every figure
    page.mouse.move(0, 0)  # not over what is scrolled under it
    see_charts(page)


def shown(page: playwright.Page) -> dict[str, Any]:
    """Everything that a visitor sees of the run, once its charts have caught up."""
    page.evaluate("() => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))")
    page.wait_for_function(AT_REST)
    return page.locator(".mars-race .rv-panes >> xpath=..").first.evaluate(SHOWN)


def test_a_saved_replay_shows_what_the_page_showed(
    live: playwright.Page, replay: playwright.Page
) -> None:
    """Where it opens, where the same steps lead, and in every panel."""
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
    assert "pass 3" in before["card"]
    assert after == before
    for page in (live, replay):
        page.keyboard.press("Escape")
        page.keyboard.press("Escape")
        page.click(".mars-race [aria-label='To the start']")
        for _ in range(5):
            page.click(".mars-race [aria-label='Next pass']")
    before, after = shown(live), shown(replay)
    assert before["data"]["at"] == "5"
    assert after == before
    for page in (live, replay):
        page.click(".mars-race [aria-label='To the end']")
    tabs = live.locator(f"{ROOT} .rv-tab").all_inner_texts()
    assert replay.locator(".mars-race .rv-tab").all_inner_texts() == tabs
    for tab in tabs:
        for page in (live, replay):
            page.click(f".mars-race .rv-tab:has-text('{tab}')")
        assert shown(replay)["panel"] == shown(live)["panel"]


def test_a_replay_is_text_offers_no_replay_and_asks_no_server(replay: playwright.Page) -> None:
    assert replay.inner_text(".rv-prompt") == HOSTILE_PROMPT
    assert replay.locator(":is(h1, .rv-prompt, .rv-text) :is(b, script)").count() == 0
    tokens = replay.locator(".rv-pane[data-lane=mars] .rv-t").all_text_contents()
    assert "${HOME}<b>bold</b>" in "".join(tokens)
    replay.click(".ex-menu summary")
    replay.locator(".ex-menu button").first.wait_for()
    offers = replay.locator(".ex-menu button").all_inner_texts()
    assert "JSONL" in offers
    assert "HTML" not in offers
    replay.keyboard.press("Escape")
    assert replay.inner_text(".rv-recorded").startswith("recorded 20")
