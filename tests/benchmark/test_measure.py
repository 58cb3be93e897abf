"""How a series is played: warm-up, threads, and peers that cannot run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
import torch
from scripted_answers import QUESTIONS, peer

from mars_runtime.lab.benchmark import plan
from mars_runtime.lab.benchmark.answer import Answer
from mars_runtime.lab.benchmark.measure import Measured, Series, measure, spread_out
from mars_runtime.lab.benchmark.paired import Question, Sample


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def silently(samples: Iterable[Sample], what: str, total: int) -> list[Sample]:
    found = list(samples)
    assert len(found) == total
    return found


def faster_with(threads: int, seconds: float):
    """A peer that is fast on one number of threads."""

    def ask(question: Question) -> Answer:
        factor = 1.0 if torch.get_num_threads() == threads else 3.0
        return peer("any", factor * seconds).answer(question)

    return ask


def failing(question: Question) -> Answer:
    raise NotImplementedError("no such cache")


def played(asks: dict[str, object], threads: list[int]) -> Measured:
    series = Series(1, asks, tuple(QUESTIONS))  # type: ignore[arg-type]
    return measure(series, threads, 2, torch.device("cpu"), silently)


def test_each_peer_runs_on_the_threads_that_suit_it():
    found = played({"a": faster_with(1, 1.0), "b": faster_with(2, 2.0)}, [1, 2])
    assert found.threads == {"a": 1, "b": 2}
    assert {(one.peer, one.threads) for one in found.samples} == {("a", 1), ("b", 2)}
    assert len(found.samples) == 2 * 2 * len(QUESTIONS)
    assert len(found.tuning) == 2 * 2 * 4
    assert found.peers == ["a", "b"]
    assert set(found.peak_bytes) == {"a", "b"}
    seconds = [one.answer.seconds for one in found.samples if one.peer == "a"]
    assert seconds == [1.0, 2.0, 3.0, 4.0] * 2


def test_one_number_of_threads_needs_no_tuning():
    found = played({"a": faster_with(1, 1.0)}, [1])
    assert found.tuning == ()
    assert found.threads == {"a": 1}


def test_what_transformers_cannot_do_here_is_left_out_and_said():
    found = played({plan.COMPILED: failing, "AR": faster_with(1, 1.0)}, [1])
    assert found.peers == ["AR"]
    assert found.left_out == (
        "transformers static cache cannot run here (NotImplementedError: no such cache)",
    )


def test_a_fault_of_ours_is_not_hidden():
    with pytest.raises(NotImplementedError):
        played({"AR": failing}, [1])


def test_tuning_questions_are_spread_over_families():
    assert spread_out(QUESTIONS, 2) == [QUESTIONS[0], QUESTIONS[2]]
    assert spread_out(QUESTIONS, 9) == QUESTIONS
