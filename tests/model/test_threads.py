"""How many threads forwards get, by how many cores are idle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mars_runtime.model import threads
from mars_runtime.model.threads import CoreTimes, Threads, TorchThreads, idle_seconds, shared_from


@pytest.mark.parametrize(
    ("idle", "own", "expected"),
    [
        (0.2, 0.0, 2),  # both cores were idle for 0.1 s
        (0.0, 0.2, 2),  # this process used both
        (0.09, 0.08, 2),  # a page in a browser
        (0.1, 0.0, 1),  # a busy process
        (0.0, 0.1, 1),  # a busy process, and this one on the other core
        (0.0, 0.02, 1),
    ],
)
def test_a_run_gets_as_many_threads_as_cores_are_idle(
    monkeypatch: pytest.MonkeyPatch, idle: float, own: float, expected: int
) -> None:
    now = 5.0
    monkeypatch.setattr(threads.time, "perf_counter", lambda: now)
    readings = iter([CoreTimes(5.0, 30.0, 2.0), CoreTimes(5.1, 30.0 + idle, 2.0 + own)])
    monkeypatch.setattr(threads, "num_cores", lambda: 2)
    chosen = Threads(lambda: next(readings))
    chosen.begin_run()
    assert chosen.count(2) == 2
    now = 5.101
    assert chosen.count(2) == expected
    assert chosen.count(1) == 1
    now = 9.0  # until the next run
    assert chosen.count(2) == expected


def test_where_idle_cores_are_unknown_all_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "num_cores", lambda: 4)
    chosen = Threads(lambda: None)
    chosen.begin_run()
    assert [chosen.count(most) for most in (1, 4, 8)] == [1, 4, 4]
    chosen.fixed = 8
    assert chosen.count(8) == 8


def test_only_cores_that_this_process_may_use_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu 9 9 9 900 9\ncpu0 1 1 1 250 50 7\ncpu1 1 1 1 100 0 7\nintr 5\n")
    monkeypatch.setattr(threads, "STAT", stat)
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda process: {0}, raising=False)
    monkeypatch.setattr(threads.os, "sysconf", lambda name: 100, raising=False)
    assert idle_seconds() == 3.0


@pytest.fixture
def torch_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("torch_threads")
def test_narrow_forwards_of_pytorch_keep_their_number() -> None:
    chosen = TorchThreads(base=1, most=2, shared_from=16)
    chosen.fixed = 2
    got = [chosen.run(width, torch.get_num_threads) for width in (1, 15, 16, 64)]
    assert got == [1, 1, 2, 2]
    never = TorchThreads(base=2, most=2, shared_from=None)
    assert {never.run(width, torch.get_num_threads) for width in (1, 512)} == {2}


class Rounding:
    """A model with last bits that depend on the number of threads up to ``last`` positions."""

    config = SimpleNamespace(vocab_size=10)

    def __init__(self, last: int) -> None:
        self._last = last

    def new_cache(self, rows: int, capacity: int) -> Any:
        return None

    def hidden(self, tokens: torch.Tensor, cache: Any) -> torch.Tensor:
        is_moved = tokens.numel() <= self._last and torch.get_num_threads() > 1
        return tokens + (1e-6 if is_moved else 0.0)

    def logits(self, hidden: torch.Tensor, head: slice) -> torch.Tensor:
        return hidden[:, head]


@pytest.mark.usefixtures("torch_threads")
@pytest.mark.parametrize(("last", "found"), [(0, 1), (1, 16), (11, 16), (24, 64), (200, None)])
def test_forwards_are_shared_out_where_no_bit_depends_on_it(last: int, found: int | None) -> None:
    assert shared_from(Rounding(last), 2) == found


@pytest.mark.usefixtures("torch_threads")
def test_a_check_that_takes_too_long_shares_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "CHECK_SECONDS", 0.0)
    assert shared_from(Rounding(0), 2) is None
