"""Another τ: panel, lens and forwards judged again, in a browser and by mars_runtime.acceptance."""

from __future__ import annotations

import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright
from panel_browser import (
    VIEW,
    answer,
    asked,
    forwards,
    open_panel,
    put,
    recording,
    settle,
)
from race_browser import MARS, ROOT
from race_page import head, interleaved, value

from mars_runtime import folds
from mars_runtime.acceptance import accept_prefix
from mars_runtime.events import RowStep

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
