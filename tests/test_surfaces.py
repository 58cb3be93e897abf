"""Headline, lane head, charts, export and Python's folds agree on the figures of a run."""

from __future__ import annotations

import json
import math
import re
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import mars_runtime as mars
from mars_runtime.runs import folds
from mars_runtime.runs.speedup import passes_result, run_speedup
from mars_runtime.runs.trace import Trace
from mars_runtime.settings import AR_LOOKUP, RECOMMENDED, DecodeSettings
from mars_runtime.tasks import FAMILIES, generate

HERE = Path(__file__).parent
METHODS = (
    DecodeSettings(tau=0.3, lossless=True),
    DecodeSettings(tau=0.3, lossless=True, lookup=True),
    DecodeSettings(tau=0.5),
    RECOMMENDED,
    AR_LOOKUP,
)


@pytest.fixture(scope="module")
def races() -> list[tuple[Trace, Trace]]:
    """Ten prompts, each with a method and with AR; the last two texts repeat themselves."""
    model = mars.load("mars-tiny")
    prompts = [task.prompt for name in FAMILIES for task in generate(name, "eval", 3, 2)][:8]
    prompts += ["fox fox fox fox fox fox fox fox", "one two one two one two one two"]

    def run(prompt: str, settings: DecodeSettings) -> Trace:
        options = {**asdict(settings), "max_new_tokens": 100}
        options["ignore_eos"] = prompt.startswith(("fox", "one"))
        options.pop("logit_bias")
        return model.generate(prompt, **options).trace

    ar = DecodeSettings("ar", tau=1.0, block_size=1)
    return [
        (run(prompt, METHODS[place % len(METHODS)]), run(prompt, ar))
        for place, prompt in enumerate(prompts)
    ]


@pytest.fixture(scope="module")
def surfaces(races: list[tuple[Trace, Trace]]) -> list[dict[str, Any]]:
    """What the page shows of each race, by its own modules."""
    lines = [[list(trace.lines()) for trace in race] for race in races]
    command = ["node", str(HERE / "web" / "surfaces.js")]
    done = subprocess.run(
        command, input=json.dumps(lines), capture_output=True, text=True, timeout=60, check=True
    )
    shown: list[dict[str, Any]] = json.loads(done.stdout)
    return shown


def test_all_surfaces_show_the_figures_of_the_folds(
    races: list[tuple[Trace, Trace]], surfaces: list[dict[str, Any]]
) -> None:
    assert any(folds.loops_at(run.events) is not None for run, _ in races)
    for (run, ar), shown in zip(races, surfaces, strict=True):
        for trace, lane in zip((run, ar), shown["lanes"], strict=True):
            counted = folds.up_to_loop(trace.events)
            tokens, passes = folds.num_tokens(counted), folds.num_forwards(counted)
            assert (lane["tokens"], lane["passes"]) == (tokens, passes)
            assert (lane["bars"], lane["curve"]) == (passes, tokens)
            assert lane["exported"] == folds.num_tokens(trace.events)
            drafting = list(folds.drafting(trace.events))
            if trace.header.settings.method == "mars":
                assert lane["accepted"] == sum(accepted for _, accepted in drafting)
            assert sum(lane["saved"].values()) == tokens - passes
        counts = [lane["passes"] for lane in shown["lanes"]]
        place = folds.differs_at(run.events, ar.events)
        headline = passes_result(shown["lanes"][0]["tokens"], *counts, "AR", place)
        assert shown["headline"].startswith(headline)
        per_pass = next(figure for figure in shown["figures"] if figure["key"] == "perPass")
        if place is None:
            assert float(per_pass["value"]) == pytest.approx(folds.tpf(run.events), abs=0.006)


def test_a_factor_is_shown_only_if_its_range_excludes_one(
    races: list[tuple[Trace, Trace]], surfaces: list[dict[str, Any]]
) -> None:
    for (run, ar), shown in zip(races, surfaces, strict=True):
        speedup = run_speedup(run.events, ar.events)
        (time,) = (figure for figure in shown["figures"] if figure["key"] == "time")
        factor = re.match(r"([\d.]+) times as fast", time["value"])
        assert (factor is not None) == (speedup.reported is not None)
        if factor is not None:
            assert not speedup.low <= 1 <= speedup.high
            mine, theirs = map(float, re.findall(r"[\d.]+", time["numbers"]))
            assert math.isclose(float(factor[1]), theirs / mine, rel_tol=0.1)
