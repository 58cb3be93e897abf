"""What AR would have chosen at places that were fed again: against AR itself at the same prefix."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
from helpers import Ids, ScriptedModel, foresight_script, peaked, tokens_of
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.decoders.cursor import CursorBatch, Decoding, decode
from mars_runtime.runs.events import RowStep, Step
from mars_runtime.settings import DecodeSettings
from tests import slow_twin

pytestmark = pytest.mark.usefixtures("each_forward")

IDS = Ids()
BOLD = DecodeSettings(tau=0.4, block_size=5, max_new_tokens=24)


def checked_steps(script, prompt, settings, source=None) -> Iterator[RowStep]:
    """The steps of one prompt, each with its checks."""
    events = decode(ScriptedModel(script), IDS, [prompt], source or (lambda: settings))
    assert isinstance(events, Decoding)
    for event in events:
        if isinstance(event, Step):
            yield from events.checked(event).rows


def chosen_by_ar(script, prefix, settings) -> int:
    """By full recomputation, without cursors or pending tokens."""
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
    """The places are read again only for show."""

    def script(prefix: tuple[int, ...]) -> list[float]:
        is_read_again = len(prefix) == 3 and 1 not in prefix
        return [math.nan] * 18 if is_read_again else peaked(5, 20.0)

    steps = list(checked_steps(script, [3, 4], replace(BOLD, max_new_tokens=9)))
    assert [step.checks for step in steps] == [(), ()]
    assert [len(step.accepted) for step in steps] == [5, 4]
