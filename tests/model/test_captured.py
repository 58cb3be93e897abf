"""What happens when a forward cannot be captured as a CUDA graph."""

from __future__ import annotations

import pytest
import torch

from mars_runtime.model.captured import GraphRecorder


class Failing(GraphRecorder):
    """A recorder without a device, whose captures raise ``error``."""

    def __init__(self, error: Exception) -> None:
        self.reason, self.num_graphs, self._error = "", 0, error

    def _capture(self, function: object) -> torch.cuda.CUDAGraph:
        raise self._error


def test_a_failed_capture_is_logged_once_and_forwards_run_without_graphs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    record = Failing(RuntimeError("operation not permitted when stream is capturing\nmore"))
    count = torch.zeros(1)
    for _ in range(3):
        record(lambda: count.add_(1))()
    assert count.item() == 3
    assert record.num_graphs == 0
    assert record.reason == "operation not permitted when stream is capturing"
    (line,) = caplog.messages
    assert record.reason in line


def test_a_device_without_memory_raises() -> None:
    record = Failing(torch.cuda.OutOfMemoryError("out of memory"))
    with pytest.raises(torch.cuda.OutOfMemoryError):
        record(lambda: None)
    assert record.reason == ""
