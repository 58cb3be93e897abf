"""Runners of steps: plain runs on a CPU, and what happens when a capture fails."""

from __future__ import annotations

import logging

import pytest
import torch

from mars_runtime.model.graphs import EagerRunner, GraphRunner, new_runner


def test_a_cpu_runs_without_graphs_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        runner = new_runner(torch.device("cpu"), [])
    assert runner.reason in caplog.text
    assert "CUDA" in runner.reason
    count = torch.zeros(1)
    for _ in range(3):
        runner.run("key", lambda: count.add_(1))
    assert count.item() == 3


def test_numbers_arrive_as_they_were_when_they_were_fetched() -> None:
    runner, numbers = EagerRunner("a test"), torch.tensor([1.0, 2.0])
    arrival = runner.fetch(numbers)
    numbers.zero_()
    assert arrival.wait() == [1.0, 2.0]


class Failing(GraphRunner):
    """A graph runner without a device, whose captures fail as they are told."""

    def __init__(self, error: Exception) -> None:
        self.reason, self._graphs, self._error = "", {}, error

    def _capture(self, function: object) -> torch.cuda.CUDAGraph:
        raise self._error


def test_a_capture_that_fails_is_logged_once_and_steps_run_plainly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runner = Failing(RuntimeError("operation not permitted when stream is capturing\nmore"))
    count = torch.zeros(1)
    for key in ("a", "b", "a"):
        runner.run(key, lambda: count.add_(1))
    assert count.item() == 3
    assert "not permitted when stream is capturing" in runner.reason
    assert len(caplog.records) == 1


def test_a_device_without_memory_is_no_reason_to_go_on() -> None:
    runner = Failing(torch.cuda.OutOfMemoryError("out of memory"))
    with pytest.raises(torch.cuda.OutOfMemoryError):
        runner.run("a", lambda: None)
    assert runner.reason == ""
