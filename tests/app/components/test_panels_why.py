"""The panel "Why here?" in a browser: live, held under the hand, recorded, branching, by keys."""

from __future__ import annotations

import pytest
import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright
from panel_browser import (
    answer,
    asked,
    choose,
    forwards,
    open_panel,
    put,
    recording,
    refused,
    settle,
)
from race_browser import MARS
from race_page import head, interleaved, value

from mars_runtime.settings import DecodeSettings

pytestmark = needs_browser


def rows(panel: playwright.Locator) -> list[dict[str, str]]:
    """Every row of the table: its cells' texts and its fate."""
    return panel.locator("tbody tr").evaluate_all(
        """nodes => nodes.map((tr) => ({ what: tr.dataset.fate, kind: tr.dataset.later,
          ...Object.fromEntries(
            [...tr.cells].map((c) => [c.classList[0].slice(6), c.textContent])) }))"""
    )


def test_a_recorded_run_says_what_became_of_every_proposal(still: playwright.Page) -> None:
    page = still
    panel = open_panel(page, "why")
    made = recording("sorting")
    put(page, made.value)
    index = refused(made, is_right=True)
    page.focus(f"{MARS} .rv-text")
    page.keyboard.press("Home")
    for _ in range(index):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    settle(page)
    step = forwards(made)[index]
    actual = rows(panel)
    count = len(step.accepted)
    fates = ["own", *["taken"] * (count - 1), "refused", *["unseen"] * (len(actual) - count - 1)]
    assert [row["what"] for row in actual] == fates
    assert [row["place"] for row in actual] == [str(step.start + i + 1) for i in range(len(actual))]
    widths = panel.locator(".rv-wh-track i").evaluate_all(
        "l => l.map((i) => parseFloat(i.style.width))"
    )
    assert widths == pytest.approx(
        [100 * proposal.confidence for proposal in step.proposals], abs=0.01
    )
    assert panel.locator("table").evaluate("t => t.style.getPropertyValue('--tau')") == "0.95"
    sentence = panel.locator(".rv-wh-say").inner_text()
    assert "was below τ" in sentence
    assert "proposals were right" in sentence
    assert actual[count]["later"] == f"✓ same token, pass {index + 2}"
    assert f"pass {index + 1} of" in panel.locator(".rv-wh-where").inner_text()
    page.keyboard.press("Escape")
    settle(page)
    last = len(forwards(made))
    assert f"pass {last} of {last}" in panel.inner_text()


def test_forwards_are_walked_by_keyboard_and_the_scale_is_that_of_the_metric(
    still: playwright.Page,
) -> None:
    page = still
    panel = open_panel(page, "why")
    script = samples.Script(samples.MATHS, DecodeSettings(tau=0.6, block_size=8, metric="margin"))
    made = value(head("walked", race_scenes.BOTH), interleaved(samples.lanes(script)))
    put(page, made.whole())
    assert panel.locator(".rv-wh-metric").inner_text() == "margin"
    assert panel.locator(".rv-wh-mark").inner_text() == "τ 0.6"
    choose(page, "mars", 0)
    previous, onward = panel.locator(".rv-wh-step").all()
    assert previous.is_disabled()
    onward.focus()
    page.keyboard.press("Enter")
    settle(page)
    assert "pass 2 of" in panel.inner_text()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    settle(page)
    assert "pass 1 of" in panel.inner_text()
    choose(page, "ar", 3)
    assert "plain AR" in panel.inner_text()
    assert len(rows(panel)) == 1
    assert panel.locator(".rv-wh-mark").count() == 0  # no threshold where there is none


def test_one_can_go_on_from_a_runner_up_or_a_refused_proposal(still: playwright.Page) -> None:
    page = still
    answer(page, ["branch"])
    panel = open_panel(page, "why")
    made = recording("sorting")
    put(page, made.value)
    index = refused(made, is_right=True)
    step = forwards(made)[index]
    choose(page, "mars", index)
    chip = panel.locator("tbody tr").first.locator("td button").first
    assert "Continue from token" in chip.get_attribute("aria-label")
    chip.focus()
    page.keyboard.press("Enter")
    runner_up = step.proposals[0].runners_up[0][0]
    assert asked(page) == [{"kind": "branch", "lane": "mars", "token": step.start, "id": runner_up}]
    # A proposal that the run wrote anyway offers no branch; one that it did not write does.
    row = panel.locator("tbody tr").nth(len(step.accepted))
    assert row.locator("th button").count() == 0
    index = refused(made, is_right=False)
    step = forwards(made)[index]
    choose(page, "mars", index)
    place = step.start + len(step.accepted)
    row = panel.locator("tbody tr").nth(len(step.accepted))
    row.locator("th button").click()
    proposal = step.proposals[len(step.accepted)].token
    assert asked(page)[1:] == [{"kind": "branch", "lane": "mars", "token": place, "id": proposal}]
    # There is no branch after the end.
    choose(page, "mars", len(forwards(made)) - 1)
    assert panel.locator("button code").filter(has_text="im_end").count() == 0
    page.keyboard.press("Escape")
    assert "continues from there" in panel.locator(".rv-wh-hint").inner_text()
