"""Thresholds that adapt, and what forced acceptance says: by hand, laws, from a trace alone."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

import pytest
from helpers import Ids, ScriptedModel, foresight_script, steps_of
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from mars_runtime.acceptance import DecodeError
from mars_runtime.decoders import decode
from mars_runtime.decoders.baselines import decode_batch
from mars_runtime.decoders.forced import ForcedAcceptance
from mars_runtime.decoders.plan import (
    CLASSES,
    MOST,
    RATE,
    entropy,
    raised_after,
    threshold_for,
)
from mars_runtime.events import Proposal, RowStep
from mars_runtime.settings import DecodeSettings, SettingsError, Threshold
from mars_runtime.trace import Header, Trace, read_trace

pytestmark = pytest.mark.usefixtures("each_forward")

IDS = Ids()
SURE = Proposal(5, 1.0, ())
TORN = Proposal(5, 0.4, ((6, 0.3), (7, 0.2), (8, 0.1)))


def test_entropy_by_hand() -> None:
    assert entropy(SURE) == 0.0
    assert entropy(Proposal(5, 0.5, ((6, 0.5),))) == pytest.approx(math.log(2))
    wanted = -sum(share * math.log(share) for share in (0.4, 0.3, 0.2, 0.1))
    assert entropy(TORN) == pytest.approx(wanted)
    assert entropy(Proposal(5, 0.02, TORN.runners_up)) == entropy(TORN)  # whatever the metric


def test_a_torn_model_is_trusted_with_less() -> None:
    by_entropy = DecodeSettings(tau=0.6, threshold="entropy")
    assert threshold_for(by_entropy, SURE, 0.0) == 0.6
    assert threshold_for(by_entropy, TORN, 0.0) == pytest.approx(0.6 + 0.4 * CLASSES[-1][1])
    shares = [share for _, share in CLASSES]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[-1] < 1.0


def test_the_threshold_stands_where_agreement_is_the_target() -> None:
    nine_of_ten = ([True] * 9 + [False]) * 10
    assert raised_after(0.5, nine_of_ten, 0.9) == pytest.approx(0.5)
    assert raised_after(0.5, [False], 0.9) == pytest.approx(0.5 + RATE * 0.9)
    assert raised_after(0.0, [True] * 9, 0.9) == 0.0
    assert raised_after(0.9, [False] * 9, 0.9) == MOST


@given(
    st.floats(0, 1), st.floats(0.5, 0.999), st.lists(st.booleans(), max_size=60), st.floats(0, MOST)
)
def test_never_below_the_floor_nor_above_one(
    tau: float, target: float, agreed: list[bool], raised: float
) -> None:
    after = raised_after(raised, agreed, target)
    assert 0.0 <= after <= MOST
    for rule in ("entropy", "agreement"):
        for own in (SURE, TORN):
            settings = DecodeSettings(tau=tau, threshold=rule, target=target)  # type: ignore[arg-type]
            assert tau <= threshold_for(settings, own, after) <= 1.0


def replayed(steps: Sequence[RowStep]) -> list[float]:
    """The thresholds worked out from what a trace tells."""
    raised, found, written = 0.0, [], []  # type: ignore[var-annotated]
    for step in steps:
        places = range(step.start - len(step.checks), step.start)
        same = [written[at] == token for at, (token, _) in zip(places, step.checks, strict=True)]
        raised = raised_after(raised, same, step.settings.target)
        found.append(threshold_for(step.settings, step.proposals[0], raised))
        written += step.accepted
    return found


@profile(max_examples=30)
@given(
    st.integers(0, 10_000),
    st.sampled_from(("entropy", "agreement")),
    st.floats(0, 0.9),
    st.floats(0.5, 0.99),
    st.sampled_from((0.0, 0.8)),
)
def test_a_trace_tells_how_the_threshold_came_about(
    seed: int, rule: Threshold, tau: float, target: float, temperature: float
) -> None:
    settings = DecodeSettings(
        tau=tau, threshold=rule, target=target, max_new_tokens=24, temperature=temperature
    )
    model = ScriptedModel(foresight_script(seed))
    events = list(decode(model, IDS, [[3, 4, 5]], lambda: settings))
    header = Header("scripted", "", (3, 4, 5), settings)
    trace = Trace.of(header, events, lambda token: bytes([token]))
    again = read_trace(trace.lines())
    assert again.events == events
    steps = steps_of(again.events)
    assert [step.threshold for step in steps] == replayed(steps)
    for step in steps:
        assert step.threshold is not None
        assert step.threshold >= tau
        taken = step.proposals[1 : len(step.accepted)]
        assert all(proposal.confidence >= step.threshold for proposal in taken)


def test_two_rows_learn_apart() -> None:
    settings = DecodeSettings(tau=0.0, threshold="agreement", target=0.9, max_new_tokens=24)
    prompts = [[3, 4, 5], [9, 3]]
    script = foresight_script(3)
    together = list(decode(ScriptedModel(script), IDS, prompts, lambda: settings))
    for row, prompt in enumerate(prompts):
        alone = steps_of(decode(ScriptedModel(script), IDS, [prompt], lambda: settings))
        found = steps_of(together, row)
        assert [step.threshold for step in found] == [step.threshold for step in alone]
        assert [step.accepted for step in found] == [step.accepted for step in alone]


def test_verified_runs_and_other_methods_have_none() -> None:
    for way in (DecodeSettings(lossless=True), DecodeSettings("ar"), DecodeSettings("jacobi")):
        settings = DecodeSettings(
            way.method, lossless=way.lossless, threshold="agreement", max_new_tokens=12
        )
        model = ScriptedModel(foresight_script(1))
        steps = steps_of(decode(model, IDS, [[3, 4]], lambda now=settings: now))
        assert {step.threshold for step in steps} == {None}


def test_only_the_cursor_cache_adapts() -> None:
    settings = DecodeSettings(threshold="entropy")
    model = ScriptedModel(foresight_script(1))
    with pytest.raises(DecodeError, match="fixed threshold"):
        decode_batch(model, IDS, [[3]], "uncached", lambda: settings, 1)
    with pytest.raises(SettingsError, match="how τ is held"):
        DecodeSettings(threshold="mood")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="target of agreement"):
        DecodeSettings(target=1.0)


@pytest.mark.parametrize("text", ["", "a,b", "0.5,0.4", "-0.5,1.5", "nan", ",".join(["0.05"] * 20)])
def test_what_is_no_histogram(text: str) -> None:
    with pytest.raises(DecodeError, match="add up to 1"):
        ForcedAcceptance.parse(text)


def test_no_recorded_forwards_are_no_histogram() -> None:
    with pytest.raises(DecodeError, match="add up to 1"):
        ForcedAcceptance.recorded({})


def test_bounds_split_the_unit_interval_by_the_shares() -> None:
    forced = ForcedAcceptance.recorded({1: 2, 3: 1, 4: 1})
    assert forced.shares == (0.5, 0.0, 0.25, 0.25)
    assert forced.mean == 0.5 + 0.75 + 1.0
    assert len(forced.bounds) == 15
    assert forced.bounds[:4] == (0.5, 0.5, 0.75, math.inf)
    takes = [1 + bisect_right(forced.bounds, uniform) for uniform in (0.0, 0.49, 0.5, 0.74, 0.99)]
    assert takes == [1, 1, 3, 3, 4]
