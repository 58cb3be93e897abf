"""The live charts of the race view in a real browser: one node, a zoom that is kept, hovering."""

from __future__ import annotations

import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright, shared
from race_browser import (
    MARS,
    ROOT,
    ByHand,
    Show,
    play,
    shown_text,
    wait_for_charts,
)

from mars_runtime import folds


@needs_browser
def test_charts_keep_their_node_and_zoom_and_answer_to_the_text(show: Show) -> None:
    page = show("running", "slow")
    page.wait_for_selector(f"{MARS}[data-steps='30']")  # the scene has come to its end
    wait_for_charts(page)
    page.evaluate("window.kept = [...document.querySelectorAll('.rv-plot')]")
    assert page.evaluate("Plotly.version") == "4.1.1"
    play(page, "prose")
    page.wait_for_function(
        "(() => { const { playhead, charts } = document.querySelector('#race .mars-race').lineView;"
        "return charts.nodes.forwards.node.layout.xaxis.range[1] === playhead.length })()"
    )
    assert page.evaluate(
        "[...document.querySelectorAll('.rv-plot')].every((n, i) => n === window.kept[i])"
    )
    bars = page.locator("[data-chart=forwards] .rv-plot")
    bars.scroll_into_view_if_needed()
    box = bars.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 2)
    assert page.locator(f"{MARS} .rv-c.rv-on").count() == 1
    assert "forward" in page.inner_text(f"{ROOT} .rv-card")
    page.focus(f"{MARS} .rv-text")
    page.keyboard.press("Home")
    assert page.locator("[data-chart=forwards] .rv-cursor:not(.rv-cursor-chosen)").is_visible()


@needs_browser
def test_zoom_survives_new_forwards_and_colours_follow_the_theme(show: Show) -> None:
    page = show("running", "slow")
    run = ByHand(page, race_scenes.PROSE)
    run.send(80)
    page.wait_for_selector(f"{MARS}[data-steps='38']")
    wait_for_charts(page)
    time_axis = "document.querySelector('[data-chart=time] .rv-plot')._fullLayout.xaxis"
    plot = page.locator("[data-chart=time] .rv-plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + 80, box["y"] + 80)
    page.mouse.down()
    page.mouse.move(box["x"] + 180, box["y"] + 82, steps=4)
    page.mouse.up()
    zoomed = page.evaluate(f"{time_axis}.range")
    assert zoomed[0] > 0
    ranges = "[...document.querySelectorAll('.rv-plot')].map((n) => n._fullLayout.xaxis.range)"
    assert page.evaluate(ranges) == [zoomed] * 4
    assert page.locator(f"{ROOT} .pl-zoom").is_visible()
    times = """() => {
      const { run, entries } = document.querySelector("#race .mars-race").lineView;
      return run.lanes[0].steps.map(({ clock, seconds }, i) => [
        clock - seconds, clock, entries[0].view.chunks[i].classList.contains("rv-out")]);
    }"""
    for begin, end, is_out in page.evaluate(times):
        assert is_out == (end <= zoomed[0] or begin >= zoomed[1])
    run.send(1000)
    page.wait_for_selector(f"{ROOT}[data-state=finished]")
    page.wait_for_function(
        "document.querySelector('[data-chart=time] .rv-plot').layout.yaxis.range[1] > 200"
    )
    all_drawn = "(({ timer, dirty }) => !timer && !dirty.size)"
    page.wait_for_function(f"{all_drawn}(document.querySelector('{ROOT}').lineView.charts)")
    assert page.evaluate(ranges) == [zoomed] * 4
    assert page.locator(f"{MARS} .rv-out").count() > 30
    page.locator("[data-chart=latency] .rv-plot").hover(position={"x": 100, "y": 60})
    page.mouse.dblclick(*centre(page, "[data-chart=latency] .rv-plot"))
    page.wait_for_function(f"{time_axis}.range[0] === 0")
    assert page.locator(f"{ROOT} .rv-out").count() == 0
    assert page.locator(f"{ROOT} .pl-zoom").is_hidden()
    light = page.evaluate(f"{time_axis}.color")
    page.evaluate("document.body.classList.add('dark')")
    page.wait_for_function(f"{time_axis}.color !== '{light}'")


def centre(page: playwright.Page, selector: str) -> tuple[float, float]:
    box = page.locator(selector).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@needs_browser
def test_no_chart_shows_the_run_before_while_it_waits_for_its_turn(show: Show) -> None:
    page = show("prose")
    wait_for_charts(page)
    page.wait_for_function("!document.querySelector('.rv-plot[data-is-stale]')")
    page.evaluate(
        f"""() => {{
          const plots = [...document.querySelectorAll('.rv-plot')];
          const {{ playhead }} = document.querySelector('{ROOT}').lineView;
          const before = playhead.length;
          window.stale = [];
          window.frames = 0;
          const look = () => {{
            const shown = plots.filter((node) => getComputedStyle(node).visibility === "visible");
            const old = shown.filter((node) => node._fullLayout.xaxis.range[1] === before);
            if (document.querySelector('{ROOT}').dataset.run.startsWith("by-hand")) {{
              window.stale.push(...old.map((node) => node.closest("figure").dataset.chart));
              window.frames += 1;
            }}
            requestAnimationFrame(look);
          }};
          look();
        }}"""
    )
    run = ByHand(page, race_scenes.MATHS)
    run.send(20)
    page.wait_for_function(
        "window.frames > 5 && !document.querySelector('.rv-plot[data-is-stale]')"
    )
    assert page.evaluate("window.stale") == []


@needs_browser
def test_without_plotly_text_and_figures_are_complete(
    address: str,
) -> None:
    page = shared().browser.new_page()
    page.set_default_timeout(90_000)
    page.route("**/plotly.min.js", lambda route: route.abort())
    page.goto(address)
    page.wait_for_selector(f"{ROOT}[data-state=empty]", timeout=60_000)
    play(page, "prose")
    assert shown_text(page, MARS) == folds.text(samples.run(race_scenes.PROSE))
    assert "did not load" in page.inner_text(f"{ROOT} .rv-charts")
    assert "×" in page.inner_text(f"{ROOT} .rv-figures")
    page.close()
