"""The bar that moves through a run, as a visitor uses it: on live, finished and recorded runs."""

from __future__ import annotations

from bisect import bisect_right
from codecs import getincrementaldecoder

import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright
from race_browser import AR, MARS, ROOT, ByHand, Show, wait_for_charts

from mars_runtime import folds
from mars_runtime.speedup import NOTES

VIEW = f"document.querySelector('{ROOT}').lineView"
SCRUBBER = ".pl-scrubber"
IN_SIGHT = "nodes => nodes.filter(n => n.getClientRects().length).length"
MAIN = samples.read(samples.lanes(race_scenes.PROSE)["mars"]).events
NUM = folds.num_forwards(MAIN)


def press(page: playwright.Page, act: str) -> None:
    page.click(f".rv-player [data-act={act}]")


def wait_at(page: playwright.Page, num: int) -> None:
    page.wait_for_selector(f"{ROOT}[data-at='{num}']")


def clocks(lane: str) -> list[float]:
    """When each forward of the scene ``prose`` ended, on its lane's measured clock."""
    events = samples.read(samples.lanes(race_scenes.PROSE)[lane]).events
    return [time for time, _ in folds.timeline(events)][1:]


def num_in_sight(page: playwright.Page, pane: str) -> int:
    return int(page.eval_on_selector_all(f"{pane} .rv-c > .rv-t", IN_SIGHT))


@needs_browser
def test_text_figures_charts_and_lanes_move_together(show: Show) -> None:
    page = show("prose")
    wait_for_charts(page)
    position = page.locator(".pl-position")
    assert position.inner_text().startswith(f"forward {NUM} of {NUM} · ")
    assert page.locator(".rv-later:visible").count() == 0
    press(page, "start")
    wait_at(page, 0)
    assert position.inner_text() == f"forward 0 of {NUM} · 0.000 s"
    assert num_in_sight(page, MARS) == 0
    for num in (1, 2, 3):
        press(page, "forward")
        wait_at(page, num)
    press(page, "back")
    wait_at(page, 2)
    cut = MAIN[:3]
    assert num_in_sight(page, MARS) == folds.num_tokens(cut)
    assert page.locator(f"{MARS} .rv-ghost").count() == 1
    figures = page.inner_text(".rv-figure[data-key=perForward]")
    assert f"{folds.tpf(cut):.2f}" in figures
    assert page.locator(".rv-later:visible").count() == 4
    time = clocks("mars")[1]
    assert position.inner_text() == f"forward 2 of {NUM} · {time:.3f} s"
    assert (
        page.get_attribute(SCRUBBER, "aria-valuetext") == f"forward 2 of {NUM}, {time:.3f} seconds"
    )
    box = page.locator(SCRUBBER).bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + box["height"] / 2, steps=5)
    page.mouse.up()
    page.wait_for_function(f"{VIEW}.at > 20")
    page.evaluate("new Promise(requestAnimationFrame)")
    now = page.evaluate(f"{VIEW}.playhead.time")
    for lane, pane in (("mars", MARS), ("ar", AR)):
        num = bisect_right(clocks(lane), now + 1e-9)
        assert page.get_attribute(pane, "data-shown") == str(num)
    later = page.locator("[data-chart=time] .rv-later").bounding_box()
    axis = "document.querySelector('[data-chart=time] .rv-plot')._fullLayout.xaxis"
    left = page.locator("[data-chart=time] .rv-plot").bounding_box()["x"]
    assert abs(later["x"] - left - page.evaluate(f"{axis}._offset + {axis}.l2p({now})")) < 2
    press(page, "end")
    wait_at(page, NUM)
    assert page.get_attribute(AR, "data-shown") == str(len(clocks("ar")))
    for num in range(NUM - 1, NUM - 7, -1):  # plain AR went on for longer; MARS moves all the same
        press(page, "back")
        wait_at(page, num)
        assert page.get_attribute(MARS, "data-shown") == str(num)


@needs_browser
def test_by_passes_each_beat_grants_every_lane_one_forward(show: Show) -> None:
    """Text, counts, charts, scrubber and the sentence at its end all go by the clock that was
    chosen; the other one comes back as it was."""
    page = show("prose")
    wait_for_charts(page)
    num_ar = len(clocks("ar"))
    page.click(".rv-clock button >> text=Passes")
    page.wait_for_selector(f"{ROOT}[data-clock=passes]")
    saying = page.locator(".rv-saying")
    pace = folds.tpf(MAIN)  # the texts differ, so totals say nothing
    assert saying.inner_text().startswith(f"{pace:.2f} tokens per pass. Plain AR: 1.00.")
    assert "passes saved by masks" in page.inner_text(".rv-because")
    assert "As measured: " in page.inner_text(".rv-because")
    assert page.locator(".rv-figures").is_hidden()
    assert page.locator(".pl-skyline path").count() == 3  # the line, masks, AR's own
    press(page, "start")
    wait_at(page, 0)
    for _ in range(3):
        press(page, "forward")
    wait_at(page, 3)
    assert page.get_attribute(AR, "data-shown") == "3"
    assert page.inner_text(f"{AR} .rv-count") == "3 tokens"
    tokens = folds.num_tokens(MAIN[:4])
    assert page.inner_text(f"{MARS} .rv-count") == f"{tokens} tokens"
    assert page.inner_text(".rv-beat b") == "Pass 3"
    assert saying.inner_text() == f"{tokens} tokens in 3 passes."
    assert page.get_attribute(SCRUBBER, "aria-valuetext") == f"pass 3 of {num_ar}"
    page.focus(SCRUBBER)
    page.keyboard.press("ArrowLeft")
    wait_at(page, 2)
    wait_for_charts(page)
    axis = "document.querySelector('[data-chart=time] .rv-plot')._fullLayout.xaxis"
    assert page.evaluate(f"{axis}.title.text") == "forward passes"
    assert page.evaluate(f"{axis}.range") == [0, num_ar]
    page.keyboard.press("End")
    page.wait_for_selector(f"{AR}[data-shown='{num_ar}']")
    page.click(".rv-clock button >> text=Seconds")
    page.wait_for_selector(f"{ROOT}[data-clock=seconds]")
    assert page.locator(".rv-beat").is_hidden()
    assert page.locator(".rv-figures").is_visible()
    assert page.inner_text(".pl-position").startswith(f"forward {NUM} of {NUM} · ")


@needs_browser
def test_a_group_lands_with_its_size_where_things_may_move(show: Show) -> None:
    page = show("prose")
    page.emulate_media(reduced_motion="no-preference")
    page.click(".rv-clock button >> text=Passes")
    page.click(".pl-speeds button >> text=20/s")
    press(page, "start")
    press(page, "play")
    said = """(selector) => {
        const landed = document.querySelector(selector);
        return landed !== null && getComputedStyle(landed, "::after").content.includes("+");
    }"""
    page.wait_for_function(said, arg=f"{MARS} .rv-landed[data-n]")
    assert page.locator(f"{MARS} .rv-landed").count() == 1
    page.emulate_media(reduced_motion="reduce")
    page.wait_for_selector(f"{MARS} .rv-landed", state="detached")
    press(page, "end")
    page.click(".rv-clock button >> text=Seconds")


@needs_browser
def test_a_live_run_by_passes_shows_no_lane_ahead_of_the_slowest(show: Show) -> None:
    page = show("prose")
    page.click(".rv-clock button >> text=Passes")
    live = ByHand(page, race_scenes.PROSE)
    slow = [line for line in live.lines if line[0] == "mars"]
    fast = [line for line in live.lines if line[0] == "ar"]
    live.lines[:] = [*slow[:12], *fast[:40], *slow[12:], *fast[40:]]
    live.send(52)  # headers and prompts are two lines each: 10 forwards of MARS, 38 of AR
    wait_at(page, 10)
    assert page.get_attribute(AR, "data-steps") == "38"
    assert page.get_attribute(AR, "data-shown") == "10"
    live.send(len(slow) - 12)
    page.wait_for_selector(f"{MARS}[data-end=eos]")
    page.wait_for_selector(f"{AR}[data-shown='38']")
    assert page.get_attribute(MARS, "data-shown") == "38"
    page.click(".rv-clock button >> text=Seconds")


@needs_browser
def test_beats_that_cannot_be_told_apart_neither_land_nor_take_each_frame(show: Show) -> None:
    """The machine that draws them decodes them too."""
    page = show("prose")
    page.click(".rv-clock button >> text=Passes")
    page.evaluate(
        f"""() => {{
          const draw = {VIEW}.draw.bind({VIEW});
          window.drawn = [];
          {VIEW}.draw = () => {{
            draw();
            window.drawn.push([{VIEW}.at, document.querySelectorAll(".rv-landed").length]);
          }};
        }}"""
    )
    live = ByHand(page, race_scenes.PROSE)
    live.send(
        84
    )  # 40 forwards of each lane at once: the first thirty come faster than 20 per second
    wait_at(page, 40)
    page.wait_for_timeout(100)  # what is at its end is drawn once more
    drawn = page.evaluate("window.drawn")
    hurried = [num_landed for at, num_landed in drawn if 0 < at < 30]
    assert 1 < len(hurried) < 25
    assert not any(hurried)
    assert any(num_landed for at, num_landed in drawn if at > 31)
    page.wait_for_timeout(500)
    assert page.evaluate("window.drawn.length") == len(drawn)  # while nothing comes, no frame
    page.evaluate(f"delete {VIEW}.draw")
    live.send(1000)
    page.click(".rv-clock button >> text=Seconds")


@needs_browser
def test_a_run_plays_on_its_measured_clock(show: Show) -> None:
    page = show("prose")
    page.click(".pl-speeds button >> text=by step")
    press(page, "play")
    page.wait_for_selector(".pl-play[aria-label=Pause]")
    wait_at(page, 1)
    press(page, "pause")
    at = page.evaluate(f"{VIEW}.at")
    page.wait_for_timeout(800)
    assert page.evaluate(f"{VIEW}.at") == at
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
    for name, speed in (("½×", 0.5), ("1×", 1.0), ("2×", 2.0)):
        assert abs(page.evaluate(tick, name) - 0.2 * speed) < 1e-9
        assert page.inner_text(".pl-speeds [aria-pressed=true]") == name
    assert page.evaluate(tick, "by step") == 0


@needs_browser
def test_keys_move_where_nobody_else_needs_them(show: Show) -> None:
    page = show("prose")
    page.focus(SCRUBBER)
    page.keyboard.press("Home")
    wait_at(page, 0)
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    wait_at(page, 3)
    page.keyboard.press("End")
    wait_at(page, NUM)
    page.focus("[data-act=back]")
    for _ in range(2):
        page.keyboard.press("ArrowLeft")
    wait_at(page, NUM - 2)
    page.click(".rv-legend button")
    page.keyboard.press("Space")
    assert page.get_attribute(".rv-legend button", "aria-pressed") == "true"
    assert page.evaluate(f"{VIEW}.player.isPlaying") is False
    page.focus(f"{MARS} .rv-text")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert "token 2" in page.inner_text(f"{ROOT} .rv-card")
    assert page.evaluate(f"{VIEW}.at") == NUM - 2
    press(page, "start")
    wait_at(page, 0)
    assert page.locator(f"{ROOT} .rv-card").is_hidden()


@needs_browser
def test_a_live_run_is_scrubbed_while_it_streams(show: Show) -> None:
    page = show("prose")
    run = ByHand(page, race_scenes.PROSE)
    run.send(14)
    wait_at(page, 5)
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
    run.send(2)
    wait_at(page, 16)
    press(page, "start")
    wait_at(page, 0)
    run.send(1000)
    page.wait_for_selector(f"{ROOT}[data-state=finished]")
    assert page.get_attribute(ROOT, "data-at") == "0"
    assert live.is_hidden()
    press(page, "end")
    wait_at(page, NUM)


@needs_browser
def test_back_to_live_follows_the_text_again(show: Show) -> None:
    page = show("prose")
    run = ByHand(page, race_scenes.PROSE)
    text = page.locator(f"{AR} .rv-text")
    run.send(14)
    text.evaluate("node => { node.style.height = '80px' }")
    run.send(66)
    page.wait_for_function(f"{VIEW}.entries[1].view.element.scrollTop > 28")
    text.evaluate("node => { node.scrollTop = 0 }")
    page.wait_for_function(f"!{VIEW}.entries[1].view.isStuck")
    press(page, "pause")
    press(page, "start")
    wait_at(page, 0)
    page.click(".pl-live")
    steps = int(page.get_attribute(ROOT, "data-steps") or 0)
    wait_at(page, steps)
    run.send(40)
    page.wait_for_function(f"{VIEW}.at > {steps}")
    below = "n => n.scrollHeight - n.scrollTop - n.clientHeight"
    assert abs(text.evaluate(below)) < 28


@needs_browser
def test_a_pane_of_another_size_shows_the_end_as_before(show: Show) -> None:
    """The recording of the first visit gives way to larger panes with larger letters."""
    page = show("prose")
    ByHand(page, race_scenes.PROSE).send(80)
    text = page.locator(f"{AR} .rv-text")
    below = f"(n => n.scrollHeight - n.scrollTop - n.clientHeight)({VIEW}.entries[1].view.element)"
    for height, size in ((80, 16), (120, 30)):
        text.evaluate(f"n => {{ n.style.height = '{height}px'; n.style.fontSize = '{size}px' }}")
        page.wait_for_function(f"{VIEW}.entries[1].view.element.clientHeight < 160 && {below} < 3")
        assert text.evaluate("n => n.scrollTop") > 28
    text.evaluate("n => { n.scrollTop = 0 }")
    page.wait_for_function(f"!{VIEW}.entries[1].view.isStuck")
    text.evaluate("n => { n.style.height = '100px' }")
    page.evaluate("new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)))")
    assert text.evaluate("n => n.scrollTop") == 0


@needs_browser
def test_a_recorded_run_opens_at_its_end_and_steps_with_reduced_motion(show: Show) -> None:
    page = show("recorded")
    page.emulate_media(reduced_motion="reduce")
    assert page.inner_text(".rv-recorded") == "recorded 2026-11-20"
    num = page.evaluate(f"{VIEW}.run.lanes[0].steps.length")
    assert page.get_attribute(ROOT, "data-at") == str(num)
    page.wait_for_function(
        "document.querySelectorAll('.pl-speeds button:not([hidden])').length === 1"
    )
    assert page.locator(".pl-speeds button:visible").inner_text() == "by step"
    press(page, "play")
    page.wait_for_function(f"{VIEW}.at === 0")
    wait_at(page, 1)
    assert page.locator(f"{MARS} .rv-verdict").is_hidden()
    press(page, "end")
    wait_at(page, num)


@needs_browser
def test_a_bar_of_a_chart_chooses_its_forward_and_heads_are_alike(show: Show) -> None:
    page = show("maths", width=1440)
    wait_for_charts(page)
    page.eval_on_selector(ROOT, "n => { n.style.width = '996px' }")
    heights = page.eval_on_selector_all(
        ".rv-head", "l => l.map(h => h.getBoundingClientRect().height)"
    )
    assert max(heights) < 62  # two lines: how it decodes stands in the second, at this width
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
    assert page.evaluate(f"{VIEW}.selected.step") == 4
    assert page.locator(f"{MARS} .rv-chosen").count() == 1
    page.wait_for_function(  # in every chart, as soon as each is drawn
        f"""[...document.querySelectorAll("{ROOT} .rv-cursor-chosen")]
            .filter((n) => n.checkVisibility({{ visibilityProperty: true }})).length === 4"""
    )
    assert page.locator(f"{ROOT} .pl-chosen").is_visible()
    page.keyboard.press("Escape")
    assert page.evaluate(f"{VIEW}.selected") is None


@needs_browser
def test_a_long_leap_shows_the_end_first_and_the_rest_in_the_next_frames(show: Show) -> None:
    page = show("prose")
    long = samples.Script("\n\n".join([samples.PROSE] * 6), race_scenes.START)
    num = folds.num_tokens(samples.run(long).events)
    run = ByHand(page, long, "long")
    run.send(len(run.lines))
    page.wait_for_selector(f"{AR}[data-tokens='{num}']")
    press(page, "start")
    page.wait_for_selector(f"{AR}[data-shown='0']")
    leap = f"""async (pane) => {{
      const view = {VIEW};
      const text = document.querySelector(pane + " .rv-text");
      const seen = [];
      view.playhead.seek(Infinity);
      do {{
        view.schedule();
        await new Promise(requestAnimationFrame);
        const left = text.scrollHeight - text.scrollTop - text.clientHeight;
        const nodes = [...text.querySelectorAll(".rv-c > .rv-t")];
        const tokens = nodes.map((node) => node.getClientRects().length > 0);
        seen.push([tokens.filter(Boolean).length, tokens.lastIndexOf(false) + 1, left < 2]);
      }} while (view.frame);
      return seen;
    }}"""
    seen = page.evaluate(leap, AR)
    assert len(seen) > 1
    for shown, first, is_at_end in seen:
        assert shown == num - first  # a run of tokens up to the last one
        assert is_at_end
    assert seen[0][0] < num
    assert seen[-1][0] == num


CUT = """([lines, num]) => {
  const Lane = VIEW.run.lanes[0].constructor;
  const whole = Lane.of(lines, { lane: "mars", title: "MARS" });
  const lane = whole.at(num);
  return { text: lane.tokens.map((t) => t.text).join(""), ids: lane.tokens.map((t) => t.id),
    steps: lane.steps.length, seconds: lane.seconds, end: lane.end,
    settings: lane.settings, moves: lane.moves.map((m) => [m.step, m.until, m.settings.tau]),
    isWhole: lane === whole, again: whole.at(num) === lane, lines: whole.lines,
    ghosts: lane.ghosts() && lane.ghosts().drafts + lane.ghosts().refused };
}""".replace("VIEW", VIEW)
TABS = """() => {
  const draws = [];
  const kind = (name) => class {
    static id = name;
    static title = name.toUpperCase();
    constructor(element, view) { Object.assign(this, { element, view }); }
    draw() { draws.push(name); this.element.textContent = `at ${this.view.at}`; }
  };
  const host = document.createElement("div");
  document.querySelector('ROOT').append(host);
  const view = VIEW;
  window.draws = draws;
  window.kinds = ["a", "b", "c"].map(kind);
  view.panels = new view.panels.constructor(host, view, window.kinds);
  host.id = "tabs";
  view.schedule();
}""".replace("VIEW", VIEW).replace("ROOT", ROOT)


@needs_browser
def test_a_lane_is_cut_at_any_step_as_it_was_then(show: Show) -> None:
    page = show("prose")
    lines = samples.lanes(race_scenes.PROSE)["mars"]
    for num in (0, 1, 10, 23, 40):
        cut = page.evaluate(CUT, [lines, num])
        events = samples.read(lines[: num + 2]).events
        steps = [row for row, _ in folds.row_steps(events)]
        assert cut["steps"] == num
        assert cut["ids"] == folds.accepted_tokens(events)
        assert abs(cut["seconds"] - folds.decode_seconds(events)) < 1e-9
        assert cut["settings"]["tau"] == (steps[-1].settings if steps else race_scenes.START).tau
        assert cut["end"] is None
        assert cut["again"]
        assert not cut["isWhole"]
    assert cut["moves"] == [[9, 9, 0.5], [22, 24, 0.95]]
    assert page.evaluate(CUT, [lines, 23])["moves"][-1] == [22, 22, 0.8]
    whole = page.evaluate(CUT, [lines, 10_000])
    assert whole["isWhole"]
    assert whole["lines"] == lines
    assert page.evaluate(f"{VIEW}.run.lanes[0].lines") == lines


@needs_browser
def test_a_cut_shows_no_character_that_a_later_token_completes(show: Show) -> None:
    page = show("emoji")
    script = race_scenes.EMOJI
    lines = samples.lanes(script)["mars"]
    vocabulary = samples.read(lines).vocabulary
    for num in range(len(lines) - 3):
        events = samples.read(lines[: num + 2]).events
        decoder = getincrementaldecoder("utf-8")("replace")
        cut = page.evaluate(CUT, [lines, num])
        accepted = folds.accepted_tokens(events)
        assert cut["text"] == decoder.decode(b"".join(vocabulary[token] for token in accepted))
        if num:
            step = [row for row, _ in folds.row_steps(events)][-1]
            refused = step.proposals[len(step.accepted) :]
            assert cut["ghosts"] == decoder.decode(b"".join(vocabulary[p.token] for p in refused))


@needs_browser
def test_one_number_says_what_every_lane_shows(show: Show) -> None:
    page = show("prose")
    lanes = samples.lanes(race_scenes.PROSE)
    mars, plain = (samples.read(lanes[name]).events for name in ("mars", "ar"))
    page.evaluate(f"{VIEW}.goTo({VIEW}.run.lanes[0], 11)")
    page.wait_for_selector(f"{ROOT}[data-at='12']")
    clock = folds.decode_seconds(mars[:13])
    done = [folds.decode_seconds(plain[: n + 2]) for n in range(200)]
    num_plain = sum(time <= clock for time in done)
    assert [p.get_attribute("data-shown") for p in page.query_selector_all(".rv-pane")] == [
        "12",
        str(num_plain),
    ]
    num_tokens = len(folds.accepted_tokens(mars[:13]))
    assert f"{num_tokens} tokens" in page.inner_text(f"{MARS} .rv-count")
    visible = "n => n.filter(t => t.offsetParent || t.getClientRects().length).length"
    assert page.eval_on_selector_all(f"{MARS} .rv-seg .rv-t:not(.rv-eos)", visible) == num_tokens
    assert page.locator(f"{MARS} .rv-ghost").count() == 1
    assert page.inner_text(f"{MARS} .rv-differs") == ""
    page.evaluate(f"{VIEW}.goTo({VIEW}.run.lanes[1], 1000)")
    page.wait_for_selector(f"{MARS}[data-shown='{folds.num_forwards(mars)}']")
    page.evaluate(f"{VIEW}.goTo({VIEW}.run.lanes[1], 1)")
    page.wait_for_selector(f"{AR}[data-shown='2']")


@needs_browser
def test_a_click_or_enter_chooses_a_forward_and_escape_lets_go(show: Show) -> None:
    page = show("prose")
    page.evaluate("addEventListener('keydown', (e) => { window.prevented = e.defaultPrevented })")
    text = page.locator(f"{MARS} .rv-text")
    text.evaluate("node => { node.scrollTop = 0 }")
    page.locator(f"{MARS} .rv-c").nth(2).locator(".rv-t").first.click()
    assert page.evaluate(f"{VIEW}.selected.step") == 2
    assert page.evaluate(f"{VIEW}.focus.step") == 2
    assert page.locator(f"{MARS} .rv-chosen").count() == 1
    page.keyboard.press("Escape")
    assert page.evaluate("window.prevented") is True
    assert page.evaluate(f"{VIEW}.selected") is None
    assert page.locator(f"{MARS} .rv-chosen").count() == 0
    assert page.evaluate(f"{VIEW}.focus.step") == page.evaluate(f"{VIEW}.at") - 1
    page.keyboard.press("Escape")
    assert page.evaluate("window.prevented") is False
    for key in ("Home", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    assert page.evaluate(f"{VIEW}.selected.step") == 1


@needs_browser
def test_only_the_open_panel_draws_and_the_chosen_tab_is_remembered(show: Show) -> None:
    page = show("prose")
    page.evaluate(TABS)
    page.wait_for_function("window.draws.length === 1")
    tabs = page.locator("#tabs [role=tab]")
    assert tabs.all_inner_texts() == ["A", "B", "C"]
    assert page.locator("#tabs [role=tabpanel]:visible").inner_text() == "at 69"
    tabs.first.focus()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.textContent") == "C"
    page.evaluate(f"{VIEW}.goTo({VIEW}.run.lanes[0], 4)")
    page.wait_for_function("document.querySelector('#tabs').innerText.includes('at 5')")
    page.evaluate(f"{VIEW}.schedule()")
    page.evaluate("new Promise(requestAnimationFrame)")
    assert page.evaluate("window.draws") == ["a", "c", "c"]
    page.evaluate("document.querySelector('#tabs').remove()")
    page.evaluate(TABS)
    assert page.locator("#tabs [aria-selected=true]").inner_text() == "C"


@needs_browser
def test_asks_are_heard_where_somebody_answers(show: Show) -> None:
    page = show("prose")
    page.evaluate("addEventListener('mars-ask', (e) => { window.asked = e.detail })")
    assert page.evaluate(f"{VIEW}.ask('this', {{ lane: 'mars' }})") is False
    page.evaluate("window.mars.answers = ['this']")
    assert page.evaluate(f"{VIEW}.canAsk('that')") is False
    assert page.evaluate(f"{VIEW}.ask('this', {{ lane: 'mars' }})") is True
    assert page.evaluate("window.asked") == {"kind": "this", "lane": "mars"}


@needs_browser
def test_a_speed_that_cannot_be_is_not_shown_and_can_be_measured_again(show: Show) -> None:
    """Ten times AR's speed at a quarter of its passes: other work slowed AR down meanwhile."""
    page = show("losslessdone")
    page.click(".rv-clock button >> text=Passes")
    page.wait_for_selector(f"{ROOT}[data-clock=passes]")
    again = page.locator(".rv-headline .rv-again")
    assert again.is_hidden()
    page.evaluate(
        f"""() => {{
          window.mars.start = () => {{}};
          addEventListener("mars-ask", ({{ detail }}) => {{ window.asked = detail; }});
          const [mars, ar] = {VIEW}.run.lanes;
          window.before = {VIEW}.run.lanes.map((lane) => lane.steps.map((step) => step.seconds));
          for (const step of mars.steps) step.seconds = 0.01;
          for (const step of ar.steps) step.seconds = 0.1;
          {VIEW}.schedule();
        }}"""
    )
    again.wait_for()
    said = page.inner_text(".rv-because")
    assert NOTES["busy"] in said
    assert "times as fast" not in said
    again.click()
    asked = page.evaluate("window.asked")
    assert asked["kind"] == "way"
    assert asked["settings"]["lossless"] is True
    page.evaluate("delete window.mars.start")
    page.evaluate(
        f"""{VIEW}.run.lanes.forEach((lane, at) => lane.steps.forEach((step, place) => {{
          step.seconds = window.before[at][place];
        }}))"""
    )
    page.evaluate(f"{VIEW}.schedule()")
    again.wait_for(state="hidden")
    page.click(".rv-clock button >> text=Seconds")
    page.wait_for_selector(f"{ROOT}[data-clock=seconds]")
