"""B chosen by the costs of forwards: what is decoded, and what it costs on paper."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers import Ids, ScriptedModel, counting, peaked, steps_of

from mars_runtime.decoders.cursor import CursorBatch, decode
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.errors import DecodeError
from mars_runtime.runs.events import Step
from mars_runtime.settings import DecodeSettings

pytestmark = pytest.mark.usefixtures("each_forward")

IDS = Ids(eos_ids=frozenset())
AUTO = DecodeSettings(tau=0.5, block_size="auto", max_new_tokens=200)
LOSSLESS = replace(AUTO, tau=0.0, lossless=True)
DEPTH = 8
CURVES = {
    "flat": tuple(1 + 0.005 * q for q in range(15)),
    "gentle": tuple(1 + 0.06 * q for q in range(15)),
    "steep": tuple(1 + 0.4 * q for q in range(15)),
    "cliff": (1.0, 1.05, 1.1, 2.4, *[2.5] * 11),
}


def auto(script, prompts, settings: DecodeSettings, curve: str, ids: Ids = IDS):
    known = ForwardCosts(DEPTH, {1: CURVES[curve], 2: CURVES[curve]})
    return list(decode(ScriptedModel(script), ids, prompts, lambda: settings, known))


def twice(script, settings: DecodeSettings, curve: str):
    """The forwards of two equal rows, so that no measured time corrects the costs."""
    return [
        event for event in auto(script, [[3, 4]] * 2, settings, curve) if isinstance(event, Step)
    ]


def blind(prefix: tuple[int, ...]) -> list[float]:
    """Counts; masks are unsure, and wrong."""
    return peaked(3 + len(prefix) % 7, 0.1) if prefix[-1] == 1 else counting(prefix)


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("settings", [AUTO, LOSSLESS], ids=["unverified", "lossless"])
def test_where_nothing_is_foreseen_it_costs_less_than_five_percent(settings, curve) -> None:
    steps = twice(blind, replace(settings, max_new_tokens=400), curve)
    widths = [max(row.num_fed for row in step.rows) for step in steps]
    assert sum(CURVES[curve][width - 1] for width in widths) < 1.05 * 400


@pytest.mark.parametrize("settings", [AUTO, LOSSLESS])
def test_the_step_says_which_b_was_in_force(settings: DecodeSettings) -> None:
    steps = steps_of(auto(counting, [[3, 4]], settings, "gentle"))
    assert 4 < max(step.block_size for step in steps) <= DEPTH
    for step in steps:
        fed = step.num_pending - 1 if settings.lossless else 0
        assert len(step.proposals) == fed + step.block_size
        assert step.num_fed == step.num_pending + step.block_size - 1
        assert step.settings.block_size == "auto"


def test_rows_with_a_number_keep_it_next_to_rows_without() -> None:
    batch = CursorBatch(ScriptedModel(counting), IDS, 2, 60, ForwardCosts(4, {2: CURVES["flat"]}))
    batch.add(0, [3], lambda: replace(AUTO, max_new_tokens=30))
    batch.add(1, [3], lambda: replace(AUTO, block_size=2, max_new_tokens=30))
    seen: dict[int, set[int]] = {0: set(), 1: set()}
    while len(batch.rows) == 2:
        for row in batch.step().rows:
            seen[row.row].add(row.block_size or row.settings.num_proposals)
    assert max(seen[0]) == 4
    assert seen[1] - {1} == {2}


def test_without_costs_a_number_is_asked_for() -> None:
    with pytest.raises(DecodeError, match="choose a number"):
        list(decode(ScriptedModel(counting), IDS, [[3]], lambda: AUTO))


def test_the_curve_is_that_of_the_next_larger_batch() -> None:
    """More rows than were measured cost as many tokens of fewer rows."""
    known = ForwardCosts(
        2, {1: (1.0, 1.1, 1.2), 4: (1.0, 1.2, 1.8, 2.4)}, masks={1: (0.25,), 4: (0.12, 0.18)}
    )
    assert [known.curve(1).of(width, 0) for width in (1, 2, 3)] == [1.0, 1.1, 1.2]
    assert known.curve(1).of(4, 0) == pytest.approx(1.2 * 4 / 3)
    assert known.curve(1).of(2, 1) == pytest.approx(1.35)
    assert known.curve(2) == known.curve(4)
    assert known.curve(4).of(2, 1) == pytest.approx(1.32)
    assert known.curve(4).of(3, 3) == pytest.approx(1.98)
    assert known.curve(8).of(2, 0) == pytest.approx(2.4 / 1.2)
