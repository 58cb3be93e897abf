"""Another τ: panel, lens and forwards judged again, in a browser and by mars_runtime.acceptance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright
from modules import evaluate, modules_page
from panel_browser import (
    VIEW,
    answer,
    asked,
    forwards,
    open_panel,
    put,
    put_scene,
    recording,
    settle,
    stream,
)
from race_browser import MARS, ROOT, ByHand, Show
from race_page import head, interleaved, value
from race_scenes import CODE, LOSSLESS_RUN, PLAIN_RUN, PROSE

from app.ui import recordings
from mars_runtime import folds
from mars_runtime.acceptance import accept_prefix, judge
from mars_runtime.events import RowStep
from mars_runtime.trace import Trace

pytestmark = needs_browser


def set_tau(page: playwright.Page, tau: float) -> None:
    """Drag the slider."""
    page.locator(".rv-wi-knob input").evaluate(
        "(node, tau) => { node.value = tau; node.dispatchEvent(new Event('input')); }", str(tau)
    )
    settle(page)


def cells(panel: playwright.Locator) -> list[tuple[str, str]]:
    """(then, now) as they are written in the strip; now is empty where it is the same."""
    return [
        tuple(pair)
        for pair in panel.locator(".rv-wi-strip .rv-wi-cell").evaluate_all(
            "l => l.map((c) => [c.textContent, c.dataset.now])"
        )
    ]


def cells_judged(steps: list[RowStep], tau: float) -> list[tuple[str, str]]:
    """What the cells should show, by the runtime's rule."""
    counts = [
        accept_prefix([proposal.confidence for proposal in step.proposals], tau) for step in steps
    ]
    pairs = [(len(step.accepted), count) for step, count in zip(steps, counts, strict=True)]
    return [(str(then), "" if pair == then else str(pair)) for then, pair in pairs]


def test_a_recorded_run_is_judged_forward_by_forward(still: playwright.Page) -> None:
    page = still
    panel = open_panel(page, "whatif")
    made = recording("tau-moved")
    put(page, made.value)
    set_tau(page, 0.8)
    steps = forwards(made)
    expected = cells_judged(steps, 0.8)
    actual = cells(panel)
    assert actual[:-1] == expected[:-1]  # the last one also ends at the end of the text
    first = next(i for i, (_, other) in enumerate(expected) if other)
    marked = panel.locator(".rv-wi-strip .rv-wi-first")
    assert marked.count() == 1
    assert (
        panel.locator(".rv-wi-strip .rv-wi-cell")
        .nth(first)
        .evaluate("node => node.classList.contains('rv-wi-first')")
    )
    text = panel.inner_text()
    assert f"First difference at pass {first + 1}" in text
    exact = panel.locator(".rv-wi-table tbody tr").first
    num = sum(len(step.accepted) for step in steps[:first])
    expected_mean = (num + int(expected[first][1])) / (first + 1)
    assert "exact" in exact.inner_text()
    assert exact.locator("td").last.inner_text() == f"{expected_mean:.2f}"
    assert "≈" in panel.locator(".rv-wi-table tbody tr").nth(1).inner_text()
    assert panel.locator(".rv-wi-run").is_hidden()  # this page has no server


def test_the_same_threshold_changes_nothing_and_another_can_be_run(still: playwright.Page) -> None:
    page = still
    answer(page, ["run"])
    panel = open_panel(page, "whatif")
    made = recording("sorting")
    put(page, made.value)
    expected = cells_judged(forwards(made), 0.8)
    first = next(i for i, (_, other) in enumerate(expected) if other)
    set_tau(page, 0.95)
    assert "an identical run" in panel.inner_text()
    assert not any(is_other for _, is_other in cells(panel))
    slider = panel.locator(".rv-wi-knob input")
    slider.focus()
    for _ in range(15):
        page.keyboard.press("ArrowLeft")
    settle(page)
    assert panel.locator(".rv-wi-knob output").inner_text() == "0.8"
    assert f"First difference at pass {first + 1}" in panel.inner_text()
    assert "anyway" in panel.locator(".rv-wi-taken").inner_text()
    button = panel.locator(".rv-wi-run")
    assert button.inner_text() == "Run it with τ 0.8"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    settings = {"tau": 0.8, "block_size": 8, "lossless": False, "metric": "probability"}
    assert asked(page) == [{"kind": "run", "settings": settings}]
    # One tab stop for the strip; arrows read the cells, Enter chooses a forward for every panel.
    panel.locator(".rv-wi-strip").focus()
    page.keyboard.press("Home")
    for _ in range(first):
        page.keyboard.press("ArrowRight")
    then, now = expected[first]
    said = f"Pass {first + 1} accepted {then}; τ 0.8 would accept {now}"
    assert panel.locator(".rv-wi-detail").inner_text().startswith(said)
    page.keyboard.press("Enter")
    settle(page)
    assert page.evaluate(f"{VIEW}.selected.step") == first


def test_a_live_run_grows_its_strip_and_keeps_its_cells(show: Show) -> None:
    page = show("running", "slow")
    page.wait_for_selector(f"{MARS}[data-steps='30']")
    panel = open_panel(page, "whatif")
    settle(page)
    assert len(cells(panel)) == 30
    panel.scroll_into_view_if_needed()  # out of sight it is drawn once the run is over
    run = ByHand(page, race_scenes.PROSE)
    run.send(20)
    page.wait_for_function("document.querySelectorAll('.rv-wi-strip .rv-wi-cell').length === 8")
    page.evaluate("window.kept = document.querySelector('.rv-wi-strip .rv-wi-cell')")
    run.send(1000)
    page.wait_for_selector(f"{ROOT}[data-state=finished]")
    page.wait_for_function("document.querySelectorAll('.rv-wi-strip .rv-wi-cell').length === 69")
    assert page.evaluate("window.kept === document.querySelector('.rv-wi-strip .rv-wi-cell')")
    steps = [step for step, _ in folds.row_steps(samples.run(race_scenes.PROSE).events)]
    assert [then for then, _ in cells(panel)] == [str(len(step.accepted)) for step in steps]


def test_a_hidden_panel_is_drawn_when_a_run_begins_and_when_it_stops(show: Show) -> None:
    page = show("running", "slow")
    page.wait_for_selector(f"{MARS}[data-steps='30']")  # the scene has come to its end
    panel = open_panel(page, "whatif")
    page.set_viewport_size({"width": 1280, "height": 400})
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_function(f"!{VIEW}.panels.isInSight")
    # However busy the machine is, what is sent at once is read in one frame.
    page.evaluate(f"(({{ feed }}) => {{ feed.work = feed.work.bind(feed, Infinity); }})({VIEW})")
    run = ByHand(page, race_scenes.PROSE)
    run.send(20)
    page.wait_for_function("document.querySelectorAll('.rv-wi-strip .rv-wi-cell').length === 8")
    page.evaluate(f"delete {VIEW}.feed.work")  # other tests use the same page
    run.send(80)
    page.wait_for_selector(f"{MARS}[data-steps='48']")
    assert len(cells(panel)) == 8
    run.send(1000)
    page.wait_for_selector(f"{ROOT}[data-state=finished]")
    page.wait_for_function("document.querySelectorAll('.rv-wi-strip .rv-wi-cell').length === 69")


def test_lossless_runs_speak_of_drafts_and_plain_ar_of_nothing(still: playwright.Page) -> None:
    page = still
    panel = open_panel(page, "whatif")
    made = recording("lossless")
    put(page, made.value)
    steps = forwards(made)
    assert "does not change the text" in panel.inner_text()
    assert [then for then, _ in cells(panel)] == [str(step.num_drafted) for step in steps]
    lines = samples.lanes(race_scenes.PROSE)["ar"]
    put(page, value(head("only-ar", {"ar": "plain AR"}), interleaved({"ar": lines})).whole())
    assert "one token per pass" in panel.inner_text()
    assert panel.locator(".rv-wi-body").is_hidden()


@pytest.mark.parametrize(
    ("scene", "said"),
    [("prose", "AR would have chosen another token for"), ("uncheckedalone", "is unknown")],
)
def test_what_ar_would_have_chosen_is_shown_or_marked_as_unknown(
    still: playwright.Page, scene: str, said: str
) -> None:
    """A trace may hold no checks."""
    panel = open_panel(still, "whatif")
    put_scene(still, scene)
    panel.locator("input[type=range]").evaluate(
        "node => { node.value = 1; node.dispatchEvent(new Event('input', { bubbles: true })); }"
    )
    settle(still)
    assert said in panel.locator(".rv-wi-left").inner_text()


def test_a_long_run_keeps_only_the_cells_in_sight_and_reads_to_its_end(
    still: playwright.Page,
) -> None:
    panel = open_panel(still, "whatif")
    lines = interleaved(samples.lanes(race_scenes.LONG, ar=False))
    put(still, value(head("long", race_scenes.ONE), lines).whole())
    num = still.evaluate(f"{VIEW}.run.lanes[0].steps.length")
    assert num > 1000
    panel.locator(".rv-wi-strip").focus()
    still.keyboard.press("Home")
    assert panel.locator(".rv-wi-detail").inner_text().startswith("Pass 1 accepted")
    still.keyboard.press("End")
    assert panel.locator(".rv-wi-detail").inner_text().startswith(f"Pass {num:,} accepted")
    at = panel.locator(".rv-wi-strip .rv-wi-at")
    strip, cell = panel.locator(".rv-wi-strip").bounding_box(), at.bounding_box()
    assert strip["y"] <= cell["y"]
    assert cell["y"] + cell["height"] <= strip["y"] + strip["height"]
    assert panel.locator(".rv-wi-strip .rv-wi-cell").count() < num / 2


TAUS = (0.0, 0.3, 0.8, 0.95, 1.0)


@pytest.fixture(scope="module")
def page() -> Iterator[playwright.Page]:
    with modules_page() as made:
        yield made


def what_if(page: playwright.Page, lines: list[str], tau: float) -> dict[str, Any]:
    """``whatIf`` of a lane of these lines; ends are what ended it."""
    body = """
    const { endIds } = await import("http://modules.test/folds/proposals.js");
    const lane = laneOf(given[0]);
    return m.whatIf(lane, given[1], endIds([lane]));"""
    return evaluate(page, "folds/whatif.js", body, lines, tau)


def judged_again(trace: Trace, tau: float) -> list[int]:
    """What each forward hands on under ``tau``, by the runtime's own rule."""
    tokens = folds.accepted_tokens(trace.events)
    ends = frozenset(tokens[-1:]) if folds.end(trace.events).reason == "eos" else frozenset()
    drafts: list[int] = []
    handed = []
    for step, _ in folds.row_steps(trace.events):
        settings = replace(step.settings, tau=tau)
        remaining = settings.max_new_tokens - step.start
        fed = drafts if settings.lossless else []
        at = len(fed) + 1
        groups = [*[()] * len(fed), step.proposals[at:]]
        verdict = judge(step.proposals[:at], groups, fed, settings, remaining, ends)
        is_ar = settings.method == "ar"
        emitted = 1 if is_ar else len(verdict.emitted)
        handed.append(len(verdict.drafts) if settings.lossless and not is_ar else emitted)
        count = len(step.accepted)
        drafts = [slot.token for slot in step.proposals[count : count + step.num_drafted]]
    return handed


def recorded(name: str) -> Trace:
    """The MARS lane of a recording."""
    return next(recording for recording in recordings.load() if recording.name == name).traces()[
        "mars"
    ]


@pytest.mark.parametrize("tau", TAUS)
def test_every_forward_is_judged_as_the_runtime_would(page: playwright.Page, tau: float) -> None:
    traces = [samples.run(PROSE), samples.run(CODE)]
    traces += [recorded(name) for name in ("lossless", "word-problem", "tau-moved", "tale")]
    for trace in traces:
        actual = what_if(page, samples.trace_lines(trace), tau)
        assert [cell["now"] for cell in actual["cells"]] == judged_again(trace, tau)


def test_under_its_own_threshold_a_run_is_itself(page: playwright.Page) -> None:
    for name in ("lossless", "word-problem"):
        trace = recorded(name)
        steps = [step for step, _ in folds.row_steps(trace.events)]
        result = what_if(page, samples.trace_lines(trace), steps[0].settings.tau)
        assert result["first"] == -1
        num = folds.num_tokens(trace.events)
        assert result["whole"] == {"forwards": len(steps), "then": num, "now": num}
        assert result["exact"] == result["whole"]


def test_acceptance_is_that_of_the_runtime(page: playwright.Page) -> None:
    rows = [[], [0.1], [0.1, 0.9, 0.9], [0.9, 0.8, 0.8], [0.5, 0.79, 0.99], [1.0, 1.0, 1.0]]
    result = evaluate(
        page, "folds/whatif.js", "return given[0].map((r) => m.acceptPrefix(r, 0.8));", rows
    )
    assert result == [accept_prefix(row, 0.8) for row in rows] == [0, 1, 3, 3, 1, 3]
    never = evaluate(page, "folds/whatif.js", "return m.acceptPrefix([NaN, NaN, 1], 0);")
    assert never == accept_prefix([float("nan"), float("nan"), 1.0], 0.0) == 1


@pytest.mark.parametrize(
    ("tau", "now", "first", "exact", "whole", "taken", "left"),
    [
        (0.91, [2, 1, 2, 2], -1, (4, 7, 7), 7, (0, 0, 0, 0), 0),
        (0.8, [3, 1, 2, 2], 0, (1, 2, 3), 8, (1, 1, 0, 0), 0),
        (0.4, [4, 4, 2, 2], 0, (1, 2, 4), 12, (5, 1, 2, 2), 0),
        (0.2, [4, 4, 3, 2], 0, (1, 2, 4), 13, (6, 1, 3, 2), 0),  # the end of the text is taken
        (0.94, [2, 1, 1, 2], 2, (3, 5, 4), 6, (0, 0, 0, 0), 1),
        (1.0, [1, 1, 1, 1], 0, (1, 2, 1), 4, (0, 0, 0, 0), 3),
    ],
)
def test_a_run_by_hand(
    page: playwright.Page,
    tau: float,
    now: list[int],
    first: int,
    exact: tuple[int, int, int],
    whole: int,
    taken: tuple[int, int, int, int],
    left: int,
) -> None:
    actual = what_if(page, PLAIN_RUN, tau)
    assert [cell["now"] for cell in actual["cells"]] == now
    assert [cell["then"] for cell in actual["cells"]] == [2, 1, 2, 2]
    assert actual["first"] == first
    assert tuple(actual["exact"].values()) == exact
    assert actual["whole"] == {"forwards": 4, "then": 7, "now": whole}
    assert tuple(actual["taken"][key] for key in ("num", "same", "other", "unknown")) == taken
    assert actual["left"]["num"] == left
    assert actual["drafts"] is None


def test_a_lossless_run_by_hand_drafts_more_or_less(page: playwright.Page) -> None:
    bold = what_if(page, LOSSLESS_RUN, 0.7)
    assert [cell["now"] for cell in bold["cells"]] == [2, 2, 0, 2, 0]
    assert bold["exact"] == {"forwards": 2, "then": 3, "now": 4}
    assert bold["whole"] == {"forwards": 5, "then": 7, "now": 8}
    assert bold["drafts"] == {"then": 5, "now": 6, "agreedThen": 3, "agreedNow": 4}
    assert bold["taken"]["same"] == bold["taken"]["num"] == 1
    careful = what_if(page, LOSSLESS_RUN, 0.96)
    assert [cell["now"] for cell in careful["cells"]] == [0, 0, 0, 0, 0]
    assert careful["whole"]["now"] == 4
    assert careful["left"] == {"forwards": 3, "num": 5, "checked": 0, "wrong": 0}


def test_fates_of_proposals_by_hand(page: playwright.Page) -> None:
    body = """
    const lane = laneOf(given[0]);
    const ends = m.endIds([lane]);
    const pair = (row) => [row.fate, row.verdict];
    return lane.steps.map((_, i) => m.proposalRows(lane, i, ends).map(pair));"""
    plain = evaluate(page, "folds/proposals.js", body, PLAIN_RUN)
    assert plain[0] == [["own", None], ["taken", None], ["refused", "same"], ["unseen", "other"]]
    assert [verdict for _, verdict in plain[1]] == [None, "other", "unknown", "unknown"]
    assert plain[3] == [["own", None], ["taken", None]]
    lossless = evaluate(page, "folds/proposals.js", body, LOSSLESS_RUN)
    assert lossless[0] == [["own", None], ["drafted", "same"], ["refused", "same"]]
    assert [fate for fate, _ in lossless[1]] == ["confirmed", "own", "drafted", "drafted"]
    assert [verdict for _, verdict in lossless[1]] == [None, None, "other", "unknown"]
    assert [fate for fate, _ in lossless[2]] == ["replaced", "dropped", "dropped", "dropped"]
    assert {verdict for _, verdict in lossless[2][1:]} == {"unknown"}
    assert [fate for fate, _ in lossless[4]] == ["confirmed", "confirmed", "past"]


def test_a_place_that_is_not_written_yet_is_not_judged(page: playwright.Page) -> None:
    body = """
    const lane = laneOf(given[0].slice(0, 3));
    return m.proposalRows(lane, 0).map((row) => row.verdict);"""
    assert evaluate(page, "folds/proposals.js", body, PLAIN_RUN) == [
        None,
        None,
        "unwritten",
        "unwritten",
    ]


TEXT = f"{MARS} .rv-text"
GROUPS = f"""() => {{ const groups = [];
  document.querySelectorAll('{TEXT} .rv-t').forEach((node) => {{
    if (node.matches(".rv-begin, .rv-mid")) groups.push([0, node.classList.contains("rv-guess")]);
    groups.at(-1)[0] += 1; }});
  return groups; }}"""
PLACES = f"""() => [...document.querySelectorAll('{TEXT} .rv-t')].map((node) => {{
  const range = document.createRange();
  range.selectNodeContents(node);
  const {{ left, top }} = range.getBoundingClientRect();
  return [left, top]; }})"""


def look(page: playwright.Page, tau: float) -> None:
    """Drag the threshold, as the page passes it to the view."""
    page.evaluate(f"tau => {VIEW}.lens.set(tau)", tau)
    settle(page)


def test_a_finished_text_is_seen_in_the_groups_of_another_threshold(still: playwright.Page) -> None:
    made = recording("python")
    put(still, made.value)
    steps = [step for step, _ in folds.row_steps(made.traces()["mars"].events)]
    counts = [accept_prefix([p.confidence for p in step.proposals], 0.5) for step in steps]
    first = next(i for i, step in enumerate(steps) if counts[i] != len(step.accepted))
    before = still.evaluate(PLACES)
    look(still, 0.5)
    groups = still.evaluate(GROUPS)
    assert [count for count, _ in groups[:first]] == [len(s.accepted) for s in steps[:first]]
    assert not any(is_guess for _, is_guess in groups[: first + 1])
    assert sum(count for count, _ in groups) == folds.num_tokens(made.traces()["mars"].events)
    assert all(is_guess for count, is_guess in groups[first + 1 :] if count > 1)
    parts = still.locator(f"{TEXT} .rv-parts")
    assert parts.evaluate("n => n.rvToken") == steps[first].start
    assert still.evaluate(PLACES) == before  # nothing moves
    said = still.inner_text(f"{ROOT} .rv-lens-say")
    assert said.startswith("Shown with τ\u00a0=\u00a00.5. Exact up to pass ")
    assert f"pass {first + 1} accepted {len(steps[first].accepted)}" in said
    assert "estimate" in said
    guess = still.locator(f"{TEXT} .rv-guess").first
    hatch = "n => getComputedStyle(n).backgroundImage.includes('repeating-linear-gradient(135deg')"
    assert guess.evaluate(hatch)  # not only by colour
    still.click(f"{ROOT} .rv-lens-bar button")
    settle(still)
    assert still.locator(f"{TEXT}.rv-lens, {TEXT} .rv-guess, {TEXT} [data-l]").count() == 0
    assert still.locator(f"{ROOT} .rv-lens-bar").is_hidden()


def test_its_own_threshold_shows_a_run_as_it_was_written(still: playwright.Page) -> None:
    """Also where B auto and look-ups decided how much was drafted."""
    for name in ("bold", recordings.load()[0].name, "summary", "rewrite", "lossless"):
        made = recording(name)
        put(still, made.value)
        steps = [step for step, _ in folds.row_steps(made.traces()["mars"].events)]
        look(still, steps[0].settings.tau)
        assert still.evaluate(GROUPS) == [[len(step.accepted), False] for step in steps]
        assert "No group would change, so this is exact." in still.inner_text(
            f"{ROOT} .rv-lens-say"
        )


def test_in_a_lossless_run_the_lens_says_that_no_token_changes(still: playwright.Page) -> None:
    made = recording("lossless")
    put(still, made.value)
    text = still.locator(TEXT).evaluate("n => n.textContent")
    look(still, 0.99)
    said = still.inner_text(f"{ROOT} .rv-lens-say")
    assert "Lossless: τ does not change the text" in said
    assert "would draft" in said
    assert still.locator(TEXT).evaluate("n => n.textContent") == text
    written = folds.num_forwards(made.traces()["mars"].events)
    assert len(still.evaluate(GROUPS)) > written  # less is drafted, so it takes more forwards


def test_while_text_streams_there_is_no_lens(still: playwright.Page) -> None:
    for _ in stream(still, race_scenes.PROSE):
        look(still, 0.5)
        is_over = still.get_attribute(ROOT, "data-state") == "finished"
        assert still.locator(f"{ROOT} .rv-lens-bar").is_visible() == is_over
        assert (still.locator(f"{TEXT}.rv-lens").count() == 1) == is_over
    assert is_over
    put_scene(still, "plainar")
    look(still, 0.5)
    assert still.locator(f"{ROOT} .rv-lens-bar").is_hidden()


def test_the_sub_tab_and_the_lens_have_one_threshold(still: playwright.Page) -> None:
    put(still, recording("python").value)
    panel = open_panel(still, "whatif")
    slider = panel.locator(".rv-wi-knob input")
    slider.fill("0.5")
    settle(still)
    assert "τ\u00a0=\u00a00.5" in still.inner_text(f"{ROOT} .rv-lens-say")
    look(still, 0.7)
    assert slider.input_value() == "0.7"
    assert panel.locator("output").inner_text() == "0.7"
