"""The bar that moves through a run, as a visitor uses it: on live, finished and recorded runs."""

from __future__ import annotations

import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright
from race_browser import AR, MARS, ROOT, VIEW, ByHand, put, wait_for_charts

from mars_runtime.runs import folds
from mars_runtime.runs.trace import read_trace

pytestmark = needs_browser
SCRUBBER = ".pl-scrubber"
IN_SIGHT = "nodes => nodes.filter(n => n.getClientRects().length).length"
IS_AT_END = "node => node.scrollHeight - node.scrollTop - node.clientHeight < 70"
TRACES = {
    name: read_trace(lines).events for name, lines in samples.lanes(race_scenes.PROSE).items()
}
MAIN = TRACES["mars"]
NUM, NUM_AR = (folds.num_forwards(TRACES[name]) for name in ("mars", "ar"))


def press(page: playwright.Page, act: str) -> None:
    page.click(f".rv-player [data-act={act}]")


def go(page: playwright.Page, key: str) -> None:
    """Press a key of the player where no other element uses it."""
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press(key)


def wait_at(page: playwright.Page, num: int) -> None:
    page.wait_for_selector(f"{ROOT}[data-at='{num}']")


def num_in_sight(page: playwright.Page) -> int:
    return int(page.eval_on_selector_all(f"{MARS} .rv-c > .rv-t", IN_SIGHT))


def test_text_charts_and_lanes_move_together_pass_by_pass(page: playwright.Page) -> None:
    put(page, race_scenes.finished(race_scenes.PROSE))
    wait_for_charts(page)
    assert page.locator(".rv-later:visible").count() == 0
    assert page.locator(".pl-row").count() == 2
    go(page, "Home")
    wait_at(page, 0)
    assert num_in_sight(page) == 0
    for num in (1, 2, 3):
        go(page, "ArrowRight")
        wait_at(page, num)
    go(page, "ArrowLeft")
    wait_at(page, 2)
    assert page.get_attribute(AR, "data-shown") == "2"
    assert num_in_sight(page) == folds.num_tokens(MAIN[:3])
    assert page.locator(f"{MARS} .rv-ghost").count() == 1
    assert page.get_attribute(SCRUBBER, "aria-valuetext") == page.inner_text(".pl-position")
    wait_for_charts(page)
    figure = "[data-chart=forwards] .rv-plot"
    later = page.locator(f"{figure} .rv-later").bounding_box()  # what comes later is veiled
    axis = f"document.querySelector('{figure}')._fullLayout.xaxis"
    left = page.locator(figure).bounding_box()["x"]
    assert abs(later["x"] - left - page.evaluate(f"{axis}._offset + {axis}.l2p(2)")) < 3
    figure = "[data-chart=time] .rv-plot"
    left = page.locator(figure).bounding_box()["x"]
    axis = f"document.querySelector('{figure}')._fullLayout.xaxis"
    for lane, trace in TRACES.items():  # a dot at the place of each lane
        dot = page.locator(f"{figure} .rv-dots [data-lane={lane}]").bounding_box()
        at = page.evaluate(f"{axis}._offset + {axis}.l2p({folds.decode_seconds(trace[:3])})")
        assert abs(dot["x"] + dot["width"] / 2 - left - at) < 3
    go(page, "End")
    wait_at(page, NUM)
    assert page.get_attribute(AR, "data-shown") == str(NUM_AR)


def test_a_replay_plays_at_its_speed_or_steps_without_motion(page: playwright.Page) -> None:
    put(page, race_scenes.finished(race_scenes.MATHS, right=True, recorded="2026-11-20"))
    num = page.get_attribute(ROOT, "data-steps")
    assert page.get_attribute(ROOT, "data-at") == num
    go(page, "Home")
    press(page, "play")
    wait_at(page, 1)
    assert page.locator(f"{MARS} .rv-verdict").is_hidden()
    press(page, "pause")
    page.wait_for_selector(".pl-play[data-act=play]")
    page.emulate_media(reduced_motion="no-preference")
    tick = f"""(speed) => {{
      const {{ player, playhead }} = {VIEW};
      player.choice.value = speed;
      playhead.seek(1);
      Object.assign(player, {{ isPlaying: true, since: 1000 }});
      for (const now of [1060, 1100, 1200]) player.tick(now);
      player.isPlaying = false;
      return playhead.time - 1;
    }}"""
    for speed, passes in (("1.4", 0.28), ("Infinity", 4)):
        assert abs(page.evaluate(tick, speed) - passes) < 1e-9
    go(page, "End")
    wait_at(page, int(num or 0))
    page.click(".rv-legend > button")  # keys move where no other control needs them
    page.keyboard.press("Space")
    assert page.get_attribute(".rv-legend > button", "aria-pressed") == "false"
    assert page.get_attribute(".pl-play", "data-act") == "play"
    page.focus(f"{MARS} .rv-text")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert page.locator(f"{MARS} .rv-at").count() == 1
    assert page.get_attribute(ROOT, "data-at") == num


def test_a_live_run_is_scrubbed_while_it_streams(page: playwright.Page) -> None:
    run = ByHand(page, race_scenes.PROSE)
    text = page.locator(f"{AR} .rv-text")
    run.send(14)
    wait_at(page, 5)
    text.evaluate("node => { node.style.height = '80px' }")
    live = page.locator(".pl-live")
    assert live.is_hidden()
    press(page, "pause")
    go(page, "ArrowLeft")
    go(page, "ArrowLeft")
    wait_at(page, 3)
    run.send(80)
    page.wait_for_selector(f"{ROOT}[data-steps='45']")
    assert page.get_attribute(ROOT, "data-at") == "3"
    assert num_in_sight(page) == folds.num_tokens(MAIN[:4])
    live.click()  # follows the run and the end of its text again
    wait_at(page, 45)
    assert live.is_hidden()
    run.send(2)
    wait_at(page, 46)
    page.wait_for_function(IS_AT_END, arg=text.element_handle())
    go(page, "Home")
    wait_at(page, 0)
    run.send(1000)
    page.wait_for_selector(f"{ROOT}[data-state=finished]")
    assert page.get_attribute(ROOT, "data-at") == "0"
    assert live.is_hidden()


def test_a_forward_is_chosen_on_the_tape_or_in_a_chart(page: playwright.Page) -> None:
    put(page, race_scenes.finished(race_scenes.MATHS))
    box = page.locator(SCRUBBER).bounding_box()
    extent = float(page.get_attribute(SCRUBBER, "max"))
    row = page.locator(".pl-row[data-lane=mars]").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 4.5 / extent, row["y"] + row["height"] / 2)
    page.wait_for_selector(f"{ROOT} .rv-drawer[data-pass='5']")
    assert page.locator(f"{ROOT} .pl-chosen").is_visible()
    page.evaluate("addEventListener('keydown', (e) => { window.prevented = e.defaultPrevented })")
    page.keyboard.press("Escape")
    assert page.evaluate(f"[{VIEW}.selected, window.prevented]") == [None, True]
    page.keyboard.press("Escape")
    assert page.evaluate("window.prevented") is False
    wait_for_charts(page)
    bars = page.locator("[data-chart=forwards] .rv-plot")
    bars.scroll_into_view_if_needed()
    at = f"""() => {{
      const {{ xaxis, yaxis }} =
        document.querySelector('[data-chart=forwards] .rv-plot')._fullLayout;
      const {{ count }} = {VIEW}.run.lanes[0].steps[4];
      return [xaxis._offset + xaxis.l2p(4.5), yaxis._offset + yaxis.l2p(count)];
    }}"""
    x, y = page.evaluate(at)
    box = bars.bounding_box()
    page.mouse.move(box["x"] + x - 4, box["y"] + y)
    page.mouse.click(box["x"] + x, box["y"] + y)
    page.wait_for_selector(f"{ROOT} .rv-drawer[data-pass='5']")
    assert bars.is_hidden()  # the drawer takes its place
    page.keyboard.press("Escape")
    page.wait_for_selector(f"{ROOT} .rv-drawer", state="hidden")
