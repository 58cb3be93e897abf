"""The race view in a real browser, fed with hand-written trace lines by a small Gradio page."""

from __future__ import annotations

import pytest
import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright, see, visiting
from page_texts import texts
from race_browser import (
    AR,
    CHARTS_REST,
    MARS,
    ROOT,
    ByHand,
    Show,
    play,
    shown_text,
    wait_for_charts,
)

from mars_runtime.runs import folds
from mars_runtime.runs.speedup import run_speedup

pytestmark = needs_browser
TIME = "document.querySelector('[data-chart=time] .rv-plot')"


@pytest.mark.parametrize("scene", ["prose", "code", "emoji"])
def test_tokens_are_grouped_by_forward_and_the_text_is_whole(show: Show, scene: str) -> None:
    made = {"prose": race_scenes.PROSE, "code": race_scenes.CODE, "emoji": race_scenes.EMOJI}[scene]
    page = show(scene)
    trace = samples.run(made)
    rows = [step for step, _ in folds.row_steps(trace.events)]
    assert shown_text(page, MARS) == folds.text(trace)
    assert shown_text(page, AR) == made.text
    counts = page.eval_on_selector_all(
        f"{MARS} .rv-c", "nodes => nodes.map(n => n.querySelectorAll('.rv-t').length)"
    )
    assert counts == [len(step.accepted) for step in rows]
    pane = page.locator(MARS)
    assert pane.get_attribute("data-steps") == str(folds.num_forwards(trace.events))
    assert pane.get_attribute("data-tokens") == str(folds.num_tokens(trace.events))
    fenced = "".join(page.locator(f"{MARS} .rv-fenced").all_text_contents())
    assert ("def count_vowels" in fenced) == (scene == "code")
    assert "It reads the text once." not in fenced
    assert page.locator(f"{MARS} .rv-eos").count() == 1
    tokens = folds.accepted_tokens(trace.events)
    wrong = {
        step.start - back
        for step in rows
        for back, (token, _) in enumerate(reversed(step.checks), 1)
        if tokens[step.start - back] != token
    }
    marked = page.eval_on_selector_all(
        f"{MARS} .rv-t", "l => l.flatMap((n, i) => n.classList.contains('rv-wrong') ? [i] : [])"
    )
    assert set(marked) == wrong  # those that AR would not have chosen
    assert wrong or scene != "prose"
    assert page.locator(f"{AR} .rv-wrong").count() == 0


def test_given_text_is_greyed_before_the_first_token(show: Show) -> None:
    page = show("branch")
    trace = samples.run(race_scenes.BRANCH)
    assert (folds.given_text(trace), folds.text(trace)) == ("The parcels: ", samples.EMOJI)
    for lane in (MARS, AR):
        assert folds.given_text(trace) + shown_text(page, lane) == folds.text(trace)
        given = page.locator(f"{lane} .rv-given")
        following = "e => e.nextElementSibling.querySelector('.rv-c:first-child') !== null"
        assert given.evaluate(following)
        assert given.evaluate("e => e.textContent") == folds.given_text(trace)
        colours = "e => [e, e.nextElementSibling].map(n => getComputedStyle(n).color)"
        assert len(set(given.evaluate(colours))) == 2


def test_hostile_text_stays_text(show: Show) -> None:
    page = show("hostile")
    text = shown_text(page, MARS)
    for piece in ("${HOME}<b>x</b>", "{{7*7}}", "<script>alert(2)</script>", "C:\\u{zz}", "&amp;"):
        assert piece in text
    assert page.locator(f"{ROOT} .rv-text :is(b, img, script)").count() == 0
    assert "\u202e" not in text


def test_figures_are_the_folds_of_the_traces(show: Show) -> None:
    page = show("prose")
    mars = samples.run(race_scenes.PROSE)
    plain = samples.read(samples.lanes(race_scenes.PROSE)["ar"])
    values = page.eval_on_selector_all(
        f"{ROOT} .rv-figure",
        "l => Object.fromEntries(l.map(d => [d.dataset.key, d.children[1].textContent]))",
    )
    speedup = run_speedup(mars.events, plain.events)
    assert values["speedup"] == (
        f"{speedup.ratio:.2f} times as fast" if speedup.reported else speedup.note
    )
    assert values["seconds"].startswith(f"{folds.decode_seconds(mars.events):.2f}")
    assert values["pass"].startswith(f"{folds.ms_per_forward(mars.events):.2f}")
    assert values["first"].startswith(f"{1000 * folds.ttft(mars.events):.2f}")
    num_tokens = folds.num_tokens(mars.events)
    per_pass = page.inner_text(f"{ROOT} .rv-because [data-key=perPass]")
    assert per_pass.startswith(f"{folds.tpf(mars.events):.2f}")
    assert f"{num_tokens} tokens in {folds.num_forwards(mars.events)} passes" in per_pass
    assert "float32" in (page.text_content(f"{ROOT} .rv-env") or "")
    assert page.get_attribute(f"{ROOT} .rv-live", "aria-live") == "polite"
    heard = f"{num_tokens} tokens in {folds.num_forwards(mars.events)} passes"
    page.wait_for_function(
        "heard => document.querySelector('.rv-live').textContent.includes(heard)", arg=heard
    )


def test_a_run_that_repeats_itself_says_so_and_is_not_praised_for_it(show: Show) -> None:
    page = show("looping")
    trace = samples.run(race_scenes.LOOPING)
    loop = folds.loops_at(trace.events)
    assert loop is not None
    whole = folds.num_tokens(trace.events) / folds.num_forwards(trace.events)
    assert abs(folds.tpf(trace.events) - whole) > 0.05
    repeats = texts()["ENDS"]["repeats"]["all"]
    page.wait_for_selector(f"{ROOT} .rv-status:has-text('{repeats}')")
    per_pass = page.inner_text(f"{ROOT} .rv-because [data-key=perPass]")
    num = folds.num_forwards(folds.up_to_loop(trace.events))
    assert f"{folds.tpf(trace.events):.2f}" in per_pass
    assert f"{loop} tokens in {num} passes" in per_pass
    said = page.inner_text(f"{ROOT} .rv-saying")
    assert said.startswith(f"{num} passes instead of ")
    assert f"token {loop}" in said


EDGE = f"document.querySelector('{ROOT}').getBoundingClientRect().right"
OUTSIDE = f"""[...document.querySelectorAll('{ROOT} .rv-figures *')].flatMap((node) =>
  (node.getBoundingClientRect().right > {EDGE} + 1 ? [node.textContent] : []))"""
IS_WITHIN = """([figure, width]) => [...figure.querySelectorAll('.main-svg')]
  .every((svg) => svg.getBoundingClientRect().right <= width)"""


def test_figures_and_charts_fit_the_page(show: Show) -> None:
    """The remark on the loop, the range of the speedup and all small figures stay inside."""
    page = show("looping")
    for width in (1440, 1280, 1024, 800):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(f"{EDGE} <= {width}")
        assert page.evaluate(OUTSIDE) == []
    page.evaluate("document.body.classList.add('dark')")
    for width in (1400, 390):
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


def test_the_place_where_the_texts_part_is_marked_in_both(show: Show) -> None:
    page = show("prose")
    place = race_scenes.PROSE.change[0]
    for pane in (MARS, AR):
        assert page.locator(f"{pane} .rv-mark").count() == 1
        assert f"token {place + 1}" in page.inner_text(f"{pane} .rv-differs")
    play(page, "maths")
    assert page.inner_text(f"{MARS} .rv-verdict") == "✗ wrong"
    assert page.inner_text(f"{AR} .rv-verdict") == "✓ right"


def test_ghosts_and_moves_show_while_running_and_ghosts_go_at_the_end(show: Show) -> None:
    page = show("running", "slow")
    page.wait_for_selector(f"{MARS}[data-steps='30'] .rv-ghost")
    assert page.locator(f"{AR} .rv-ghost").count() == 0
    assert page.locator(f"{MARS} .rv-move").all_inner_texts() == ["τ 0.5", "τ 0.95"]
    play(page, "lossless", "slow")
    page.wait_for_selector(f"{MARS}[data-steps='18']")
    assert "verified" in page.inner_text(f"{MARS} .rv-does")
    assert page.locator(f"{MARS} :is(.rv-draft, .rv-ghost)").count() >= 1
    play(page, "prose")
    assert page.locator(f"{MARS} :is(.rv-draft, .rv-ghost)").count() == 0


@pytest.mark.parametrize(
    ("scene", "state", "sentence"),
    [
        ("waiting", "waiting", "2 runs are ahead"),
        ("refused", "error", "Write a prompt first."),
        ("stopped", "stopped", "Stopped"),
        ("broken", "error", "cannot be read"),
    ],
)
def test_each_state_is_one_sentence(show: Show, scene: str, state: str, sentence: str) -> None:
    page = show(scene, state)
    assert sentence in page.inner_text(f"{ROOT} .rv-status")
    play(page, "prose")


def test_streaming_appends_and_never_rebuilds(show: Show) -> None:
    page = show("prose")
    run = ByHand(page, race_scenes.PROSE)
    run.send(20)
    page.wait_for_selector(f"{MARS}[data-steps='8'] .rv-t")
    page.evaluate("window.first = document.querySelector('.rv-t')")
    for _ in range(12):
        run.send(20)
    page.wait_for_selector(f"{ROOT}[data-state=finished]")
    assert page.evaluate("window.first === document.querySelector('.rv-t')")
    assert shown_text(page, MARS) == folds.text(samples.run(race_scenes.PROSE))


def test_charts_keep_their_nodes_and_follow_text_and_theme(show: Show) -> None:
    page = show("running", "slow")
    page.wait_for_selector(f"{MARS}[data-steps='30']")  # the scene has come to its end
    wait_for_charts(page)
    page.evaluate("window.kept = [...document.querySelectorAll('.rv-plot')]")
    run = ByHand(page, race_scenes.PROSE)
    run.send(80)
    page.wait_for_selector(f"{MARS}[data-steps='38']")
    wait_for_charts(page)
    nodes_remain = (
        "[...document.querySelectorAll('.rv-plot')].every((n, i) => n === window.kept[i])"
    )
    assert page.evaluate(nodes_remain)
    run.send(1000)
    page.wait_for_selector(f"{ROOT}[data-state=finished]")
    page.wait_for_function(f"{TIME}.layout.yaxis.range[1] > 150 && {CHARTS_REST}")
    light = page.evaluate(f"{TIME}._fullLayout.xaxis.color")
    page.evaluate("document.body.classList.add('dark')")
    page.wait_for_function(f"{TIME}._fullLayout.xaxis.color !== '{light}'")


def test_without_plotly_text_and_figures_are_complete(address: str) -> None:
    def abort(route: playwright.Route) -> None:
        route.abort()

    with visiting() as take:
        page = take(address)
        page.route("**/files/plotly.js/*", abort)
        page.goto(address)
        page.wait_for_selector(f"{ROOT}[data-state=empty]")
        play(page, "prose")
        assert shown_text(page, MARS) == folds.text(samples.run(race_scenes.PROSE))
        see(page.locator(f"{ROOT} .rv-charts"))
        page.wait_for_selector(f"{ROOT} .rv-charts :text('did not load')")
        assert page.inner_text(f"{ROOT} .rv-saying")
        page.unroute("**/files/plotly.js/*", abort)
