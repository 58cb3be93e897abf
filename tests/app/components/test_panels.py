"""The panels "Cache" and "Statistics" as a visitor uses them, and what panels say of groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright
from helpers import Ids, ScriptedModel, foresight_script, steps_of
from modules import evaluate, modules_page
from panel_browser import VIEW, all_texts, go_to, open_at, put, put_scene, rows_of, stream
from race_page import head, value

from mars_runtime import folds
from mars_runtime.acceptance import accept_prefix
from mars_runtime.decoders import decode
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.events import End, Prefill, Proposal, RowStep, Step
from mars_runtime.settings import MAX_FED, DecodeSettings
from mars_runtime.trace import Header, Trace
from tests import trace_folds

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


def test_a_key_goes_on_from_a_column_chosen_in_the_same_frame(still: playwright.Page) -> None:
    """Nothing is drawn between the two: the key went on from the column that was still drawn."""
    page = still
    put_scene(page, "prose")
    panel = open_at(page, "cache")
    moved = f"""() => {{
        const columns = document.querySelector("{panel} .rv-fc-columns");
        columns.children[4].click();
        const chosen = {VIEW}.selected.step;
        columns.dispatchEvent(new KeyboardEvent("keydown", {{ key: "ArrowRight" }}));
        return {VIEW}.selected.step - chosen;
    }}"""
    assert page.evaluate(moved) == 1


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


def test_the_pictures_are_the_folds_of_what_is_shown(still: playwright.Page) -> None:
    page = still
    put_scene(page, "prose")
    panel = open_at(page, "statistics")
    rows = rows_of(race_scenes.PROSE)
    check_counts(page, panel, rows)
    judged = sum(len(row.checks) for row in rows)
    bins = all_texts(page, f"{picture(panel, 'calibration')} .rv-pic-sub")
    assert sum(map(int, bins)) == judged
    agreed = page.inner_text(f"{picture(panel, 'calibration')} .rv-pic-say")
    mine = [token for row in rows for token in row.accepted]
    right = sum(
        mine[row.start - len(row.checks) + i] == token
        for row in rows
        for i, (token, _) in enumerate(row.checks)
    )
    assert agreed.startswith(f"AR would have chosen {right} of {judged} tokens")
    kinds = all_texts(page, f"{picture(panel, 'kinds')} td")
    numbers = Counter(dict(zip(("words", "numbers", "punctuation"), kinds, strict=False)))
    assert numbers["numbers"] == "none"
    in_words = sum(any(c.isalpha() for c in text) for text in token_texts())
    assert f"({in_words} tokens)" in numbers["words"]
    go_to(page, 11)
    check_counts(page, panel, rows[:12])


def token_texts() -> list[str]:
    """The tokens of PROSE as text; pieces of a character stand with the last of them."""
    trace = samples.run(race_scenes.PROSE)
    texts, pieces = [], b""
    for token in folds.accepted_tokens(trace.events)[:-1]:
        pieces += trace.vocabulary[token]
        try:
            texts.append(pieces.decode())
            pieces = b""
        except UnicodeDecodeError:
            continue
    return texts


def test_arrow_keys_read_the_values(still: playwright.Page) -> None:
    page = still
    put_scene(page, "prose")
    panel = open_at(page, "statistics")
    plot = f"{picture(panel, 'positions')} .rv-pic-bars"
    page.focus(plot)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    rows = rows_of(race_scenes.PROSE)
    proposed = sum(len(row.proposals) > 1 for row in rows)
    emitted = sum(len(row.accepted) > 1 for row in rows)
    said = page.inner_text(f"{picture(panel, 'positions')} .rv-pic-say")
    assert said.startswith(f"Position 2: {emitted} of {proposed} forwards")
    page.keyboard.press("Escape")
    said = page.inner_text(f"{picture(panel, 'positions')} .rv-pic-say")
    assert said.startswith("Of the forwards that proposed")
    page.hover(f"{picture(panel, 'counts')} .rv-pic-bar >> nth=0")
    assert "took 1 token." in page.inner_text(f"{picture(panel, 'counts')} .rv-pic-say")
    page.mouse.move(0, 0)  # or the next test would begin on a bar


def test_streaming_updates_the_bars_that_are_there(still: playwright.Page) -> None:
    page = still
    values = stream(page, race_scenes.PROSE)
    for _ in range(4):
        next(values)
    panel = open_at(page, "statistics")
    page.evaluate("window.bar = document.querySelector('[data-picture=counts] .rv-pic-bar')")
    before = page.inner_text(f"{picture(panel, 'counts')} .rv-pic-say")
    for _ in values:
        pass
    assert page.evaluate("window.bar.isConnected")
    assert page.inner_text(f"{picture(panel, 'counts')} .rv-pic-say") != before
    check_counts(page, panel, rows_of(race_scenes.PROSE))


def test_one_sentence_where_nothing_can_be_said(still: playwright.Page) -> None:
    page = still
    put_scene(page, "uncheckedalone")
    panel = open_at(page, "statistics")
    none = f"{picture(panel, 'calibration')} .rv-pic-none"
    assert "does not tell what AR would have chosen" in page.inner_text(none)
    put_scene(page, "unchecked")
    said = page.inner_text(f"{picture(panel, 'calibration')} .rv-pic-say")
    assert "up to the first difference" in said
    put_scene(page, "plainar")
    assert "AR's own choice" in page.inner_text(none)
    put_scene(page, "losslessdone")
    said = page.inner_text(f"{picture(panel, 'calibration')} .rv-pic-say")
    assert "tokens and drafts" in said


PROMPT = (3, 4, 5, 3, 4)
BOLD = DecodeSettings(
    tau=0.3, block_size=4, lossless=True, groups="every", lookup=True, max_new_tokens=60
)


@pytest.fixture(scope="module")
def page() -> Iterator[playwright.Page]:
    with modules_page() as made:
        yield made


COSTS = ForwardCosts(8, {1: tuple(1 + 0.06 * more for more in range(MAX_FED))})


@pytest.fixture(scope="module", params=["fixed", "chosen"])
def trace(request: pytest.FixtureRequest) -> Trace:
    """A run with refused drafts, groups that went on behind them, and drafts from the text; where
    B is chosen, with groups behind some tokens and not behind others."""
    is_chosen = request.param == "chosen"
    settings = replace(BOLD, tau=0.0, block_size="auto") if is_chosen else BOLD
    model = ScriptedModel(foresight_script(4, eos_share=0.0))
    events = list(decode(model, Ids(), [PROMPT], lambda: settings, costs=COSTS))
    header = Header("scripted", "Count.", PROMPT, settings)
    made = Trace.of(header, events, lambda token: f" t{token}".encode())
    steps = steps_of(events)
    assert any(0 in step.groups for step in steps) or not is_chosen
    assert any(step.looked_up for step in steps)
    assert any(step.stop == "mismatch" and step.num_drafted for step in steps)
    assert any(step.stop == "mismatch" and step.groups for step in steps)
    return made


def lines(trace: Trace) -> list[str]:
    return list(trace.lines())


def fates(before: RowStep | None, step: RowStep) -> list[str]:
    """By the words of ``RowStep``."""
    fed = before.drafts[: step.num_pending - 1] if before else ()
    found = []
    for place, proposal in enumerate(step.proposals):
        taken = len(step.accepted)
        if place < taken:
            is_draft = place < len(fed)
            agrees = is_draft and fed[place] == proposal.token
            found.append("confirmed" if agrees else "replaced" if is_draft else "own")
        elif step.stop in ("eos", "limit"):
            found.append("past")
        elif step.stop == "mismatch" and not (step.groups and step.groups[taken - 1]):
            found.append("dropped")
        elif step.looked_up:
            found.append("outbid")
        elif place < taken + step.num_drafted:
            found.append("drafted")
        else:
            found.append("refused" if place == taken + step.num_drafted else "unseen")
    return found


def test_what_became_of_every_proposal(page: playwright.Page, trace: Trace) -> None:
    body = """const lane = laneOf(given[0]);
    return lane.steps.map((_, i) => m.proposalRows(lane, i).map((row) => row.fate));"""
    found = evaluate(page, "folds/proposals.js", body, lines(trace))
    steps = steps_of(trace.events)
    assert found == [fates(*pair) for pair in pairwise([None, *steps])]


@pytest.mark.parametrize("trace", ["fixed"], indirect=True)  # else τ alone does not say it
@pytest.mark.parametrize("tau", [0.0, 0.3, 0.7, 1.0])
def test_another_threshold_drafts_another_number(
    page: playwright.Page, trace: Trace, tau: float
) -> None:
    body = "return m.whatIf(laneOf(given[0]), given[1], new Set()).cells;"
    cells = evaluate(page, "folds/whatif.js", body, lines(trace), tau)
    for cell, step in zip(cells, steps_of(trace.events), strict=True):
        assert cell["then"] == len(step.drafts)
        behind = step.proposals[len(step.accepted) - 1 :]
        masks = accept_prefix([proposal.confidence for proposal in behind], tau) - 1
        if step.stop == "limit" or (step.stop == "mismatch" and not step.groups):
            masks = 0
        assert cell["now"] == max(masks, len(step.looked_up))
        if tau == BOLD.tau:
            assert cell["now"] == cell["then"]


def test_slots_that_were_fed(page: playwright.Page, trace: Trace) -> None:
    body = """const lane = laneOf(given[0]);
    return lane.steps.map((_, i) => m.slotsAt(lane, i, 0));"""
    found = evaluate(page, "folds/slots.js", body, lines(trace))
    steps = steps_of(trace.events)
    for (before, step), slots in zip(pairwise([None, *steps]), found, strict=True):
        states = [slot["state"] for slot in slots]
        fed = before.drafts[: step.num_pending - 1] if before else ()
        assert states.count("pending") == step.num_pending - len(fed)
        assert [slot["id"] for slot in slots if slot["state"] == "draft"] == list(fed)
        masks = [slot for slot in slots if slot["state"] == "mask"]
        assert len(masks) == step.num_fed - step.num_pending
        if step.groups:
            sizes = [sum(mask["group"] == g for mask in masks) for g in range(len(step.groups))]
            assert tuple(sizes) == step.groups
            used = [mask["proposal"] for mask in masks if mask["proposal"]]
            behind = step.proposals[len(step.accepted) :]
            if step.stop != "limit" and step.groups[len(step.accepted) - 1]:
                assert [each[0] for each in used] == [proposal.token for proposal in behind]


def test_the_card_says_who_drafted_a_token(page: playwright.Page, trace: Trace) -> None:
    body = """const lane = laneOf(given[0]);
    return lane.tokens.map((token) => m.sourceText(lane, token));"""
    found = evaluate(page, "text/card.js", body, lines(trace))
    wanted: list[str] = []
    for number, (before, step) in enumerate(pairwise([None, *steps_of(trace.events)])):
        for place, token in enumerate(step.accepted):
            fed = before.drafts[: step.num_pending - 1] if before else ()
            is_draft = fed[place : place + 1] == (token,)
            who = "copied by look-up" if before and before.looked_up else "drafted by masks"
            wanted.append(f"{who}, forward {number}" if is_draft else "AR's own")
    assert found == wanted
    assert {text.split(",")[0] for text in found} == {
        *("AR's own", "drafted by masks", "copied by look-up")
    }
