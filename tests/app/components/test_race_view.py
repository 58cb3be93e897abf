"""The race view in a real browser, fed with hand-written trace lines."""

from __future__ import annotations

import pytest
import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright, see
from page_texts import texts
from race_browser import (
    AR,
    CHARTS_REST,
    MARS,
    ROOT,
    ByHand,
    put,
    rows_of,
    settle,
    shown_text,
    still_page,
    wait_for_charts,
)

from app.ui.recordings import load
from mars_runtime.runs import folds

pytestmark = needs_browser
TIME = "document.querySelector('[data-chart=time] .rv-plot')"


@pytest.mark.parametrize("script", [race_scenes.PROSE, race_scenes.CODE, race_scenes.EMOJI])
def test_tokens_are_grouped_by_forward_and_the_text_is_whole(
    page: playwright.Page, script: samples.Script
) -> None:
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
    fenced = "".join(page.locator(f"{MARS} .rv-fenced").all_text_contents())
    assert ("def count_vowels" in fenced) == (script is race_scenes.CODE)
    tokens = folds.accepted_tokens(trace.events)
    wrong = {
        row.start - back
        for row in rows
        for back, (token, _) in enumerate(reversed(row.checks), 1)
        if tokens[row.start - back] != token
    }
    marked = page.eval_on_selector_all(
        f"{MARS} .rv-t", "l => l.flatMap((n, i) => n.classList.contains('rv-wrong') ? [i] : [])"
    )
    assert set(marked) == wrong  # those that AR would not have chosen
    assert page.locator(f"{AR} .rv-wrong").count() == 0
    if script.change:
        assert wrong
        assert f"token {script.change[0] + 1}" in page.inner_text(f"{MARS} .rv-differs")
        for name in (MARS, AR):  # where the texts part
            assert page.locator(f"{name} .rv-mark").count() == 1
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


def test_a_run_that_repeats_itself_is_counted_up_to_the_loop(page: playwright.Page) -> None:
    put(page, race_scenes.finished(race_scenes.LOOPING))
    trace = samples.run(race_scenes.LOOPING)
    loop = folds.loops_at(trace.events)
    repeats = texts()["ENDS"]["repeats"]["all"]
    page.wait_for_selector(f"{ROOT} .rv-status:has-text('{repeats}')")
    per_pass = page.inner_text(f"{ROOT} .rv-because [data-key=perPass]")
    num = folds.num_forwards(folds.up_to_loop(trace.events))
    assert f"{folds.tpf(trace.events):.2f}" in per_pass
    assert f"{loop} tokens in {num} passes" in per_pass
    assert f"token {loop}" in page.inner_text(f"{ROOT} .rv-headline")
    page.wait_for_function(  # what a screen reader hears
        "count => document.querySelector('.rv-live').textContent.includes(count)", arg=f"{num} "
    )


IS_WITHIN = """([figure, width]) => [...figure.querySelectorAll('.main-svg')]
  .every((svg) => svg.getBoundingClientRect().right <= width)"""


def test_figures_and_charts_fit_the_page(page: playwright.Page) -> None:
    put(page, race_scenes.finished(race_scenes.LOOPING))
    for width in (1440, 800, 390):
        page.set_viewport_size({"width": width, "height": 1000})
        wait_for_charts(page)
        for figure in page.locator(f"{ROOT} figure[data-chart]").all():
            see(figure)  # a chart out of sight keeps its size until it is seen
            page.wait_for_function(IS_WITHIN, arg=[figure.element_handle(), width])
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        tops = page.eval_on_selector_all(
            ".rv-pane", "l => l.map(p => p.getBoundingClientRect().top)"
        )
        assert (tops[0] < tops[1]) == (width == 390)


def test_ghosts_and_moves_show_while_running_and_ghosts_go_at_the_end(
    page: playwright.Page,
) -> None:
    put(page, race_scenes.running(race_scenes.PROSE, 30))
    page.wait_for_selector(f"{ROOT}[data-state=slow] {MARS}[data-steps='30'] .rv-ghost")
    assert page.locator(f"{AR} .rv-ghost").count() == 0
    assert page.locator(f"{MARS} .rv-move").all_inner_texts() == ["τ 0.5", "τ 0.95"]
    put(page, race_scenes.running(race_scenes.LOSSLESS, 18))
    page.wait_for_selector(f"{MARS}[data-steps='18'] :is(.rv-draft, .rv-ghost)")
    put(page, race_scenes.finished(race_scenes.PROSE))
    assert page.locator(f"{MARS} :is(.rv-draft, .rv-ghost)").count() == 0


@pytest.mark.parametrize(
    ("value", "state", "sentence"),
    [
        (race_scenes.status("2 runs are ahead.", "waiting"), "waiting", "2 runs are ahead."),
        (race_scenes.refused(), "error", "Write a prompt first."),
        (race_scenes.stopped(), "stopped", "Stopped"),
        (race_scenes.broken(), "error", "cannot be read"),
    ],
)
def test_each_state_is_one_sentence(
    page: playwright.Page, value: str, state: str, sentence: str
) -> None:
    put(page, value)
    page.wait_for_selector(f"{ROOT}[data-state={state}]")
    assert sentence in page.inner_text(f"{ROOT} .rv-status")


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


LOOKS = f"""() => [...document.querySelectorAll('{ROOT} .rv-c[data-n] > .rv-t')].map((node) =>
  [[...node.classList].find((name) => name.startsWith("rv-by-")) ?? "",
    getComputedStyle(node).backgroundImage])"""


def test_sources_show_in_fill_and_pattern(page: playwright.Page) -> None:
    """Masks fill, prompt lookup hatches, AR's own has neither: each also reads without colour."""
    recording = next(recording for recording in load() if recording.name == "average")
    put(page, recording.value)
    looks = page.evaluate(LOOKS)
    for who, image in looks:
        assert ("repeating" in image) == (who == "rv-by-lookup")
        assert (image == "none") == (who == "")
    names = {"ar": "", "masks": "rv-by-masks", "look-up": "rv-by-lookup"}
    sources = [
        names[source]
        for trace in recording.traces().values()
        for step in folds.sources(trace.events)
        if len(step) > 1
        for source in step
    ]
    assert [who for who, _ in looks] == sources
    assert set(sources) == set(names.values())


def test_without_plotly_text_and_figures_are_complete() -> None:
    with still_page(has_plotly=False) as page:
        put(page, race_scenes.finished(race_scenes.PROSE))
        assert shown_text(page, MARS) == folds.text(samples.run(race_scenes.PROSE))
        see(page.locator(f"{ROOT} .rv-charts"))
        page.wait_for_selector(f"{ROOT} .rv-charts .rv-noplot")
        assert page.inner_text(f"{ROOT} .rv-saying")
