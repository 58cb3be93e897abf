"""Figures of runs written by hand, and the table that shows them."""

from __future__ import annotations

import pytest

from mars_runtime.lab.ablation.report import (
    AblationResults,
    accuracy,
    mean_of_seeds,
    table_of,
    tokens_per_forward,
)

WAYS = ("ar", "mars 0.95 B4", "mars 0.95 B8", "mars 0.8 B4", "mars 0.8 B8")


def counts(right: int, tokens: int = 100, forwards: int = 50) -> dict[str, int]:
    return {
        "num_prompts": 10,
        "num_right": right,
        "num_tokens": tokens,
        "num_forwards": forwards,
        "num_as_ar": 9,
    }


def run(name: str, seed: int, right: int) -> dict[str, object]:
    ways = [*WAYS, "lossless 0 B4", "lossless 0 B8"] if name not in ("ar", "start") else ["ar"]
    families = {"sums": counts(right), "words": counts(right + 1, 90, 30)}
    return {
        "variant": name,
        "seed": seed,
        "tokens": 1000,
        "steps": 10,
        "seconds": 2.0,
        "losses": {"clean": 0.5},
        "ways": dict.fromkeys(ways, families),
    }


def document(*runs: dict[str, object]) -> dict[str, object]:
    return {
        "hardware": {"gpus": [], "processor": "A <processor>", "cores": 2},
        "versions": {"torch": "2"},
        "date": "2026-11-22",
        "commit": None,
        "start": "ar-tiny",
        "tokens": 1000,
        "seconds": None,
        "num_prompts": 10,
        "runs": list(runs),
        "curves": {},
    }


def test_each_family_counts_alike():
    families = {"a": counts(4), "b": counts(8, 300, 100)}
    assert accuracy(families) == pytest.approx(60.0)
    assert tokens_per_forward(families) == pytest.approx(2.5)


def test_a_mean_over_seeds_has_students_interval_and_one_seed_has_none():
    three = mean_of_seeds([1.0, 2.0, 3.0])
    assert three.value == 2.0
    assert three.half == pytest.approx(4.303 / 3**0.5)
    assert mean_of_seeds([7.0]).half is None
    assert three.text(1, sign=True) == "+2.0 ± 2.5"
    assert mean_of_seeds([7.0]).text(0) == "7"


def test_differences_are_taken_seed_by_seed():
    actual = AblationResults(
        document(
            run("mars-b8", 0, 2), run("mars-b8", 1, 6), run("mars-b4", 0, 3), run("mars-b4", 1, 7)
        )
    )
    change = actual.change("mars-b4", "mars-b8", "ar", accuracy)
    assert (change.value, change.half) == (pytest.approx(10.0), pytest.approx(0.0))
    assert actual.change("mars-b8", "mars-b8", "ar", accuracy) is None
    assert actual.change("mars-b8", "ar", "ar", accuracy) is None
    assert actual.figure("mars-b4", "ar", accuracy).half > 100


def test_the_table_has_a_line_for_every_variant_that_has_a_run():
    content = document(run("start", 0, 5), run("mars-b8", 0, 4), run("unshifted", 0, 3))
    lines = {line[0]: line for line in table_of(AblationResults(content)).lines}
    assert list(lines) == ["start", "mars-b8", "unshifted"]
    assert lines["mars-b8"][3].startswith("45.0 ±")  # 4 and 5 of 10
    assert lines["unshifted"][5] == "-10.0"  # against mars-b8


def test_the_accuracy_of_one_seed_has_the_interval_of_its_prompts():
    actual = AblationResults(document(run("mars-b8", 0, 4))).figure("mars-b8", "ar", accuracy)
    assert actual.value == pytest.approx(45.0)
    assert 15 < actual.half < 25  # twenty prompts
    other = AblationResults(document(run("mars-b8", 0, 4))).figure(
        "mars-b8", "ar", tokens_per_forward
    )
    assert other.half is None
