"""What the panels say of groups of masks and of drafts found in the text, against the events."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from browser import needs_browser, playwright
from helpers import Ids, ScriptedModel, foresight_script, steps_of
from modules import evaluate, modules_page

from mars_runtime.acceptance import accept_prefix
from mars_runtime.decoders import decode
from mars_runtime.events import RowStep
from mars_runtime.settings import DecodeSettings
from mars_runtime.trace import Header, Trace

pytestmark = needs_browser
PROMPT = (3, 4, 5, 3, 4)
BOLD = DecodeSettings(
    tau=0.3, block_size=4, lossless=True, groups="every", lookup=True, max_new_tokens=60
)


@pytest.fixture(scope="module")
def page() -> Iterator[playwright.Page]:
    with modules_page() as made:
        yield made


@pytest.fixture(scope="module")
def trace() -> Trace:
    """A run with refused drafts, groups that went on behind them, and drafts from the text."""
    model = ScriptedModel(foresight_script(4, eos_share=0.0))
    events = list(decode(model, Ids(), [PROMPT], lambda: BOLD))
    header = Header("scripted", "Count.", PROMPT, BOLD)
    made = Trace.of(header, events, lambda token: f" t{token}".encode())
    steps = steps_of(events)
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
            is_draft = before is not None and before.drafts[place : place + 1] == (token,)
            who = "look-up in the text" if before and before.looked_up else "masks"
            wanted.append(f"by {who}, forward {number}" if is_draft else "")
    assert found == wanted
    assert {text.split(",")[0] for text in found} == {"", "by masks", "by look-up in the text"}
