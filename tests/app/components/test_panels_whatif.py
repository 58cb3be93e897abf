"""The panel "Another τ" in a browser: recorded, live, lossless, by keyboard, and run for real."""

from __future__ import annotations

import pytest
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
    put_scene,
    recording,
    settle,
)
from race_browser import MARS, ROOT, Show, play
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


def judged_again(steps: list[RowStep], tau: float) -> list[tuple[str, str]]:
    """What the cells should show, by the runtime's rule."""
    counts = [accept_prefix([each.confidence for each in step.proposals], tau) for step in steps]
    pairs = [(len(step.accepted), now) for step, now in zip(steps, counts, strict=True)]
    return [(str(then), "" if now == then else str(now)) for then, now in pairs]


def test_a_recorded_run_is_judged_forward_by_forward(still: playwright.Page) -> None:
    page = still
    panel = open_panel(page, "whatif")
    made = recording("tau-moved")
    put(page, made.value)
    set_tau(page, 0.8)
    steps = forwards(made)
    expected = judged_again(steps, 0.8)
    found = cells(panel)
    assert found[:-1] == expected[:-1]  # the last one also ends at the end of the text
    first = next(i for i, (_, now) in enumerate(expected) if now)
    marked = panel.locator(".rv-wi-strip .rv-wi-first")
    assert marked.count() == 1
    assert (
        panel.locator(".rv-wi-strip .rv-wi-cell")
        .nth(first)
        .evaluate("node => node.classList.contains('rv-wi-first')")
    )
    text = panel.inner_text()
    assert f"Forward {first + 1} is the first that differs" in text
    exact = panel.locator(".rv-wi-table tbody tr").first
    num = sum(len(step.accepted) for step in steps[:first])
    now = (num + int(expected[first][1])) / (first + 1)
    assert "exact" in exact.inner_text()
    assert exact.locator("td").last.inner_text() == f"{now:.2f}"
    assert "≈" in panel.locator(".rv-wi-table tbody tr").nth(1).inner_text()
    assert panel.locator(".rv-wi-run").is_hidden()  # nobody answers on this page


def test_the_same_threshold_changes_nothing_and_another_can_be_run(still: playwright.Page) -> None:
    page = still
    answer(page, ["run"])
    panel = open_panel(page, "whatif")
    made = recording("sorting")
    put(page, made.value)
    expected = judged_again(forwards(made), 0.8)
    first = next(i for i, (_, now) in enumerate(expected) if now)
    set_tau(page, 0.95)
    assert "would be this one, exactly" in panel.inner_text()
    assert not any(now for _, now in cells(panel))
    slider = panel.locator(".rv-wi-knob input")
    slider.focus()
    for _ in range(15):
        page.keyboard.press("ArrowLeft")
    settle(page)
    assert panel.locator(".rv-wi-knob output").inner_text() == "0.8"
    assert f"Forward {first + 1} is the first that differs" in panel.inner_text()
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
    said = f"Forward {first + 1} took {then}; τ 0.8 would take {now}"
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
    play(page, "stream", "running")
    page.wait_for_selector(".rv-wi-strip .rv-wi-cell")
    page.evaluate("window.kept = document.querySelector('.rv-wi-strip .rv-wi-cell')")
    page.wait_for_selector(f"{ROOT}[data-state=finished]")
    page.wait_for_function("document.querySelectorAll('.rv-wi-strip .rv-wi-cell').length === 69")
    assert page.evaluate("window.kept === document.querySelector('.rv-wi-strip .rv-wi-cell')")
    steps = [step for step, _ in folds.row_steps(samples.run(race_scenes.PROSE).events)]
    assert [then for then, _ in cells(panel)] == [str(len(step.accepted)) for step in steps]


def test_lossless_runs_speak_of_drafts_and_plain_ar_of_nothing(still: playwright.Page) -> None:
    page = still
    panel = open_panel(page, "whatif")
    made = recording("lossless")
    put(page, made.value)
    steps = forwards(made)
    assert "changes no token of the text" in panel.inner_text()
    assert [then for then, _ in cells(panel)] == [str(step.num_drafted) for step in steps]
    lines = samples.lanes(race_scenes.PROSE)["ar"]
    put(page, value(head("only-ar", {"ar": "plain AR"}), interleaved({"ar": lines})).whole())
    assert "one token per forward" in panel.inner_text()
    assert panel.locator(".rv-wi-body").is_hidden()


@pytest.mark.parametrize(
    ("scene", "said"),
    [("prose", "AR would have chosen otherwise at"), ("uncheckedalone", "not known")],
)
def test_what_ar_would_have_chosen_is_told_or_said_to_be_unknown(
    still: playwright.Page, scene: str, said: str
) -> None:
    """Runs by captured steps hold no checks."""
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
    assert panel.locator(".rv-wi-detail").inner_text().startswith("Forward 1 took")
    still.keyboard.press("End")
    assert panel.locator(".rv-wi-detail").inner_text().startswith(f"Forward {num:,} took")
    at = panel.locator(".rv-wi-strip .rv-wi-at")
    strip, cell = panel.locator(".rv-wi-strip").bounding_box(), at.bounding_box()
    assert strip["y"] <= cell["y"]
    assert cell["y"] + cell["height"] <= strip["y"] + strip["height"]
    assert panel.locator(".rv-wi-strip .rv-wi-cell").count() < num / 2
