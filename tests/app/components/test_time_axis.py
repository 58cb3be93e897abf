"""The one time axis of a race as it is drawn: it fits the run, and keeps who ended when."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import accumulate, pairwise

import pytest
import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright
from panel_browser import VIEW, put, put_scene, settle, still_page
from race_browser import AR, ROOT

from app.components import assets
from mars_runtime.events import Event, Step

pytestmark = needs_browser
QUIET = f"""() => {{ const {{ charts, feed, frame }} = {VIEW};
  return !charts.dirty.size && !charts.timer && !frame && !feed.lines.length; }}"""
BOX = """node => { const { left, right, top, bottom } = node.getBoundingClientRect();
  return { left, right, top, bottom }; }"""


@pytest.fixture(scope="module")
def page() -> Iterator[playwright.Page]:
    """A finished race with its charts."""
    with still_page(plotly=assets.plotly_file()) as made:
        put_scene(made, "prose")
        made.wait_for_function(QUIET)
        yield made


def steps(lane: str) -> list[Step]:
    """The forwards of the race on show."""
    events: list[Event] = list(samples.read(samples.lanes(race_scenes.PROSE)[lane]).events)
    return [event for event in events if isinstance(event, Step)]


def chart(key: str) -> str:
    return f"{ROOT} [data-chart={key}]"


def test_axes_fit_the_run_once_it_is_over(page: playwright.Page) -> None:
    for key in ("forwards", "time", "confidence", "latency"):
        plot = page.locator(f"{chart(key)} .nsewdrag").first.evaluate(BOX)
        ranges = page.evaluate(f"{VIEW}.charts.nodes.{key}.node._fullLayout.xaxis.range")
        assert ranges == [0, pytest.approx(sum(step.seconds for step in steps("ar")))]
        if key == "latency":  # the slower lane spans the whole of it
            paths = page.locator(f"{chart(key)} .shapelayer path").evaluate_all(
                f"l => l.map({BOX})"
            )
            assert min(path["left"] for path in paths) == pytest.approx(plot["left"], abs=3)
            assert max(path["right"] for path in paths) == pytest.approx(plot["right"], abs=3)
    bars = page.locator(f"{chart('forwards')} .shapelayer path").evaluate_all(f"l => l.map({BOX})")
    share = sum(step.seconds for step in steps("mars")) / sum(step.seconds for step in steps("ar"))
    plot = page.locator(f"{chart('forwards')} .nsewdrag").first.evaluate(BOX)
    end = plot["left"] + share * (plot["right"] - plot["left"])
    assert max(bar["right"] for bar in bars) == pytest.approx(end, abs=3)


def test_each_nine_of_confidence_has_as_much_room(page: playwright.Page) -> None:
    ticks = page.locator(f"{chart('confidence')} .ytick text").evaluate_all(
        "l => l.map((n) => [n.textContent, n.getBoundingClientRect().top])"
    )
    tops = dict(ticks)
    assert list(tops) == ["0", "0.5", "0.9", "0.99", "0.999", "0.9999"]
    rooms = [tops[low] - tops[high] for low, high in pairwise(["0.9", "0.99", "0.999", "0.9999"])]
    assert max(rooms) - min(rooms) < 2
    assert min(rooms) > 20


def test_the_time_of_each_forward_has_a_chart_of_both_lanes(page: playwright.Page) -> None:
    texts = page.locator(f"{chart('latency')} .annotation text").all_text_contents()
    for lane in ("mars", "ar"):
        middle = statistics.median_high(1000 * step.seconds for step in steps(lane))
        assert any(text == f"{middle:.2f} ms" for text in texts), (middle, texts)
    legend = page.locator(f"{ROOT} .rv-run").all_inner_texts()
    assert [text.split()[0] for text in legend] == ["MARS", "plain"]
    assert "τ 0.95" in legend[0]
    assert page.locator(f"{chart('latency')} figcaption").inner_text() == "Time of each forward"
    assert page.locator(f"{chart('forwards')} figcaption").inner_text().startswith("MARS: ")


def test_pointing_at_the_other_lane_in_a_chart_lights_its_text(page: playwright.Page) -> None:
    plot = page.locator(f"{chart('latency')} .nsewdrag").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    axis = f"{VIEW}.charts.nodes.latency.node._fullLayout.yaxis"
    tenth = list(accumulate(step.seconds for step in steps("ar")))[-2]
    x = box["width"] * tenth / sum(step.seconds for step in steps("ar"))
    y = page.evaluate(f"{axis}.l2p({1000 * steps('ar')[-1].seconds})")
    page.mouse.move(box["x"] + x + 1, box["y"] + y)
    settle(page)
    assert page.locator(f"{AR} .rv-c.rv-on").count() == 1
    assert page.locator(f"{ROOT} .rv-cursor:visible").count() == 4
    page.mouse.move(0, 0)
    settle(page)
    assert page.locator(f"{ROOT} .rv-cursor:visible").count() == 0


def test_where_the_faster_lane_ended_the_others_place_is_kept(page: playwright.Page) -> None:
    end = sum(step.seconds for step in steps("mars"))
    clocks = accumulate(step.seconds for step in steps("ar"))
    tokens = sum(clock <= end for clock in clocks)
    marked = page.locator(f"{ROOT} [data-finish]")
    assert marked.evaluate_all("l => l.map((n) => [n.rvToken, n.dataset.finish])") == [
        [tokens - 1, "MARS ended"]
    ]
    assert marked.evaluate("n => n.closest('.rv-pane').dataset.lane") == "ar"
    notes = page.locator(f"{chart('time')} .annotation text").all_text_contents()
    assert f"MARS ended, plain AR at {tokens}" in notes
    left = page.locator(f"{ROOT} .pl-finish").evaluate("n => parseFloat(n.style.left)")
    whole = sum(step.seconds for step in steps("ar"))
    assert left == pytest.approx(100 * end / whole, abs=0.01)


def test_without_a_winner_nothing_is_marked(page: playwright.Page) -> None:
    *_, running = race_scenes.running(race_scenes.PROSE, 30)()
    put(page, running)
    assert page.locator(f"{ROOT} [data-finish]").count() == 0
    assert page.locator(f"{ROOT} .pl-finish").is_hidden()
