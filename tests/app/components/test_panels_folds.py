"""The numbers behind the panels, computed in a browser, against mars_runtime and by hand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright
from modules import evaluate, modules_page
from race_scenes import LOSSLESS, PROSE, without_checks

from mars_runtime import folds
from mars_runtime.settings import DecodeSettings
from mars_runtime.speedup import NOTES, run_speedup

pytestmark = needs_browser


@pytest.fixture(scope="module")
def page() -> Iterator[playwright.Page]:
    with modules_page() as made:
        yield made


ALIGN = """
const [first, second] = given.map((text) => text.split(" ").filter(Boolean));
return m.aligned(first, second).map(({ kind, a, b, num }) =>
  kind === "second" ? `+${second.slice(b, b + num).join(" ")}`
  : `${kind === "first" ? "-" : "="}${first.slice(a, a + num).join(" ")}`);
"""


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("a b c", "a b c", ["=a b c"]),
        ("a b c d", "a x c d", ["=a", "-b", "+x", "=c d"]),
        ("a b", "a b c d", ["=a b", "+c d"]),
        ("x a b", "a b", ["-x", "=a b"]),
        ("", "a", ["+a"]),
        ("a b c d e f", "c d q f", ["-a b", "=c d", "-e", "+q", "=f"]),
    ],
)
def test_short_texts_are_aligned_exactly(
    page: playwright.Page, first: str, second: str, expected: list[str]
) -> None:
    assert evaluate(page, "folds/diff.js", ALIGN, first, second) == expected


LONG = """
// A text with changes far apart: both lists must be put together again from the parts.
let seed = given[0];
const random = () => (seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648;
const first = Array.from({ length: 4000 }, () => Math.floor(random() * given[1]));
const changed = (value) => [[], [value, -1], [-2]][Math.floor(random() * 3)];
const second = first.flatMap((value) => (random() < 0.08 ? changed(value) : [value]));
const began = performance.now();
const segments = m.aligned(first, second);
const took = performance.now() - began;
const ofFirst = (s) => first.slice(s.a, s.a + s.num);
const ofSecond = (s) => second.slice(s.b, s.b + s.num);
const mine = segments.filter((s) => s.kind !== "second").flatMap(ofFirst);
const theirs = segments.filter((s) => s.kind !== "first").flatMap(ofSecond);
const shared = segments.filter((s) => s.kind === "both");
return { isWhole: String(mine) === String(first) && String(theirs) === String(second), took,
  isTrue: shared.every((s) => String(ofFirst(s)) === String(ofSecond(s))),
  share: shared.reduce((sum, s) => sum + s.num, 0) / first.length };
"""


@pytest.mark.parametrize("variety", [2000, 40, 2])
def test_long_texts_are_aligned_in_bounded_time(page: playwright.Page, variety: int) -> None:
    result = evaluate(page, "folds/diff.js", LONG, 7, variety)
    assert result["isWhole"]
    assert result["isTrue"]
    if variety > 2:
        assert result["share"] > 0.85
    assert result["took"] < 1500  # seconds if it were the whole table; a busy machine is slow


JUDGED = """
const lane = laneOf(given[0]);
const other = given[1] && laneOf(given[1], "ar");
const found = m.judge(lane, other);
return { ...found, judged: found.judged.map(({ place, ar, agrees }) => [place, ar.id, agrees]) };
"""


def test_tokens_are_judged_by_the_next_forward(page: playwright.Page) -> None:
    lines = samples.lanes(PROSE)
    rows = [row for row, _ in folds.row_steps(samples.read(lines["mars"]).events)]
    mine = [token for row in rows for token in row.accepted]
    checks = [
        [row.start - len(row.checks) + i, token, mine[row.start - len(row.checks) + i] == token]
        for row in rows
        for i, (token, _) in enumerate(row.checks)
    ]
    result = evaluate(page, "folds/agreement.js", JUDGED, lines["mars"], lines["ar"])
    assert (result["source"], result["judged"]) == ("checks", checks)
    assert result["own"] == len(rows)
    assert result["open"] == len(rows[-1].accepted) - 1
    assert result["agreed"] == sum(agrees for _, _, agrees in checks) < len(checks)


def test_a_check_is_not_known_before_the_forward_that_tells_it(page: playwright.Page) -> None:
    lines = samples.lanes(PROSE)["mars"]
    rows = [row for row, _ in folds.row_steps(samples.read(lines).events)]
    num = next(i for i, row in enumerate(rows) if len(row.accepted) > 2) + 1
    cut = "const lane = laneOf(given[0]).at(given[1]); return m.judge(lane, null).open;"
    assert evaluate(page, "folds/agreement.js", cut, lines, num) == len(rows[num - 1].accepted) - 1
    assert evaluate(page, "folds/agreement.js", cut, lines, num + 1) == len(rows[num].accepted) - 1


def test_without_checks_the_lane_of_ar_judges_up_to_where_the_texts_part(
    page: playwright.Page,
) -> None:
    lines = without_checks(samples.lanes(PROSE))
    rows = [row for row, _ in folds.row_steps(samples.read(lines["mars"]).events)]
    firsts = {row.start for row in rows}
    others = [place for place in range(sum(len(r.accepted) for r in rows)) if place not in firsts]
    alone = evaluate(page, "folds/agreement.js", JUDGED, lines["mars"], None)
    assert (alone["own"], alone["open"]) == (len(firsts), len(others))
    assert (alone["source"], alone["judged"]) == ("", [])
    by_lane = evaluate(page, "folds/agreement.js", JUDGED, lines["mars"], lines["ar"])
    part = PROSE.change[0]
    assert by_lane["source"] == "lane"
    assert [place for place, _, _ in by_lane["judged"]] == [p for p in others if p <= part]
    assert by_lane["agreed"] == len([p for p in others if p < part])


def test_lossless_tokens_are_ars_own_and_its_drafts_are_judged(page: playwright.Page) -> None:
    trace = samples.run(LOSSLESS)
    lines = samples.trace_lines(trace)
    result = evaluate(page, "folds/agreement.js", JUDGED, lines, None)
    assert (result["own"], result["open"]) == (folds.num_tokens(trace.events), 0)
    rows = [row for row, _ in folds.row_steps(trace.events)]
    expected = []
    for before, row in pairwise(rows):
        drafts = before.proposals[len(before.accepted) :][: before.num_drafted]
        for draft, token in zip(drafts, row.accepted, strict=False):
            expected.append([draft.confidence, draft.token == token])
            if draft.token != token:
                break
    pairs = evaluate(
        page,
        "folds/agreement.js",
        "return m.draftsJudged(laneOf(given[0])).map((d) => [d.confidence, d.agrees]);",
        lines,
    )
    assert pairs == expected
    assert {agrees for _, agrees in pairs} == {True, False}


@pytest.mark.parametrize("script", [PROSE, LOSSLESS])
def test_the_cache_of_each_forward(page: playwright.Page, script: samples.Script) -> None:
    trace = samples.run(script)
    states, slots = evaluate(
        page,
        "folds/slots.js",
        """const lane = laneOf(given[0]);
        const each = (fold) => lane.steps.map((_, i) => fold(lane, i, 5));
        return [each(m.cacheAt), each(m.slotsAt)];""",
        samples.trace_lines(trace),
    )
    rows = [row for row, _ in folds.row_steps(trace.events)]
    mine = folds.accepted_tokens(trace.events)
    for row, after, state, drawn in zip(rows, [*rows[1:], None], states, slots, strict=True):
        assert state["prompt"] + state["output"] == row.cursor
        assert state["pending"] + state["drafts"] == row.num_pending
        assert state["used"] == row.cursor + row.num_fed
        assert state["cursor"] + state["pending"] == samples.NUM_PROMPT + row.start
        if after:
            assert state["after"] == after.cursor
        assert [slot["slot"] for slot in drawn] == list(
            range(max(0, row.cursor - 5), row.cursor + row.num_fed)
        )
        for slot in drawn:
            if slot["state"] in ("final", "pending") and slot["slot"] >= samples.NUM_PROMPT:
                assert slot["id"] == mine[slot["slot"] - samples.NUM_PROMPT]
        assert [slot["state"] for slot in drawn].count("mask") == state["masks"]
        said = [slot["proposal"][0] for slot in drawn if slot["proposal"]]
        assert said == [p.token for p in row.proposals[: len(said)]]
        assert sum(slot["isTaken"] for slot in drawn) == min(len(said), len(row.accepted))


def said(page: playwright.Page, body: str, *given: object) -> dict[str, Any]:
    """What ``m.laneSpeedup`` finds, with its words."""
    whole = f"const found = {body}; return {{ ...found, text: m.speedupText(found), "
    remark = "range: m.speedupRange(found), remark: m.speedupRemark(found) };"
    result: dict[str, Any] = evaluate(page, "core/speedup.js", whole + remark, *given)
    return result


def lanes(page: playwright.Page, mars: list[str], plain: list[str]) -> dict[str, Any]:
    return said(page, 'm.laneSpeedup(laneOf(given[0]), laneOf(given[1], "ar"))', mars, plain)


def test_of_a_race_it_is_the_ratio_of_the_runtime(page: playwright.Page) -> None:
    mars, plain = samples.lanes(race_scenes.PROSE).values()
    actual = lanes(page, mars, plain)
    events = [samples.read(lines).events for lines in (mars, plain)]
    assert actual["kind"] == "faster"
    assert actual["ratio"] == pytest.approx(run_speedup(*events).ratio)


def test_more_than_the_forwards_saved_can_bring_is_a_disturbance(page: playwright.Page) -> None:
    """One token per forward cannot be 1.3 times as fast, however steady the clocks were."""
    first_settings = DecodeSettings(tau=1.0, block_size=1)
    mars = samples.trace_lines(samples.run(samples.Script(samples.PROSE, first_settings)))
    slow = samples.Script(samples.PROSE, first_settings, forward_seconds=0.0066)
    plain = samples.lanes(slow)["ar"]
    actual = lanes(page, mars, plain)
    assert (actual["kind"], actual["text"]) == ("busy", "not measured")
    assert (actual["range"], actual["remark"]) == ("", NOTES["busy"])


def test_reading_the_prompt_does_not_count(page: playwright.Page) -> None:
    mars, plain = samples.lanes(race_scenes.PROSE).values()
    before = lanes(page, mars, plain)
    slower = [line.replace('"seconds":0.004', '"seconds":4.0') for line in mars]
    assert slower != mars
    assert lanes(page, slower, plain) == before


def test_one_forward_back_moves_mars_and_forward_comes_back(page: playwright.Page) -> None:
    """Also where plain AR went on for longer, as it does nearly always."""
    mars, plain = samples.lanes(race_scenes.PROSE).values()
    body = """
  const run = { lanes: [laneOf(given[0]), laneOf(given[1], "ar")] };
  const { CLOCKS } = await import("/core/clocks.js");
  const playhead = new m.Playhead(run, CLOCKS.seconds);
  const places = [];
  for (const act of ["previous", "next"]) {
    for (let i = 0; i < 6; i += 1) {
      playhead[act]();
      places.push(run.lanes.map((lane) => playhead.shown(lane)));
    }
  }
  playhead.next();
  const isOver = playhead.isFollowing;
  while (playhead.time > 0) playhead.previous();
  return { places, isOver, first: playhead.shown(run.lanes[0]) };"""
    result = evaluate(page, "core/playhead.js", body, mars, plain)
    num = folds.num_forwards(samples.read(mars).events)
    at = [place for place, _ in result["places"]]
    assert at == [num - 1 - i for i in range(6)] + [num - 5 + i for i in range(6)]
    others = [place for _, place in result["places"]]
    assert others[:6] == sorted(others[:6], reverse=True)
    assert (result["isOver"], result["first"]) == (True, 0)
