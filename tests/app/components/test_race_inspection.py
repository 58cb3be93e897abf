"""What panels and the player stand on: lanes cut at a step, the place in a run, choosing, tabs."""

from __future__ import annotations

from codecs import getincrementaldecoder

import race_scenes
import sample_traces as samples
from browser import needs_browser
from race_browser import AR, MARS, ROOT, Show

from mars_runtime import folds

VIEW = f"document.querySelector('{ROOT}').lineView"
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
    assert page.eval_on_selector_all(f"{MARS} .rv-seg .rv-t[class='rv-t']", visible) == num_tokens
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
