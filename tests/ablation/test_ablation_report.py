"""Figures of runs written by hand, and the pages that show them."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from mars_runtime.lab.ablation.report import (
    AblationResults,
    accuracy,
    as_ar,
    markdown,
    mean_of_seeds,
    stopped_lines,
    svg,
    tokens_per_forward,
)
from mars_runtime.lab.ablation.variants import VARIANTS

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
    assert as_ar(families) == pytest.approx(90.0)


def test_a_mean_over_seeds_has_students_interval_and_one_seed_has_none():
    three = mean_of_seeds([1.0, 2.0, 3.0])
    assert three.value == 2.0
    assert three.half == pytest.approx(4.303 / 3**0.5)
    assert mean_of_seeds([7.0]).half is None
    assert three.text(1, sign=True) == "+2.0 ± 2.5"
    assert mean_of_seeds([7.0]).text(0) == "7"


def test_differences_are_taken_seed_by_seed():
    found = AblationResults(
        document(
            run("mars-b8", 0, 2), run("mars-b8", 1, 6), run("mars-b4", 0, 3), run("mars-b4", 1, 7)
        )
    )
    change = found.change("mars-b4", "mars-b8", "ar", accuracy)
    assert (change.value, change.half) == (pytest.approx(10.0), pytest.approx(0.0))
    assert found.change("mars-b8", "mars-b8", "ar", accuracy) is None
    assert found.change("mars-b8", "ar", "ar", accuracy) is None
    assert found.figure("mars-b4", "ar", accuracy).half > 100


def test_pages_name_every_variant_that_has_a_run_and_no_other():
    content = document(run("start", 0, 5), run("mars-b8", 0, 4), run("unshifted", 0, 3))
    tables, picture = markdown(content), svg(content)
    ElementTree.fromstring(picture)
    for variant in VARIANTS:
        is_there = variant.name in ("start", "mars-b8", "unshifted")
        assert (f"| {variant.name} |" in tables) == is_there
        assert (f">{variant.name}<" in picture) == is_there
    assert "| 45.0 ±" in tables  # mars-b8: 4 and 5 of 10
    assert "-10.0" in tables  # unshifted against it
    assert picture.count("<circle") == 1 + 2 * 4


def test_the_accuracy_of_one_seed_has_the_interval_of_its_prompts():
    found = AblationResults(document(run("mars-b8", 0, 4))).figure("mars-b8", "ar", accuracy)
    assert found.value == pytest.approx(45.0)
    assert 15 < found.half < 25  # twenty prompts
    other = AblationResults(document(run("mars-b8", 0, 4))).figure(
        "mars-b8", "ar", tokens_per_forward
    )
    assert other.half is None


def test_what_was_stopped_stands_beside_the_base_where_it_had_read_as_much():
    content = document(run("mars-b8", 0, 4)) | {
        "curves": {
            "mars-b8-0": [(100, 1.0, 5.0), (170, 0.7, 4.0), (200, 0.5, 3.0), (300, 0.4, 2.0)],
            "lora-0": [(100, 2.0, 6.0), (202, 0.9, 4.0)],
            "ar-1": [(50, 0.7, None)],
        }
    }
    assert stopped_lines(content) == [
        ["lora, seed 0", "202", "0.900", "0.600", "4.000", "3.500"],
        ["ar, seed 1", "50", "0.700", "–", "–", "–"],
    ]
    assert "lora, seed 0" in markdown(content)
