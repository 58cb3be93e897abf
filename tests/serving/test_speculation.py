"""Figures of speculative decoding under vLLM's names: in whole answers and in streams, from the
events of the run.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import NAME, Place
from test_answers import step

from mars_runtime.events import Event
from mars_runtime.folds import drafting
from mars_runtime.serving.speculation import metrics, speculative_decoding

ASK: list[Any] = [{"role": "user", "content": "What is it?"}]
FIELDS = [
    "mean_acceptance_length",
    "draft_acceptance_rate",
    "acceptance_histogram",
    "num_spec_steps",
    "num_accepted_draft_tokens",
    "num_draft_tokens",
    "num_spec_tokens",
    "per_position_acceptance_rates",
    "per_step_accepted",
    "per_step_drafted",
]
TAKEN = {"tau": 0.0, "lossless": False, "block_size": 4}  # the scripted model takes every draft
REFUSED = {**TAKEN, "tau": 1.0}  # and here none


def figures_of(place: Place, is_stream: bool, **more: Any) -> Any:
    """What an answer of twelve tokens reports."""
    create = place.client.chat.completions.create
    asked: dict[str, Any] = {"model": NAME, "messages": ASK, "max_tokens": 12, **more}
    if not is_stream:
        return create(**asked).metrics["speculative_decoding"]
    *before, last = create(**asked, stream=True)
    assert not any(hasattr(chunk, "metrics") for chunk in before)
    return last.metrics["speculative_decoding"]


@pytest.mark.parametrize("usage", [{}, {"stream_options": {"include_usage": True}}])
def test_streams_and_whole_answers_report_the_same(place: Place, usage: dict[str, Any]) -> None:
    whole = figures_of(place, False, extra_body=TAKEN)
    assert list(whole) == FIELDS
    assert figures_of(place, True, extra_body=TAKEN, **usage) == whole


def test_drafts_that_are_all_accepted(place: Place) -> None:
    found = figures_of(place, False, extra_body=TAKEN)
    assert found == {
        "mean_acceptance_length": 3 + 1,
        "draft_acceptance_rate": 1.0,
        "acceptance_histogram": [0, 0, 0, 3],
        "num_spec_steps": 3,
        "num_accepted_draft_tokens": 9,
        "num_draft_tokens": 9,
        "num_spec_tokens": 3,
        "per_position_acceptance_rates": [1.0, 1.0, 1.0],
        "per_step_accepted": [3, 3, 3],
        "per_step_drafted": [3, 3, 3],
    }


def test_drafts_that_are_all_rejected(place: Place) -> None:
    found = figures_of(place, True, extra_body=REFUSED)
    assert (found["mean_acceptance_length"], found["draft_acceptance_rate"]) == (1.0, 0.0)
    assert found["acceptance_histogram"] == [11, 0, 0, 0]  # the last forward has room for no draft
    assert found["per_position_acceptance_rates"] == [0.0, 0.0, 0.0]


def test_a_method_that_drafts_nothing_has_none(place: Place) -> None:
    for is_stream in (False, True):
        assert figures_of(place, is_stream, extra_body={"method": "ar"}) is None
    assert metrics([]) == {"speculative_decoding": None}


def test_text_completions_report_them_too(place: Place) -> None:
    create = place.client.completions.create
    asked: dict[str, Any] = {"model": NAME, "prompt": "Once", "max_tokens": 8, "extra_body": TAKEN}
    whole, stream = create(**asked), list(create(**asked, stream=True))
    for answer in (whole, stream[-1]):
        assert answer.metrics["speculative_decoding"]["acceptance_histogram"] == [0, 0, 0, 2]


def test_verified_drafts_of_changing_length() -> None:
    """Three drafts were judged of which two were right, then one, then one that was wrong."""
    events = [
        step("mars", True, 4, 1, 3),
        step("mars", True, 6, 3, 1, pending=4),
        step("mars", True, 3, 2, 1, pending=2),
        step("mars", True, 1, 1, 0, pending=2),
    ]
    assert list(drafting(events)) == [(3, 2), (1, 1), (1, 0)]
    found = speculative_decoding(events)
    assert found is not None
    assert found["mean_acceptance_length"] == 1 + 3 / 3
    assert found["draft_acceptance_rate"] == 3 / 5
    assert found["acceptance_histogram"] == [1, 1, 1, 0]
    assert found["per_position_acceptance_rates"] == [2 / 3, 1 / 3, 0]


def test_a_drafting_method_that_judged_nothing_yet() -> None:
    found = speculative_decoding([step("mars", True, 4, 1, 3)])
    assert found is not None
    assert (found["num_spec_steps"], found["acceptance_histogram"]) == (0, [0])
    assert (found["mean_acceptance_length"], found["draft_acceptance_rate"]) == (1.0, 0.0)


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), min_size=1, max_size=20))
def test_the_counts_agree_with_each_other(forwards: list[tuple[int, int]]) -> None:
    """What aiperf requires of them, else it drops them."""
    events: list[Event] = [step("mars", False, n, min(n, taken), 0) for n, taken in forwards]
    found = speculative_decoding(events)
    assert found is not None
    histogram = found["acceptance_histogram"]
    assert len(histogram) == found["num_spec_tokens"] + 1
    assert sum(histogram) == found["num_spec_steps"] == len(found["per_step_drafted"])
    weighted = sum(number * count for number, count in enumerate(histogram))
    assert weighted == found["num_accepted_draft_tokens"] == sum(found["per_step_accepted"])
    assert sum(found["per_step_drafted"]) == found["num_draft_tokens"]
    rates = found["per_position_acceptance_rates"]
    assert len(rates) == found["num_spec_tokens"]
    assert sum(rates) * found["num_spec_steps"] == pytest.approx(weighted)
