"""The one definition of a speedup, against numbers by hand and the runtime's folds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import race_scenes
import sample_traces as samples
from browser import needs_browser, playwright
from modules import evaluate, modules_page

from mars_runtime import folds
from mars_runtime.settings import DecodeSettings

pytestmark = needs_browser
STEADY = [0.1] * 8
SHAKY = [0.05, 0.2, 0.06, 0.3, 0.04, 0.1, 0.25, 0.08]


@pytest.fixture(scope="module")
def page() -> Iterator[playwright.Page]:
    with modules_page() as made:
        yield made


def said(page: playwright.Page, body: str, *given: object) -> dict[str, Any]:
    """What ``m.speedup`` or ``m.laneSpeedup`` finds, with its words."""
    whole = f"const found = {body}; return {{ ...found, text: m.speedupText(found), "
    remark = "remark: m.speedupRemark(found) };"
    found: dict[str, Any] = evaluate(page, "core/speedup.js", whole + remark, *given)
    return found


@pytest.mark.parametrize(
    ("one", "other", "kind", "text"),
    [
        ((64, STEADY), (32, STEADY), "faster", "2.00×"),
        ((32, STEADY), (64, STEADY), "slower", "0.50×"),
        ((64, STEADY), (64, STEADY), "same", "1.00×"),
        ((64, STEADY), (32, SHAKY), "noisy", "noisy"),
        ((19, STEADY), (64, STEADY), "short", "too short to time"),
        ((64, STEADY), (19, STEADY), "short", "too short to time"),
        ((64, [0.5]), (64, STEADY), "short", "too short to time"),
        ((0, []), (64, STEADY), "none", "–"),
    ],
)
def test_by_hand(page: playwright.Page, one: object, other: object, kind: str, text: str) -> None:
    body = "m.speedup(...given.map(([tokens, seconds]) => ({ tokens, seconds })))"
    found = said(page, body, one, other)
    assert (found["kind"], found["text"]) == (kind, text)


def test_the_range_holds_the_ratio_and_grows_with_the_spread(page: playwright.Page) -> None:
    body = "m.speedup(...given.map(([tokens, seconds]) => ({ tokens, seconds })))"
    spreads = []
    for shift in (0.001, 0.01, 0.02):
        seconds = [0.1 + shift * (-1) ** place for place in range(8)]
        found = said(page, body, (64, seconds), (32, STEADY))
        assert found["low"] < found["ratio"] < found["high"]
        assert f"{found['low']:.2f} to {found['high']:.2f} in repeats" == found["remark"]
        spreads.append(found["high"] / found["low"])
    assert spreads == sorted(spreads)


def lanes(page: playwright.Page, mars: list[str], plain: list[str]) -> dict[str, Any]:
    return said(page, 'm.laneSpeedup(laneOf(given[0]), laneOf(given[1], "ar"))', mars, plain)


def test_of_a_race_it_is_the_ratio_of_the_runtime(page: playwright.Page) -> None:
    mars, plain = samples.lanes(race_scenes.PROSE).values()
    found = lanes(page, mars, plain)
    events = [samples.read(lines).events for lines in (mars, plain)]
    assert found["kind"] == "faster"
    assert found["ratio"] == pytest.approx(folds.speedup(*events))


def test_more_than_the_forwards_saved_can_bring_is_noise(page: playwright.Page) -> None:
    """One token per forward cannot be 1.3 times as fast, however steady the clocks were."""
    one = DecodeSettings(tau=1.0, block_size=1)
    mars = samples.trace_lines(samples.run(samples.Script(samples.PROSE, one)))
    slow = samples.Script(samples.PROSE, one, forward_seconds=0.0066)
    plain = samples.lanes(slow)["ar"]
    found = lanes(page, mars, plain)
    assert found["ratio"] > 1.2
    assert found["kind"] == "noisy"
    assert "but only 1.00 times fewer forwards" in found["remark"]


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
  const playhead = new m.Playhead(run);
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
    found = evaluate(page, "core/playhead.js", body, mars, plain)
    num = folds.num_forwards(samples.read(mars).events)
    at = [place for place, _ in found["places"]]
    assert at == [num - 1 - i for i in range(6)] + [num - 5 + i for i in range(6)]
    others = [place for _, place in found["places"]]
    assert others[:6] == sorted(others[:6], reverse=True)
    assert (found["isOver"], found["first"]) == (True, 0)
