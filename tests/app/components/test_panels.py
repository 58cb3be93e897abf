"""The panels "Cache", "Statistics" and "Against AR" as a visitor uses them."""

from __future__ import annotations

from collections import Counter

import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright
from panel_browser import VIEW, all_texts, go_to, open_at, put, put_scene, rows_of, stream
from race_browser import MARS
from race_page import head, value

from mars_runtime import folds
from mars_runtime.events import End, Prefill, Proposal, RowStep, Step
from mars_runtime.settings import DecodeSettings
from mars_runtime.trace import Header, Trace
from tests import trace_folds

pytestmark = needs_browser
ROWS = rows_of(race_scenes.PROSE)
WRITTEN = [token for row in ROWS for token in row.accepted]
CHECKS = [
    (row.start - len(row.checks) + i, token)
    for row in ROWS
    for i, (token, _) in enumerate(row.checks)
]
"""(place, what AR would have chosen there) of every checked token of PROSE."""
WRONG = [place for place, token in CHECKS if WRITTEN[place] != token]


def wait_for(page: playwright.Page, selector: str, condition: str) -> None:
    """Until what is there is drawn so."""
    page.wait_for_function(f"document.querySelector('{selector}')?.{condition}")


def test_the_slots_of_the_shown_and_of_a_chosen_forward(still: playwright.Page) -> None:
    page = still
    put_scene(page, "prose")
    panel = open_at(page, "cache")
    slots = f"{panel} .rv-ca-slots .rv-ca-slot"
    for index in (len(ROWS) - 1, 20):
        row = ROWS[index]
        states = page.eval_on_selector_all(slots, "nodes => nodes.map((n) => n.dataset.state)")
        assert states.count("pending") == row.num_pending
        assert states.count("mask") == row.num_fed - row.num_pending
        assert all_texts(page, f"{panel} .rv-ca-cursor") == [f"cursor {row.cursor}"]
        numbers = page.inner_text(f"{panel} .rv-ca-numbers")
        output = row.cursor - samples.NUM_PROMPT
        assert f"{row.cursor} (prompt {samples.NUM_PROMPT}, output {output})" in numbers
        assert f"Pass {index + 1} of MARS" in page.inner_text(f"{panel} .rv-ca-head")
        page.evaluate(f"{VIEW}.choose({VIEW}.run.lanes[0], 20)")
        wait_for(page, f"{panel} .rv-fc-at", "title.startsWith('pass 21')")
    assert "1.54 kB each" in page.inner_text(f"{panel} .rv-ca-numbers")
    page.focus(f"{panel} .rv-ca-slots")
    page.keyboard.press("End")
    said = page.inner_text(f"{panel} .rv-ca-say")
    assert said.startswith(f"Slot {ROWS[20].cursor + ROWS[20].num_fed - 1}: mask, overwritten")
    assert "predicts" in said


def test_a_column_chooses_its_forward_by_mouse_and_keyboard(still: playwright.Page) -> None:
    page = still
    put_scene(page, "prose")
    panel = open_at(page, "cache")
    columns = page.locator(f"{panel} .rv-fc-column")
    assert columns.count() == 60
    columns.nth(4).click()
    chosen = page.evaluate(f"{VIEW}.selected.step")
    assert chosen == len(ROWS) - 60 + 4
    page.focus(f"{panel} .rv-fc-columns")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(f"{VIEW}.selected.step") == chosen + 1
    wait_for(page, f"{panel} [role=slider]", f"ariaValueNow === '{chosen + 2}'")
    page.keyboard.press("Home")
    wait_for(page, f"{panel} .rv-ca-cursor", "textContent === 'cursor 12'")
    moved = f"""() => {{  // within one frame, so nothing is drawn between the two
        const columns = document.querySelector("{panel} .rv-fc-columns");
        columns.children[4].click();
        const chosen = {VIEW}.selected.step;
        columns.dispatchEvent(new KeyboardEvent("keydown", {{ key: "ArrowRight" }}));
        return {VIEW}.selected.step - chosen;
    }}"""
    assert page.evaluate(moved) == 1


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


def test_drafts_commits_streams_and_plain_ar_in_the_cache(still: playwright.Page) -> None:
    page = still
    put_scene(page, "lossless")
    panel = open_at(page, "cache")
    page.wait_for_selector(f"{panel} .rv-ca-slots .rv-ca-slot[data-state=draft]")
    assert "drafts to verify" in page.inner_text(f"{panel} .rv-ca-numbers")
    for _ in stream(page, race_scenes.PROSE):
        pass
    wait_for(page, f"{panel} .rv-ca-cursor", f"textContent === 'cursor {ROWS[-1].cursor}'")
    put_scene(page, "plainar")
    assert "of plain AR" in page.inner_text(f"{panel} .rv-ca-head")
    lines = [("mars", line) for line in samples.trace_lines(block_trace())]
    put(page, value(head("blocks", {"mars": "MARS"}), lines).whole())
    page.wait_for_selector(f"{panel} .rv-fc-commit")
    kinds = page.eval_on_selector_all(
        f"{panel} .rv-fc-column", "nodes => nodes.map((n) => n.classList.contains('rv-fc-commit'))"
    )
    assert kinds == [True, False, False, True]
    text = page.inner_text(f"{panel} .rv-ca-head")
    assert "commits the block: all 3 tokens become final" in text
    numbers = page.inner_text(f"{panel} .rv-ca-numbers")
    assert "9.00 kB reserved" in numbers
    assert "does not report the size of a slot" in numbers
    page.locator(f"{panel} .rv-fc-column").nth(2).click()
    wait_for(page, f"{panel} .rv-ca-head", "textContent.includes('is being filled')")


def picture(panel: str, name: str) -> str:
    """Where a picture is."""
    return f'{panel} [data-picture="{name}"]'


def check_counts(page: playwright.Page, panel: str, rows: list[RowStep]) -> None:
    """The first two pictures are the folds of these forwards."""
    events = [Step((row,)) for row in rows]
    shares = trace_folds.acceptance_by_position(events)
    shown = all_texts(page, f"{picture(panel, 'positions')} .rv-pic-top")
    assert shown == [str(int(100 * share + 0.5)) for share in shares]
    counts = trace_folds.tokens_per_forward_counts(events)
    shown = all_texts(page, f"{picture(panel, 'counts')} .rv-pic-top")
    assert shown == [str(counts.get(number, 0)) for number in range(1, max(counts) + 1)]
    table = page.locator(f"{picture(panel, 'counts')} table tbody tr")
    assert table.count() == max(counts)
    said = page.inner_text(f"{picture(panel, 'counts')} .rv-pic-say")
    assert f"{folds.tpf(events):.2f} on average" in said


def test_the_pictures_are_the_folds_of_what_is_shown_and_keys_read_them(
    still: playwright.Page,
) -> None:
    page = still
    values = stream(page, race_scenes.PROSE)
    for _ in range(4):
        next(values)
    panel = open_at(page, "statistics")
    page.evaluate("window.bar = document.querySelector('[data-picture=counts] .rv-pic-bar')")
    for _ in values:
        pass
    assert page.evaluate("window.bar.isConnected")  # bars are moved, not made again
    check_counts(page, panel, ROWS)
    bins = all_texts(page, f"{picture(panel, 'calibration')} .rv-pic-sub")
    assert sum(map(int, bins)) == len(CHECKS)
    agreed = page.inner_text(f"{picture(panel, 'calibration')} .rv-pic-say")
    right = len(CHECKS) - len(WRONG)
    assert agreed.startswith(f"AR would have chosen {right} of {len(CHECKS)} tokens")
    kinds = all_texts(page, f"{picture(panel, 'kinds')} td")
    numbers = Counter(dict(zip(("words", "numbers", "punctuation"), kinds, strict=False)))
    assert numbers["numbers"] == "none"
    plot = f"{picture(panel, 'positions')} .rv-pic-bars"
    page.focus(plot)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    proposed = sum(len(row.proposals) > 1 for row in ROWS)
    emitted = sum(len(row.accepted) > 1 for row in ROWS)
    said = page.inner_text(f"{picture(panel, 'positions')} .rv-pic-say")
    assert said.startswith(f"Position 2: accepted in {emitted} of {proposed} passes")
    page.keyboard.press("Escape")
    said = page.inner_text(f"{picture(panel, 'positions')} .rv-pic-say")
    assert said.startswith("Share of passes in which the proposal")
    page.hover(f"{picture(panel, 'counts')} .rv-pic-bar >> nth=0")
    assert "wrote 1 token." in page.inner_text(f"{picture(panel, 'counts')} .rv-pic-say")
    page.mouse.move(0, 0)  # or the next test would begin on a bar
    go_to(page, 11)
    check_counts(page, panel, ROWS[:12])


def test_one_sentence_where_nothing_can_be_said(still: playwright.Page) -> None:
    page = still
    statistics, against = (open_at(page, name) for name in ("statistics", "against-ar"))
    calibration = picture(statistics, "calibration")
    said, none = f"{calibration} .rv-pic-say", f"{calibration} .rv-pic-none"
    meter, detail = f"{against} .rv-ag-head", f"{against} .rv-ag-detail"
    for scene, there, sentence, meant, other in (
        ("uncheckedalone", none, "does not contain AR's choices", meter, "does not contain"),
        ("unchecked", said, "up to the first difference", detail, "after the first difference"),
        ("plainar", none, "AR's own choice", meter, "is plain AR"),
        ("losslessdone", said, "tokens and drafts", meter, "by construction"),
    ):
        put_scene(page, scene)
        open_at(page, "statistics")
        assert sentence in page.inner_text(there), scene
        open_at(page, "against-ar")
        assert other in page.inner_text(meant), scene
    assert page.locator(f"{against} .rv-ag-bar").is_hidden()
    assert "Where AR corrected a draft" in page.inner_text(f"{against} .rv-ag-left h4")
    assert page.locator(f"{against} .rv-ag-list li").count() >= 1
    assert "Same text" in page.inner_text(f"{against} .rv-ag-right h4 >> nth=0")
    page.locator(f"{against} .rv-df").wait_for(state="hidden")  # drawn after the rest


def test_the_meter_counts_what_the_next_forward_said(still: playwright.Page) -> None:
    page = still
    put_scene(page, "prose")
    panel = open_at(page, "against-ar")
    known = len(ROWS) + len(CHECKS)
    share = 100 * (known - len(WRONG)) / known
    head = page.inner_text(f"{panel} .rv-ag-head")
    assert head.startswith(f"{share:.1f} % of {known} compared tokens")
    detail = page.inner_text(f"{panel} .rv-ag-detail")
    assert f"{len(ROWS)} AR's own" in detail
    assert f"{len(CHECKS) - len(WRONG)} of {len(CHECKS)} others agree" in detail
    items = all_texts(page, f"{panel} .rv-ag-where")
    assert items == [f"token {place + 1}" for place in WRONG]
    page.click(f"{panel} .rv-ag-list button >> nth=2")
    step = next(i for i, row in enumerate(ROWS) if WRONG[2] < row.start + len(row.accepted))
    assert page.evaluate(f"{VIEW}.selected.step") == step
    assert page.locator(f"{MARS} .rv-c.rv-chosen").count() == 1
    page.keyboard.press("Escape")
    go_to(page, 5)
    done = [check for row in ROWS[:6] for check in row.checks]
    assert f"of {6 + len(done)} compared tokens" in page.inner_text(f"{panel} .rv-ag-head")


def test_both_texts_are_aligned_around_the_place_where_they_part(still: playwright.Page) -> None:
    page = still
    put_scene(page, "hostile")
    panel = open_at(page, "against-ar")
    assert page.locator(f"{panel} :is(script, img)").count() == 0
    details = []
    for _ in stream(page, race_scenes.PROSE):
        details.append(page.inner_text(f"{panel} .rv-ag-detail"))
    assert any(detail.endswith("not compared yet") for detail in details)
    assert len(set(details)) > 3
    wait_for(page, ".rv-df h4", "textContent.endsWith('1 only in MARS, 1 only in AR')")
    place = race_scenes.PROSE.change[0]
    assert f"First difference at token {place + 1}" in page.inner_text(
        f"{panel} .rv-ag-right h4 >> nth=0"
    )
    assert all_texts(page, f"{panel} .rv-ag-place .rv-mark")[0] == "␣deep"
    summary = page.inner_text(f"{panel} .rv-df h4")
    assert summary.startswith(f"Aligned: {len(WRITTEN) - 1} tokens in both, ")
    assert all_texts(page, f"{panel} .rv-df-first") == ["MARS deep"]
    assert page.locator(f"{panel} .rv-df-second").count() == 1
    folded = page.locator(f"{panel} .rv-df-fold")
    before = folded.count()
    folded.first.click()
    assert folded.count() == before - 1
    assert page.inner_text(f"{panel} .rv-df-text").startswith("Once upon a time")
