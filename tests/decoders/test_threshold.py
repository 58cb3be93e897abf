"""Thresholds that adapt: by hand, and worked out from a trace."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from helpers import Ids, ScriptedModel, foresight_script, steps_of
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from mars_runtime.decoders.cursor import decode
from mars_runtime.decoders.plan import (
    MAX_RAISED,
    TAU_STEP,
    raised_after,
    threshold_for,
)
from mars_runtime.runs.events import Proposal, RowStep
from mars_runtime.runs.trace import Header, Trace, read_trace
from mars_runtime.settings import DecodeSettings

pytestmark = pytest.mark.usefixtures("each_forward")

IDS = Ids()
SURE = Proposal(5, 1.0, ())
TORN = Proposal(5, 0.4, ((6, 0.3), (7, 0.2), (8, 0.1)))


def test_a_torn_model_is_trusted_with_less() -> None:
    by_entropy = DecodeSettings(tau=0.6, tau_policy="entropy")
    of_a_metric = Proposal(5, 0.02, TORN.runners_up)  # entropy is the same for every metric
    half = Proposal(5, 0.5, ((6, 0.5),))
    sure, unsure, other, torn = (
        threshold_for(by_entropy, proposal, 0.0) for proposal in (SURE, half, of_a_metric, TORN)
    )
    assert sure == 0.6 < unsure < torn == other < 1.0


def test_the_threshold_settles_where_agreement_is_the_target() -> None:
    nine_of_ten = ([True] * 9 + [False]) * 10
    assert raised_after(0.5, nine_of_ten, 0.9) == pytest.approx(0.5)
    assert raised_after(0.5, [False], 0.9) == pytest.approx(0.5 + TAU_STEP * 0.9)
    assert raised_after(0.0, [True] * 9, 0.9) == 0.0
    assert raised_after(0.9, [False] * 9, 0.9) == MAX_RAISED


def replayed(steps: Sequence[RowStep]) -> list[float]:
    """The thresholds computed from the content of a trace."""
    raised, actual, written = 0.0, [], []  # type: ignore[var-annotated]
    for step in steps:
        places = range(step.start - len(step.checks), step.start)
        same = [written[at] == token for at, (token, _) in zip(places, step.checks, strict=True)]
        raised = raised_after(raised, same, step.settings.agreement_target)
        actual.append(threshold_for(step.settings, step.proposals[0], raised))
        written += step.accepted
    return actual


@profile(max_examples=30)
@given(
    st.integers(0, 10_000),
    st.sampled_from(("entropy", "agreement")),
    st.floats(0, 0.9),
    st.floats(0.5, 0.99),
    st.sampled_from((0.0, 0.8)),
)
def test_a_trace_tells_how_the_threshold_came_about(seed, rule, tau, target, temperature) -> None:
    settings = DecodeSettings(
        tau=tau,
        tau_policy=rule,
        agreement_target=target,
        max_new_tokens=24,
        temperature=temperature,
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
        assert tau <= step.threshold <= 1.0
        taken = step.proposals[1 : len(step.accepted)]
        assert all(proposal.confidence >= step.threshold for proposal in taken)


def test_verified_runs_and_other_methods_have_none() -> None:
    for way in (DecodeSettings(lossless=True), DecodeSettings("ar"), DecodeSettings("jacobi")):
        settings = DecodeSettings(
            way.method, lossless=way.lossless, tau_policy="agreement", max_new_tokens=12
        )
        model = ScriptedModel(foresight_script(1))
        steps = steps_of(decode(model, IDS, [[3, 4]], lambda fixed=settings: fixed))
        assert {step.threshold for step in steps} == {None}
