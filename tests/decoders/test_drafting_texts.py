"""What is drafted of made-up texts, of which it is known how far they can be foreseen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_up_texts import AUTO, CHAT, CURVES, MATHS, MOST_MASKS, NOTHING, SURE, Text, write

from mars_runtime.decoders.drafting import Drafter, Feed
from mars_runtime.decoders.forward_costs import Curve
from mars_runtime.settings import GROUPS


@pytest.mark.parametrize("curve", CURVES)
def test_where_nothing_is_foreseen_it_costs_less_than_three_percent(curve: str) -> None:
    for length, most in ((1500, 1.01), (200, 1.03)):
        cost, _ = write(Drafter(AUTO, MOST_MASKS), Text(NOTHING), CURVES[curve], length)
        assert cost / length < most


@pytest.mark.parametrize(
    ("curve", "chances", "least"),
    [
        ("flat", CHAT, 1.3),
        ("flat", MATHS, 1.55),
        ("flat", SURE, 4.5),
        ("gentle", CHAT, 1.15),
        ("gentle", MATHS, 1.3),
        ("gentle", SURE, 3.0),
        ("cliff", CHAT, 1.15),
        ("cliff", SURE, 2.0),
    ],
)
def test_it_comes_near_the_best_fixed_choice(
    curve: str, chances: list[float], least: float
) -> None:
    cost, _ = write(Drafter(AUTO, MOST_MASKS), Text(chances), CURVES[curve], 1500)
    assert 1500 / cost > least


def test_groups_are_worth_more_than_one_group() -> None:
    costs = {
        groups: write(
            Drafter(replace(AUTO, groups=groups), MOST_MASKS), Text(MATHS), CURVES["flat"], 1500
        )[0]
        for groups in GROUPS
    }
    assert costs["every"] < costs["one"]


def test_a_probe_finds_that_the_text_has_changed() -> None:
    drafter, curve = Drafter(AUTO, MOST_MASKS), CURVES["gentle"]
    write(drafter, Text(NOTHING), curve, 400)
    cost, _ = write(drafter, Text(SURE), curve, 600)
    assert 600 / cost > 1.5
    cost, _ = write(drafter, Text(NOTHING), curve, 600)
    assert 600 / cost > 0.96


def test_a_model_that_foresees_nothing_is_never_asked() -> None:
    drafter = Drafter(AUTO, 0)
    curve = Curve(CURVES["flat"])
    for place in range(300):
        assert drafter.feed(curve) == Feed(0, 0, is_every=False)
        drafter.settle([place], 0, [], [], 0, curve)
