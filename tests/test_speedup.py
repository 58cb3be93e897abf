"""The speedup function on generated cases, on which the page's rule is tested too
(``tests/web/speedup.test.js``). ``python -m tests.test_speedup`` rewrites them."""

from __future__ import annotations

import json
import math
import random
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from mars_runtime.runs.events import End, Event, Prefill, RowStep, Step
from mars_runtime.runs.speedup import (
    LIMIT_TOLERANCE,
    NEAR_RATIO,
    Rounds,
    Speedup,
    Timed,
    passes_result,
    repeated,
    run_speedup,
    speedup,
)
from mars_runtime.settings import DecodeSettings

FILE = Path(__file__).parent / "web" / "speedups.json"
NUM_CASES = 120


def cases() -> list[dict[str, Any]]:
    """Return pairs of runs of all kinds, with the totals that the page has and what is found."""
    rng = random.Random(17)
    return [_pair(rng) for _ in range(NUM_CASES)]


def _pair(rng: random.Random) -> dict[str, Any]:
    def run() -> Timed:
        num, shake = rng.choice([0, 1, 3, 20, 60, 90]), rng.choice([0.0, 0.05, 0.5])
        base = rng.choice([0.01, 0.02, 0.1])
        seconds = [round(base * (1 + shake * rng.random()), 6) for _ in range(num)]
        return Timed(num * rng.choice([1, 1, 2, 3]), seconds)

    first, other = run(), run()
    limit = rng.choice([None, 0.9, 1.0, 1.1, 1.5, 2.5])
    result = speedup(first, other, math.inf if limit is None else limit)
    return {"one": _told(first), "other": _told(other), "limit": limit, "found": _plain(result)}


def _told(run: Timed) -> dict[str, Any]:
    spread = None if math.isnan(run.spread) else run.spread
    return {"tokens": run.tokens, "seconds": sum(run.seconds), "spread": spread}


def _plain(actual: Speedup) -> dict[str, Any]:
    """What is compared: the kind, and the numbers that may be shown."""
    shown = actual.kind not in ("none", "short", "busy")
    numbers = (actual.ratio, actual.low, actual.high) if shown else ()
    return {"kind": actual.kind, "numbers": [round(number, 9) for number in numbers]}


def test_the_result_in_passes_has_the_words_of_the_page() -> None:
    for case in json.loads(FILE.with_name("results.json").read_text("utf-8")):
        names = ("tokens", "forwards", "baseline", "name", "differsAt")
        assert passes_result(*map(case.__getitem__, names)) == case["text"]


def test_the_committed_cases_are_those_of_this_function() -> None:
    committed = json.loads(FILE.read_text("utf-8"))
    assert committed == json.loads(json.dumps(cases()))
    assert {case["found"]["kind"] for case in committed} == {
        "none", "short", "busy", "faster", "slower", "same",
    }  # fmt: skip


@pytest.mark.parametrize("limit", [0.8, 1.0, 1.12, 1.5, 3.0])
@pytest.mark.parametrize("share", [0.5, 0.9, 1.0, 1.01, 1.03, 1.09, 1.2, 4.0])
def test_no_ratio_above_the_passes_saved_is_reported(limit: float, share: float) -> None:
    """Neither from one pair of runs nor from rounds, for any times; nor as an end of the range."""
    ratio = share * limit
    steady = Timed(100, [0.1] * 100)
    pair = speedup(Timed(100, [0.1 / ratio] * 100), steady, limit)
    rounds = repeated([(ratio, limit)] * 3)
    for actual in (pair, rounds):
        if actual.kind == "busy":
            assert actual.reported is None
            assert ratio > LIMIT_TOLERANCE * limit
        else:
            assert actual.low <= actual.ratio <= actual.high <= limit
            assert share <= NEAR_RATIO
        if actual.reported is not None:
            assert not round(actual.low, 2) <= 1 <= round(actual.high, 2)


STEADY = [0.1] * 8
SHAKY = [0.05, 0.2, 0.06, 0.3, 0.04, 0.1, 0.25, 0.08]


@pytest.mark.parametrize(
    ("one", "other", "kind", "ratio"),
    [
        ((64, STEADY), (32, STEADY), "faster", 2.0),
        ((32, STEADY), (64, STEADY), "slower", 0.5),
        ((64, STEADY), (64, STEADY), "same", 1.0),
        ((256, STEADY), (32, SHAKY), "faster", 10.8),
        ((19, STEADY), (64, STEADY), "short", math.nan),
        ((64, [0.5]), (64, STEADY), "short", math.nan),
        ((0, []), (64, STEADY), "none", math.nan),
    ],
)
def test_by_hand(one: tuple[int, Any], other: tuple[int, Any], kind: str, ratio: float) -> None:
    result = speedup(Timed(*one), Timed(*other))
    assert (result.kind, result.ratio) == (kind, pytest.approx(ratio, nan_ok=True))


def passes(groups: list[range], seconds: float, settings: DecodeSettings) -> list[Event]:
    starts = accumulate(map(len, groups), initial=0)
    rows = [
        RowStep(0, start, 0, 1, len(group), (), tuple(group), 0, settings, "block")
        for start, group in zip(starts, groups, strict=False)
    ]
    return [Prefill(10, 5.0), *(Step((row,), seconds) for row in rows), End("limit")]


def run_of(per_pass: int, num: int, seconds: float, settings: DecodeSettings) -> list[Event]:
    groups = [range(at, at + per_pass) for at in range(0, per_pass * num, per_pass)]
    return passes(groups, seconds, settings)


def test_of_two_runs_the_prompt_is_left_out_and_the_passes_saved_are_the_limit() -> None:
    ar, mars = DecodeSettings("ar", tau=1.0, block_size=1), DecodeSettings()
    other = run_of(1, 40, 0.1, ar)
    assert run_speedup(run_of(2, 20, 0.125, mars), other).ratio == pytest.approx(1.6)
    busy = run_speedup(run_of(2, 20, 0.08, mars), other)
    assert (busy.kind, busy.reported) == ("busy", None)
    assert run_speedup(run_of(1, 19, 0.1, mars)[:-1], other).kind == "short"
    assert run_speedup(other, run_of(1, 40, 0.0, ar)).kind == "none"
    steady = run_of(2, 20, 0.125, mars)
    cut = [steady[0], *run_of(1, 40, 0.1, mars)[2:]]
    assert (run_speedup(cut, other).kind, run_speedup(cut, other).reported) == ("different", None)
    # There is no such limit if a method's passes cost more than one of AR's.
    assert run_speedup(run_of(2, 20, 0.08, mars), run_of(1, 40, 0.1, mars)).ratio > 2.4


def test_a_loop_neither_makes_a_run_faster_nor_raises_its_limit() -> None:
    """25 tokens, two a pass against one a pass, then a token 80 times in a single pass."""
    again = range(99, 100)
    pairs, single = ([range(at, at + count) for at in range(0, 24, count)] for count in (2, 1))
    first = passes([*pairs, again, *[again] * 80], 0.1, DecodeSettings())
    other = passes([*single, *[again] * 81], 0.1, DecodeSettings("ar", tau=1.0, block_size=1))
    rounds = Rounds()
    rounds.add(first, other)
    for result in (run_speedup(first, other), rounds.speedup):
        assert (result.limit, result.ratio) == pytest.approx((25 / 13, 25 / 13))


if __name__ == "__main__":
    FILE.write_text("\n".join(["[", ",\n".join(map(json.dumps, cases())), "]", ""]), "utf-8")
