"""The bar that moves through a run, as a visitor uses it: on live, finished and recorded runs."""

from __future__ import annotations

from bisect import bisect_right

import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright
from race_browser import AR, MARS, ROOT, VIEW, ByHand, Show, wait_for_charts

from mars_runtime import folds

pytestmark = needs_browser
SCRUBBER = ".pl-scrubber"
IN_SIGHT = "nodes => nodes.filter(n => n.getClientRects().length).length"
BELOW = "n => n.scrollHeight - n.scrollTop - n.clientHeight"
MAIN = samples.read(samples.lanes(race_scenes.PROSE)["mars"]).events
NUM = folds.num_forwards(MAIN)


def press(page: playwright.Page, act: str) -> None:
    page.click(f".rv-player [data-act={act}]")


def wait_at(page: playwright.Page, num: int) -> None:
    page.wait_for_selector(f"{ROOT}[data-at='{num}']")


def set_clock(page: playwright.Page, name: str) -> None:
    page.click(f".rv-clock button >> text={name}")
    page.wait_for_selector(f"{ROOT}[data-clock={name.lower()}]")


def clocks(lane: str) -> list[float]:
    """When each forward of the scene ``prose`` ended, on its lane's measured clock."""
    events = samples.read(samples.lanes(race_scenes.PROSE)[lane]).events
    return [time for time, _ in folds.timeline(events)][1:]


def num_in_sight(page: playwright.Page, pane: str) -> int:
    return int(page.eval_on_selector_all(f"{pane} .rv-c > .rv-t", IN_SIGHT))


def test_text_figures_charts_and_lanes_move_together(show: Show) -> None:
    page = show("prose")
    wait_for_charts(page)
    position = page.locator(".pl-position")
    assert position.inner_text().startswith(f"MARS pass {NUM} of {NUM} · ")
    assert page.locator(".rv-later:visible").count() == 0
    press(page, "start")
    wait_at(page, 0)
    assert num_in_sight(page, MARS) == 0
    for num in (1, 2, 3):
        press(page, "forward")
        wait_at(page, num)
    press(page, "back")
    wait_at(page, 2)
    cut = MAIN[:3]
    assert num_in_sight(page, MARS) == folds.num_tokens(cut)
    assert page.locator(f"{MARS} .rv-ghost").count() == 1
    assert f"{folds.tpf(cut):.2f}" in page.inner_text(".rv-because [data-key=perPass]")
    assert page.locator(".rv-later:visible").count() == 2
    time = clocks("mars")[1]
    assert position.inner_text() == f"MARS pass 2 of {NUM} · {time:.3f} s"
    assert page.get_attribute(SCRUBBER, "aria-valuetext") == position.inner_text()
    box = page.locator(SCRUBBER).bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + box["height"] / 2, steps=5)
    page.mouse.up()
    page.wait_for_function(f"{VIEW}.at > 20 && !{VIEW}.frame")
    time = page.evaluate(f"{VIEW}.playhead.time")
    for lane, pane in (("mars", MARS), ("ar", AR)):
        num = bisect_right(clocks(lane), time + 1e-9)
        assert page.get_attribute(pane, "data-shown") == str(num)
    later = page.locator("[data-chart=time] .rv-later").bounding_box()
    axis = "document.querySelector('[data-chart=time] .rv-plot')._fullLayout.xaxis"
    left = page.locator("[data-chart=time] .rv-plot").bounding_box()["x"]
    assert abs(later["x"] - left - page.evaluate(f"{axis}._offset + {axis}.l2p({time})")) < 2
    press(page, "end")
    wait_at(page, NUM)
    assert page.get_attribute(AR, "data-shown") == str(len(clocks("ar")))
    for num in (NUM - 1, NUM - 2):  # plain AR ran for longer; MARS moves all the same
        press(page, "back")
        wait_at(page, num)
        assert page.get_attribute(MARS, "data-shown") == str(num)


def test_by_passes_each_beat_grants_every_lane_one_forward(show: Show) -> None:
    """Text, counts, charts, scrubber and the sentence go by the chosen clock; groups land with
    their size where motion is allowed; the other clock comes back as it was."""
    page = show("prose")
    wait_for_charts(page)
    num_ar = len(clocks("ar"))
    set_clock(page, "Passes")
    saying = page.locator(".rv-saying")
    assert saying.inner_text().startswith(f"{folds.tpf(MAIN):.2f} tokens per pass instead of 1.00")
    assert "passes saved by masks" in page.inner_text(".rv-because")
    assert page.locator(".rv-figures").is_hidden()
    assert page.locator(".pl-skyline path").count() == 3  # the line, masks, AR's own
    press(page, "start")
    wait_at(page, 0)
    for _ in range(3):
        press(page, "forward")
    wait_at(page, 3)
    assert page.get_attribute(AR, "data-shown") == "3"
    tokens = folds.num_tokens(MAIN[:4])
    assert page.inner_text(f"{MARS} .rv-count") == f"{tokens} tokens"
    assert page.inner_text(".rv-beat b") == "Pass 3"
    assert saying.inner_text() == f"After 3 passes: MARS has written {tokens} tokens, plain AR 3."
    assert page.get_attribute(SCRUBBER, "aria-valuetext") == f"plain AR pass 3 of {num_ar}"
    wait_for_charts(page)
    axis = "document.querySelector('[data-chart={}] .rv-plot')._fullLayout.xaxis"
    assert page.evaluate(f"{axis.format('forwards')}.title.text") == "forward passes"
    assert page.evaluate(f"{axis.format('forwards')}.range") == [0, num_ar]
    assert page.evaluate(f"{axis.format('time')}.title.text") == "seconds of decoding"
    page.click(".pl-speeds button >> text=20/s")
    press(page, "play")
    size = "n => n && getComputedStyle(n, '::after').content.includes('+')"
    page.wait_for_function(f"({size})(document.querySelector('{MARS} .rv-landed[data-n]'))")
    page.emulate_media(reduced_motion="reduce")
    page.wait_for_selector(f"{MARS} .rv-landed", state="detached")
    press(page, "end")
    page.wait_for_selector(f"{AR}[data-shown='{num_ar}']")
    set_clock(page, "Seconds")
    assert page.locator(".rv-beat").is_hidden()
    assert page.locator(".rv-figures").is_visible()
    assert page.inner_text(".pl-position").startswith(f"MARS pass {NUM} of {NUM} · ")


def test_a_run_plays_on_its_measured_clock(show: Show) -> None:
    page = show("prose")
    page.click(".pl-speeds button >> text=step by step")
    press(page, "play")
    page.wait_for_selector(".pl-play[aria-label=Pause]")
    wait_at(page, 1)
    press(page, "pause")
    page.wait_for_selector(".pl-play[aria-label=Play]")
    page.click(".pl-speeds button >> text=2×")
    page.focus(f"{MARS} .rv-text")
    page.keyboard.press("Space")
    page.wait_for_selector(f"{AR}[data-shown='{len(clocks('ar'))}']")
    assert page.get_attribute(".pl-play", "aria-label") == "Play"
    tick = f"""async (name) => {{
      const {{ player, playhead }} = {VIEW};
      const buttons = [...document.querySelectorAll(".pl-speeds button")];
      buttons.find((b) => b.textContent === name).click();
      playhead.seek(0.1);
      Object.assign(player, {{ isPlaying: true, since: 1000, rested: 0 }});
      for (const now of [1060, 1100, 1200]) player.tick(now);
      player.isPlaying = false;
      return playhead.time - 0.1;
    }}"""
    for name, speed in (("½×", 0.5), ("1×", 1.0), ("2×", 2.0), ("step by step", 0)):
        assert abs(page.evaluate(tick, name) - 0.2 * speed) < 1e-9
        assert page.inner_text(".pl-speeds [aria-pressed=true]") == name


def test_keys_move_where_no_other_control_needs_them(show: Show) -> None:
    page = show("prose")
    page.focus(SCRUBBER)
    page.keyboard.press("Home")
    wait_at(page, 0)
    for key in (*["ArrowRight"] * 4, "ArrowLeft"):
        page.keyboard.press(key)
    wait_at(page, 3)
    page.keyboard.press("End")
    wait_at(page, NUM)
    page.focus("[data-act=back]")
    for _ in range(2):
        page.keyboard.press("ArrowLeft")
    wait_at(page, NUM - 2)
    page.click(".rv-legend > button")
    page.keyboard.press("Space")
    assert page.get_attribute(".rv-legend > button", "aria-pressed") == "false"
    assert page.get_attribute(".pl-play", "aria-label") == "Play"
    page.focus(f"{MARS} .rv-text")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert page.locator(f"{MARS} .rv-at").count() == 1
    assert page.get_attribute(ROOT, "data-at") == str(NUM - 2)
    press(page, "start")
    wait_at(page, 0)


def test_a_live_run_is_scrubbed_while_it_streams(show: Show) -> None:
    """Back to live follows the run and the end of its text again."""
    page = show("prose")
    run = ByHand(page, race_scenes.PROSE)
    text = page.locator(f"{AR} .rv-text")
    run.send(14)
    wait_at(page, 5)
    text.evaluate("node => { node.style.height = '80px' }")
    live = page.locator(".pl-live")
    assert live.is_hidden()
    assert page.get_attribute(".pl-play", "aria-label") == "Pause"
    press(page, "pause")
    press(page, "back")
    press(page, "back")
    wait_at(page, 3)
    assert live.is_visible()
    run.send(20)
    page.wait_for_selector(f"{ROOT}[data-steps='15']")
    assert page.get_attribute(ROOT, "data-at") == "3"
    assert num_in_sight(page, MARS) == folds.num_tokens(MAIN[:4])
    live.click()
    wait_at(page, 15)
    assert live.is_hidden()
    run.send(60)
    wait_at(page, 45)
    page.wait_for_function(f"{VIEW}.entries[1].view.element.scrollTop > 28")
    text.evaluate("node => { node.scrollTop = 0 }")
    page.wait_for_function(f"!{VIEW}.entries[1].view.isStuck")
    press(page, "start")
    wait_at(page, 0)
    live.click()
    wait_at(page, 45)
    run.send(2)
    wait_at(page, 46)
    assert abs(text.evaluate(BELOW)) < 28
    press(page, "start")
    wait_at(page, 0)
    run.send(1000)
    page.wait_for_selector(f"{ROOT}[data-state=finished]")
    assert page.get_attribute(ROOT, "data-at") == "0"
    assert live.is_hidden()
    press(page, "end")
    wait_at(page, NUM)


def test_a_recorded_run_opens_at_its_end_and_steps_with_reduced_motion(show: Show) -> None:
    page = show("recorded")
    page.emulate_media(reduced_motion="reduce")
    assert page.inner_text(".rv-recorded") == "recorded 2026-11-20"
    num = page.get_attribute(ROOT, "data-steps")
    assert page.get_attribute(ROOT, "data-at") == num
    page.wait_for_function(
        "document.querySelectorAll('.pl-speeds button:not([hidden])').length === 1"
    )
    assert page.locator(".pl-speeds button:visible").inner_text() == "step by step"
    press(page, "play")
    wait_at(page, 1)
    assert page.locator(f"{MARS} .rv-verdict").is_hidden()
    press(page, "end")
    wait_at(page, int(num))


def test_a_forward_is_chosen_by_a_bar_a_click_or_enter_and_escape_lets_go(show: Show) -> None:
    page = show("maths", width=1440)
    wait_for_charts(page)
    page.eval_on_selector(ROOT, "n => { n.style.width = '996px' }")
    tall = "l => l.map(h => h.getBoundingClientRect().height)"
    heights = page.eval_on_selector_all(".rv-head", tall)
    assert max(heights) < 62  # two lines: how it decodes is in the second, at this width
    assert len(set(heights)) == 1
    bars = page.locator("[data-chart=forwards] .rv-plot")
    bars.scroll_into_view_if_needed()
    plot = "document.querySelector('[data-chart=forwards] .rv-plot')"
    axis = f"{plot}._fullLayout.xaxis"
    is_drawn = f"!{VIEW}.charts.dirty.size && {plot}._fullLayout.width === {plot}.clientWidth"
    page.wait_for_function(f"{is_drawn} && {axis}._length < 480")
    fifth = f"{VIEW}.run.lanes[0].steps[4]"
    x = page.evaluate(f"{axis}._offset + {axis}.l2p({fifth}.clock - {fifth}.seconds / 2)")
    box = bars.bounding_box()
    page.mouse.click(box["x"] + x, box["y"] + box["height"] / 2)
    pointed = page.locator(f"{MARS} .rv-c").nth(4).locator(".rv-at")
    assert pointed.count() == 1
    assert bars.is_visible()
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{ROOT} .rv-drawer[data-pass='5']")
    assert page.locator(f"{ROOT} .pl-chosen").is_visible()
    page.evaluate("addEventListener('keydown', (e) => { window.prevented = e.defaultPrevented })")
    page.keyboard.press("Escape")
    assert page.evaluate(f"[{VIEW}.selected, window.prevented]") == [None, True]
    page.keyboard.press("Escape")
    assert page.evaluate("window.prevented") is False
    page.locator(f"{MARS} .rv-text").evaluate("node => { node.scrollTop = 0 }")
    page.locator(f"{MARS} .rv-c").nth(2).locator(".rv-t").first.click()
    assert page.evaluate(f"{VIEW}.selected.step") == 2
    assert page.locator(f"{MARS} .rv-chosen").count() == 1
    page.keyboard.press("Escape")
    assert page.locator(f"{MARS} .rv-chosen").count() == 0
    for key in ("Home", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    assert page.evaluate(f"{VIEW}.selected.step") == 1
