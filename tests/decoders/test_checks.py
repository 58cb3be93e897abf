"""What AR would have chosen at places that were fed again, and the thresholds that follow it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from helpers import Ids, ScriptedModel, foresight_script, peaked, steps_of, tokens_of
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from mars_runtime.decoders.cursor import CursorBatch, Decoding, decode
from mars_runtime.decoders.plan import MAX_RAISED, TAU_STEP, raised_after, threshold_for
from mars_runtime.runs.events import Proposal, RowStep, Step
from mars_runtime.runs.trace import Header, Trace, read_trace
from mars_runtime.settings import DecodeSettings
from tests import slow_twin

pytestmark = pytest.mark.usefixtures("each_forward")

IDS = Ids()
BOLD = DecodeSettings(tau=0.4, block_size=5, max_new_tokens=24)


def checked_steps(script, prompt, settings, source=None) -> Iterator[RowStep]:
    events = decode(ScriptedModel(script), IDS, [prompt], source or (lambda: settings))
    assert isinstance(events, Decoding)
    for event in events:
        if isinstance(event, Step):
            yield from events.checked(event).rows


def chosen_by_ar(script, prefix, settings) -> int:
    plain = replace(settings, method="ar", max_new_tokens=1)
    return tokens_of(slow_twin.decode(ScriptedModel(script), IDS, [prefix], lambda: plain))[0][0]


@given(
    seed=st.integers(0, 10_000),
    prompt=st.lists(st.integers(3, 15), min_size=1, max_size=9),
    tau=st.sampled_from([0.0, 0.3, 0.7]),
    block_size=st.integers(1, 9),
    metric=st.sampled_from(["probability", "margin", "entropy"]),
    temperature=st.sampled_from([0.0, 0.0, 0.9]),
)
def test_checks_are_what_ar_chooses_at_the_same_prefix(
    seed: int, prompt: list[int], tau: float, block_size: int, metric, temperature: float
) -> None:
    script = foresight_script(seed, eos_share=0.02)
    settings = replace(
        BOLD, tau=tau, block_size=block_size, metric=metric, temperature=temperature, seed=seed
    )
    tokens = list(prompt)
    for step in checked_steps(script, prompt, settings):
        first = step.start - len(step.checks)
        assert len(step.checks) == step.num_pending - 1
        for place, (token, probability) in enumerate(step.checks, first):
            prefix = tokens[: len(prompt) + place]
            assert token == chosen_by_ar(script, prefix, settings)
            assert 0 < probability <= 1
        tokens += step.accepted


def test_events_are_the_same_with_and_without_and_only_the_asked_rows_have_checks() -> None:
    script, prompts = foresight_script(2, eos_share=0.03), [[3], [4, 5, 6], [7, 8], [9] * 6]
    plain, asking = (CursorBatch(ScriptedModel(script), IDS, 4, 60) for _ in range(2))
    for batch in (plain, asking):
        for number, prompt in enumerate(prompts):
            batch.add(number, prompt, lambda: BOLD)
    num_checks = dict.fromkeys(range(4), 0)
    while plain.rows:
        expected, step = plain.step(), asking.step()
        actual = asking.checked(step, {1, 3})
        bare = tuple(replace(row, checks=()) for row in actual.rows)
        assert replace(actual, rows=bare) == step == expected
        for row in actual.rows:
            num_checks[row.row] += len(row.checks)
    assert not asking.rows
    assert num_checks[0] == num_checks[2] == 0
    assert min(num_checks[1], num_checks[3]) > 0


def test_logits_that_are_no_numbers_leave_the_checks_out_and_the_run_alone() -> None:
    def script(prefix: tuple[int, ...]) -> list[float]:
        is_read_again = len(prefix) == 3 and 1 not in prefix
        return [math.nan] * 18 if is_read_again else peaked(5, 20.0)

    steps = list(checked_steps(script, [3, 4], replace(BOLD, max_new_tokens=9)))
    assert [step.checks for step in steps] == [(), ()]
    assert [len(step.accepted) for step in steps] == [5, 4]


# Thresholds that adapt.

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
