"""Judging recorded forwards again: in a browser, against mars_runtime.acceptance and by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import sample_traces as samples
from browser import needs_browser, playwright
from hand_runs import LOSSLESS_RUN, PLAIN_RUN
from modules import evaluate, modules_page
from race_scenes import CODE, PROSE

from app import recordings
from mars_runtime import folds
from mars_runtime.acceptance import accept_prefix, judge
from mars_runtime.trace import Trace

pytestmark = needs_browser
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
    return next(each for each in recordings.load() if each.name == name).traces()["mars"]


@pytest.mark.parametrize("tau", TAUS)
def test_every_forward_is_judged_as_the_runtime_would(page: playwright.Page, tau: float) -> None:
    traces = [samples.run(PROSE), samples.run(CODE)]
    traces += [recorded(name) for name in ("lossless", "word-problem", "tau-moved", "tale")]
    for trace in traces:
        found = what_if(page, samples.trace_lines(trace), tau)
        assert [cell["now"] for cell in found["cells"]] == judged_again(trace, tau)


def test_under_its_own_threshold_a_run_is_itself(page: playwright.Page) -> None:
    for name in ("lossless", "word-problem"):
        trace = recorded(name)
        steps = [step for step, _ in folds.row_steps(trace.events)]
        found = what_if(page, samples.trace_lines(trace), steps[0].settings.tau)
        assert found["first"] == -1
        num = folds.num_tokens(trace.events)
        assert found["whole"] == {"forwards": len(steps), "then": num, "now": num}
        assert found["exact"] == found["whole"]


def test_acceptance_is_that_of_the_runtime(page: playwright.Page) -> None:
    rows = [[], [0.1], [0.1, 0.9, 0.9], [0.9, 0.8, 0.8], [0.5, 0.79, 0.99], [1.0, 1.0, 1.0]]
    found = evaluate(
        page, "folds/whatif.js", "return given[0].map((r) => m.acceptPrefix(r, 0.8));", rows
    )
    assert found == [accept_prefix(row, 0.8) for row in rows] == [0, 1, 3, 3, 1, 3]
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
    found = what_if(page, PLAIN_RUN, tau)
    assert [cell["now"] for cell in found["cells"]] == now
    assert [cell["then"] for cell in found["cells"]] == [2, 1, 2, 2]
    assert found["first"] == first
    assert tuple(found["exact"].values()) == exact
    assert found["whole"] == {"forwards": 4, "then": 7, "now": whole}
    assert tuple(found["taken"][key] for key in ("num", "same", "other", "unknown")) == taken
    assert found["left"]["num"] == left
    assert found["drafts"] is None


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
