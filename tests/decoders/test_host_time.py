"""What the host does in a step besides the forward, on a model that answers at once."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers import Ids, ScriptedCache

from mars_runtime.decoders.cursor import CursorBatch
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.runs.events import Proposal
from mars_runtime.settings import RECOMMENDED, DecodeSettings

LENGTH = 400
CYCLE = [5 + number * number % 11 for number in range(11)]
COSTS = ForwardCosts(8, {1: tuple(1.0 + 0.05 * width for width in range(32))}, seconds=0.002)


class InstantModel:
    """A model that takes no time: it writes a cycle of tokens that masks predict."""

    device = torch.device("cpu")
    config = SimpleNamespace(vocab_size=18, max_positions=4096)

    def new_cache(self, rows: int, capacity: int) -> ScriptedCache:
        return ScriptedCache(rows, capacity)

    def forward(self, tokens: Any, cache: Any, head: Any, branches: Any = None) -> None:
        return None

    def hidden(self, tokens: Any, cache: ScriptedCache, branches: Any = None) -> list[int]:
        width = tokens.shape[1]
        places = range(width) if branches is None else branches.positions[0].tolist()
        return [cache.cursors[0] + place for place in places]

    def predict(self, hidden: list[int], head: Any, sampling: Any) -> list[list[Proposal]]:
        places = hidden[head] if isinstance(head, slice) else [hidden[at] for at in head[0]]
        return [[Proposal(CYCLE[(place + 1) % 11], 0.9, ((17, 0.05),)) for place in places]]


def milliseconds(settings: DecodeSettings) -> float:
    batch = CursorBatch(InstantModel(), Ids(), 1, 2 * LENGTH, COSTS)  # type: ignore[arg-type]
    batch.add(0, [CYCLE[place % 11] for place in range(LENGTH)], lambda: settings)
    taken = []
    while batch.rows:
        began = time.perf_counter()
        batch.step()
        taken.append(time.perf_counter() - began)
    return 1000 * statistics.median(taken)


@pytest.mark.timed
@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        (DecodeSettings("ar", max_new_tokens=300), 0.5),
        (replace(RECOMMENDED, max_new_tokens=300), 0.8),
        (replace(RECOMMENDED, max_new_tokens=300, repetition_penalty=1.1), 0.8),
    ],
    ids=["AR", "lossless with groups and lookup", "with a penalty"],
)
def test_the_host_needs_less_than_a_millisecond(settings: DecodeSettings, limit: float) -> None:
    actual = min(milliseconds(settings) for _ in range(3))
    print(f"{actual:.3f} ms of {limit}")
    assert actual < limit
