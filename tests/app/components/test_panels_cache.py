"""The panel "Cache" as a visitor uses it: slots, numbers, columns, a run with the block cache."""

from __future__ import annotations

import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright
from panel_browser import VIEW, all_texts, open_at, put, put_scene, rows_of, stream
from race_page import head, value

from mars_runtime.events import End, Prefill, Proposal, RowStep, Step
from mars_runtime.settings import DecodeSettings
from mars_runtime.trace import Header, Trace

pytestmark = needs_browser


def wait_for(page: playwright.Page, selector: str, condition: str) -> None:
    """Until what is there is drawn so."""
    page.wait_for_function(f"document.querySelector('{selector}')?.{condition}")


def test_the_slots_of_the_shown_and_of_a_chosen_forward(still: playwright.Page) -> None:
    page = still
    put_scene(page, "prose")
    panel = open_at(page, "cache")
    rows = rows_of(race_scenes.PROSE)
    slots = f"{panel} .rv-ca-slots .rv-ca-slot"
    for index in (len(rows) - 1, 20):
        row = rows[index]
        states = page.eval_on_selector_all(slots, "nodes => nodes.map((n) => n.dataset.state)")
        assert states.count("pending") == row.num_pending
        assert states.count("mask") == row.num_fed - row.num_pending
        assert all_texts(page, f"{panel} .rv-ca-cursor") == [f"cursor {row.cursor}"]
        numbers = page.inner_text(f"{panel} .rv-ca-numbers")
        output = row.cursor - samples.NUM_PROMPT
        assert f"{row.cursor} (prompt {samples.NUM_PROMPT}, output {output})" in numbers
        assert f"Forward {index + 1} of MARS" in page.inner_text(f"{panel} .rv-ca-head")
        page.evaluate(f"{VIEW}.choose({VIEW}.run.lanes[0], 20)")
        page.wait_for_function(
            f"document.querySelector('{panel} .rv-fc-at')?.title.startsWith('forward 21')"
        )
    assert "1.54 kB each" in page.inner_text(f"{panel} .rv-ca-numbers")
    page.focus(f"{panel} .rv-ca-slots")
    page.keyboard.press("End")
    said = page.inner_text(f"{panel} .rv-ca-say")
    assert said.startswith(f"Slot {rows[20].cursor + rows[20].num_fed - 1}: mask, overwritten")
    assert "predicts" in said


def test_a_column_chooses_its_forward_by_mouse_and_keyboard(still: playwright.Page) -> None:
    page = still
    put_scene(page, "prose")
    panel = open_at(page, "cache")
    columns = page.locator(f"{panel} .rv-fc-column")
    num = len(rows_of(race_scenes.PROSE))
    assert columns.count() == min(60, num)
    columns.nth(4).click()
    chosen = page.evaluate(f"{VIEW}.selected.step")
    assert chosen == num - min(60, num) + 4
    page.focus(f"{panel} .rv-fc-columns")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(f"{VIEW}.selected.step") == chosen + 1
    wait_for(page, f"{panel} [role=slider]", f"ariaValueNow === '{chosen + 2}'")
    page.keyboard.press("Home")
    page.wait_for_function(f"{VIEW}.selected.step === 0")
    wait_for(page, f"{panel} .rv-ca-cursor", "textContent === 'cursor 12'")


def test_lossless_drafts_have_slots_of_their_own_and_streams_follow(
    still: playwright.Page,
) -> None:
    page = still
    put_scene(page, "lossless")
    panel = open_at(page, "cache")
    page.wait_for_selector(f"{panel} .rv-ca-slots .rv-ca-slot[data-state=draft]")
    assert "for AR to judge" in page.inner_text(f"{panel} .rv-ca-numbers")
    for _ in stream(page, race_scenes.PROSE):
        pass
    last = rows_of(race_scenes.PROSE)[-1]
    wait_for(page, f"{panel} .rv-ca-cursor", f"textContent === 'cursor {last.cursor}'")
    put_scene(page, "plainar")
    assert "of plain AR" in page.inner_text(f"{panel} .rv-ca-head")


def block_trace() -> Trace:
    """Two blocks of three tokens with the paper's cache: a commit, two fillings, a commit."""
    settings = DecodeSettings(block_size=2, max_new_tokens=6)

    def step(start: int, cursor: int, pending: int, fed: int, count: int) -> RowStep:
        proposals = tuple(Proposal(start + i, 0.99, ()) for i in range(count))
        taken = tuple(p.token for p in proposals)
        return RowStep(0, start, cursor, pending, fed, proposals, taken, 0, settings, "block")

    steps = [
        Step((step(0, 4, 1, 1, 1),), 0.01, is_commit=True),
        Step((step(1, 5, 1, 3, 1),), 0.01),
        Step((step(2, 5, 2, 3, 1),), 0.01),
        Step((step(3, 5, 3, 3, 1),), 0.01, is_commit=True),
    ]
    made = Header("c", "p", (1, 2, 3, 4, 5), settings)
    events = [Prefill(4, 0.01, 9000), *steps, End("limit")]
    return Trace.of(made, events, lambda token: b" %d" % token)


def test_a_block_cache_run_shows_commits_and_what_is_reserved(still: playwright.Page) -> None:
    page = still
    put_scene(page, "prose")
    lines = [("mars", line) for line in samples.trace_lines(block_trace())]
    put(page, value(head("blocks", {"mars": "MARS"}), lines).whole())
    panel = open_at(page, "cache")
    page.wait_for_selector(f"{panel} .rv-fc-commit")
    kinds = page.eval_on_selector_all(
        f"{panel} .rv-fc-column", "nodes => nodes.map((n) => n.classList.contains('rv-fc-commit'))"
    )
    assert kinds == [True, False, False, True]
    text = page.inner_text(f"{panel} .rv-ca-head")
    assert "commits the block: all 3 tokens become final" in text
    numbers = page.inner_text(f"{panel} .rv-ca-numbers")
    assert "9.00 kB reserved" in numbers
    assert "does not tell what a slot takes" in numbers
    page.locator(f"{panel} .rv-fc-column").nth(2).click()
    wait_for(page, f"{panel} .rv-ca-head", "textContent.includes('is being filled')")
