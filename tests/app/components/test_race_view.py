"""The race view in a real browser, fed with hand-written trace lines."""

from __future__ import annotations

import pytest
import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright, see, settle
from race_browser import (
    AR,
    CHARTS_REST,
    MARS,
    ROOT,
    ByHand,
    put,
    rows_of,
    shown_text,
    still_page,
    wait_for_charts,
)

from app.ui.recordings import load
from mars_runtime.runs import folds

pytestmark = needs_browser
TIME = "document.querySelector('[data-chart=time] .rv-plot')"


@pytest.mark.parametrize("script", [race_scenes.PROSE, race_scenes.EMOJI])
def test_tokens_are_grouped_by_forward(page: playwright.Page, script: samples.Script) -> None:
    put(page, race_scenes.finished(script))
    trace, rows = samples.run(script), rows_of(script)
    assert shown_text(page, MARS) == folds.text(trace)
    assert shown_text(page, AR) == script.text
    counts = page.eval_on_selector_all(
        f"{MARS} .rv-c", "nodes => nodes.map(n => n.querySelectorAll('.rv-t').length)"
    )
    assert counts == [len(row.accepted) for row in rows]
    pane = page.locator(MARS)
    assert pane.get_attribute("data-steps") == str(folds.num_forwards(trace.events))
    assert pane.get_attribute("data-tokens") == str(folds.num_tokens(trace.events))
    assert page.locator(f"{AR} .rv-wrong").count() == 0
    if script.change:  # where the texts part
        assert page.locator(f"{MARS} .rv-wrong").count()
        assert f"token {script.change[0] + 1}" in page.inner_text(f"{MARS} .rv-differs")
        assert [page.locator(f"{name} .rv-mark").count() for name in (MARS, AR)] == [1, 1]
        explained = page.locator(f"{ROOT} .rv-legend :is(.rv-own, .rv-missing)").last
        assert not explained.is_visible()
        page.click(f"{MARS} .rv-all-differs")
        assert page.locator(f"{MARS} .rv-own").count()
        assert explained.is_visible()
        page.click(f"{MARS} .rv-all-differs")
    selected = page.locator(f"{MARS} .rv-text").evaluate(
        """(node) => {
          const selection = getSelection();
          selection.selectAllChildren(node);
          const text = selection.toString();
          selection.removeAllRanges();
          return text;
        }"""
    )
    assert selected.split() == shown_text(page, MARS).split()  # no counts or marks are copied


def test_untrusted_and_given_text_and_verdicts(page: playwright.Page) -> None:
    put(page, race_scenes.finished(race_scenes.HOSTILE))
    text = shown_text(page, MARS)
    for piece in ("${HOME}<b>x</b>", "{{7*7}}", "<script>alert(2)</script>", "C:\\u{zz}", "&amp;"):
        assert piece in text
    assert page.locator(f"{ROOT} .rv-text :is(b, img, script)").count() == 0
    assert "\u202e" not in text
    put(page, race_scenes.finished(race_scenes.BRANCH))
    trace = samples.run(race_scenes.BRANCH)
    for lane in (MARS, AR):
        given = page.locator(f"{lane} .rv-given")
        assert given.evaluate("e => e.textContent") == folds.given_text(trace)
        assert folds.given_text(trace) + shown_text(page, lane) == folds.text(trace)
    put(page, race_scenes.finished(race_scenes.MATHS, right=False))
    verdicts = [page.get_attribute(f"{lane} .rv-verdict", "data-right") for lane in (MARS, AR)]
    assert verdicts == ["false", "true"]
    put(page, race_scenes.broken())
    page.wait_for_selector(f"{ROOT}[data-state=error] .rv-status:not(:empty)")


def test_ghosts_and_moves_show_while_running(page: playwright.Page) -> None:
    put(page, race_scenes.running(race_scenes.PROSE, 30))
    page.wait_for_selector(f"{ROOT}[data-state=slow] {MARS}[data-steps='30'] .rv-ghost")
    assert page.locator(f"{AR} .rv-ghost").count() == 0
    assert page.locator(f"{MARS} .rv-move").all_inner_texts() == ["τ 0.5", "τ 0.95"]
    put(page, race_scenes.running(race_scenes.LOSSLESS, 18))
    page.wait_for_selector(f"{MARS}[data-steps='18'] :is(.rv-draft, .rv-ghost)")
    put(page, race_scenes.finished(race_scenes.PROSE))
    assert page.locator(f"{MARS} :is(.rv-draft, .rv-ghost)").count() == 0


PLACES = f"""() => [...document.querySelectorAll('{MARS} .rv-text .rv-t')]
  .filter((node) => node.offsetParent).map((node) => {{
    // Unlike offsetLeft, also known before the browser finds that a new segment is in view.
    const [own, segment] = [node, node.closest(".rv-seg")].map((n) => n.getBoundingClientRect());
    return [Math.round(own.x - segment.x), Math.round(own.y - segment.y)];
  }})"""


def test_streaming_appends_and_neither_rebuilds_nor_moves_anything(page: playwright.Page) -> None:
    seen: list[list[int]] = []
    for number, value in enumerate(race_scenes.streaming(race_scenes.PROSE, 40)):
        put(page, value)
        if number == 1:
            page.evaluate("window.first = document.querySelector('.rv-t')")
        settle(page)
        positions = page.evaluate(PLACES)[:40]
        assert positions[: len(seen)] == seen
        seen = positions
    page.wait_for_selector(f"{ROOT}[data-state=finished]")
    assert page.evaluate("window.first === document.querySelector('.rv-t')")
    assert shown_text(page, MARS) == folds.text(samples.run(race_scenes.PROSE))


def test_charts_keep_their_nodes_and_follow_text_and_theme(page: playwright.Page) -> None:
    run = ByHand(page, race_scenes.PROSE)
    run.send(80)
    page.wait_for_selector(f"{MARS}[data-steps='38']")
    wait_for_charts(page)
    page.evaluate("window.kept = [...document.querySelectorAll('.rv-plot')]")
    run.send(1000)
    page.wait_for_selector(f"{ROOT}[data-state=finished]")
    page.wait_for_function(f"{TIME}.layout.yaxis.range[1] > 150 && {CHARTS_REST}")
    nodes_remain = "[...document.querySelectorAll('.rv-plot')].every((n, i) => n === kept[i])"
    assert page.evaluate(nodes_remain)
    light = page.evaluate(f"{TIME}._fullLayout.xaxis.color")
    page.evaluate("document.body.classList.add('dark')")
    page.wait_for_function(f"{TIME}._fullLayout.xaxis.color !== '{light}'")


LOOKS = """(nodes) => nodes.map((node) => [
  [...node.classList].find((name) => name.startsWith("rv-by-")) ?? "",
  getComputedStyle(node).backgroundImage])"""

FENCED = """(panes) => panes.map((pane) =>
  [...pane.querySelectorAll(".rv-t")].map((node) => Boolean(node.closest(".rv-fenced"))))"""


def test_sources_show_in_fill_and_pattern(page: playwright.Page) -> None:
    """Masks fill, prompt lookup hatches, AR's own has neither: each also reads without colour.
    The same tokens are set as code in every lane."""
    recording = next(recording for recording in load() if recording.name == "average")
    put(page, recording.value)
    looks = page.eval_on_selector_all(f"{ROOT} .rv-c[data-n] > .rv-t", LOOKS)
    assert {who for who, _ in looks} == {"", "rv-by-masks", "rv-by-lookup"}
    for who, image in looks:
        assert ("repeating" in image) == (who == "rv-by-lookup")
        assert (image == "none") == (who == "")
    first, *others = page.eval_on_selector_all(f"{ROOT} .rv-pane", FENCED)
    assert set(first) == {True, False}
    assert all(fenced == first for fenced in others)


def test_without_plotly_text_and_figures_are_complete() -> None:
    with still_page(has_plotly=False) as page:
        put(page, race_scenes.finished(race_scenes.PROSE))
        assert shown_text(page, MARS) == folds.text(samples.run(race_scenes.PROSE))
        see(page.locator(f"{ROOT} .rv-charts"))
        page.wait_for_selector(f"{ROOT} .rv-charts .rv-noplot")
        assert page.inner_text(f"{ROOT} .rv-saying")
