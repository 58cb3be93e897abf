"""How many threads forwards get, on a machine of numbers and on this one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mars_runtime.model import threads
from mars_runtime.model.threads import HIDDEN, Threads, TorchThreads, ladder, shared_from

QUIET = {1: 3.2e-3, 2: 2.8e-3}
BUSY = {1: 3.4e-3, 2: 15e-3}
"""Seconds of a forward of one position by number of threads, measured next to no and one busy
process.
"""


class Machine:
    """A clock, and forwards that take what the company of the moment makes them take."""

    def __init__(self, seed: int = 0) -> None:
        self.now = 0.0
        self.seconds = QUIET
        self.threads = Threads(lambda: self.now)
        self._random = random.Random(seed)

    def forward(self, width: int = 1, part: str = HIDDEN) -> int:
        """The number of threads that it got."""

        def call(count: int) -> int:
            unlucky = 3.0 if self._random.random() < 0.01 else 1.0
            noise = self._random.uniform(0.9, 1.1) * unlucky
            self.now += self.seconds[count] * (6 + width) / 7 * noise
            return count

        return self.threads.run(part, width, max(self.seconds), call)

    def run(self, seconds: float, widths: tuple[int, ...] = (1,)) -> Counter[int]:
        """Forwards for so long; how many got each number of threads."""
        until, counts = self.now + seconds, Counter[int]()
        while self.now < until:
            counts[self.forward(self._random.choice(widths))] += 1
        return counts


def share(counts: Counter[int], count: int) -> float:
    return counts[count] / counts.total()


@pytest.mark.parametrize("widths", [(1,), (1, 2, 4, 6, 9, 16)])
def test_threads_follow_the_company_there_is(widths: tuple[int, ...]) -> None:
    machine = Machine()
    machine.run(1.0, widths)
    assert share(machine.run(3.0, widths), 2) > 0.9
    machine.seconds = BUSY
    machine.run(1.0, widths)
    assert share(machine.run(3.0, widths), 1) > 0.97
    machine.seconds = QUIET
    machine.run(1.0, widths)
    assert share(machine.run(3.0, widths), 2) > 0.9


@given(st.integers(0, 1000), st.sampled_from([QUIET, BUSY, {1: 1.0, 2: 0.55}, {1: 1.0, 2: 1.0}]))
def test_looking_at_other_numbers_costs_little(seed: int, seconds: dict[int, float]) -> None:
    machine = Machine(seed)
    machine.seconds = {
        count: second * 1e-3 / min(seconds.values()) for count, second in seconds.items()
    }
    machine.run(0.3)
    began, num_forwards = machine.now, machine.run(5.0).total()
    expected = (
        1.02 * 1e-3
    )  # of the best number, one forward in a hundred taking three times as long
    assert (machine.now - began) / num_forwards < 1.1 * expected


@pytest.mark.parametrize("widths", [(1,), (1, 2, 4, 6, 9, 16)])
def test_company_in_bursts_is_company(widths: tuple[int, ...]) -> None:
    """A browser that draws seven times per second: between two drawings all looks quiet."""

    def tokens_per_second(machine: Machine) -> float:
        began, num_forwards = machine.now, 0
        while machine.now < began + 20.0:
            machine.seconds = BUSY if machine.now % 0.14 < 0.06 else QUIET
            machine.forward(widths[num_forwards % len(widths)])
            num_forwards += 1
        return num_forwards / (machine.now - began)

    chosen, single = Machine(), Machine()
    single.threads.fixed = 1
    assert tokens_per_second(chosen) > 0.92 * tokens_per_second(single)


def test_parts_and_widths_choose_for_themselves() -> None:
    machine = Machine()
    for _ in range(2000):
        machine.seconds = {1: 1e-3, 2: 2e-3}
        narrow = machine.forward(1)
        machine.seconds = {1: 2e-3, 2: 1e-3}
        wide, read = machine.forward(64), machine.forward(1, "read")
    assert (narrow, wide, read) == (1, 2, 2)


def test_a_ceiling_of_one_or_a_fixed_number_is_obeyed() -> None:
    chosen = Threads()
    assert {chosen.run(HIDDEN, 1, 1, lambda count: count) for _ in range(50)} == {1}
    chosen.fixed = 2
    assert {chosen.run(HIDDEN, 1, 8, lambda count: count) for _ in range(50)} == {2}
    assert chosen.run(HIDDEN, 1, 1, lambda count: count) == 1


def test_numbers_worth_trying() -> None:
    assert ladder(1) == (1,)
    assert ladder(2) == (1, 2)
    assert ladder(6) == (1, 2, 4, 6)
    assert ladder(8) == (1, 2, 4, 8)


@pytest.fixture
def torch_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("torch_threads")
def test_narrow_forwards_of_pytorch_keep_their_number() -> None:
    chosen = TorchThreads(base=1, most=2, shared_from=16)
    got = [chosen.run(HIDDEN, width, torch.get_num_threads) for width in [1, 15, 16, 64] * 40]
    assert set(got[::4]) | set(got[1::4]) == {1}
    assert set(got[2::4]) == {1, 2}
    never = TorchThreads(base=2, most=2, shared_from=None)
    assert {never.run(HIDDEN, width, torch.get_num_threads) for width in (1, 512)} == {2}


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
