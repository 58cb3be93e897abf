"""What every part of the ``load`` command has: an order, a checkpoint, an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mars_runtime.traffic.drive import Drive, Load, Progress
from mars_runtime.traffic.mix import Ask, asks_of
from mars_runtime.traffic.ways import Way

if TYPE_CHECKING:
    from mars_runtime.engine import Engine
    from mars_runtime.lab.load.document import Section
    from mars_runtime.model.load import Checkpoint

MAX_LINE = 100_000


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked of the command: rows that share forwards, seconds of arrivals of a cell,
    rounds, tokens of an answer at most, prompts of a closed load, the seed of all of them."""

    checkpoint: str
    rows: int
    seconds: float
    rounds: int
    max_new_tokens: int
    num_prompts: int
    seed: int


@dataclass(frozen=True, slots=True)
class Bench:
    """Where a part measures. ``engine`` keeps nothing of earlier texts, so that no way of decoding
    profits from the one before it."""

    order: Order
    checkpoint: Checkpoint
    engine: Engine

    def asks(self, count: int, seed: int, budget: float | None = None) -> tuple[Ask, ...]:
        """Short prompts for the checkpoint."""
        order, tokenizer = self.order, self.checkpoint.tokenizer
        return asks_of(
            order.checkpoint, tokenizer, "short", count, order.max_new_tokens, seed, budget
        )

    def drive(
        self, way: Way, asks: Sequence[Ask], arrivals: Sequence[float], places: int | None = None
    ) -> Progress:
        """One load, to its end."""
        rows = self.order.rows if places is None else places
        return Drive(self.engine, Load(arrivals, asks, way, rows, MAX_LINE)).run()

    def at_once(self, way: Way, asks: Sequence[Ask], places: int) -> Progress:
        """A closed load: all are there from the start, ``places`` are served at a time."""
        return self.drive(way, asks, (0.0,) * len(asks), places)


class Part(ABC):
    """One question. What was measured when it is stopped is kept."""

    @abstractmethod
    def measure(self) -> Iterator[str]:
        """Measure bit by bit; yields what was just measured, in words."""

    @abstractmethod
    def section(self) -> Section | None:
        """What is known by now; None as long as that is nothing."""
