"""What does it save the second turn of a conversation that the first one is kept?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from mars_runtime.lab.load.document import Section, told
from mars_runtime.lab.load.parts.base import Bench, Part
from mars_runtime.lab.profiling.turns import QUESTIONS, TimedTurn, converse, table_of
from mars_runtime.statistics import median
from mars_runtime.traffic.controller import Bounds
from mars_runtime.traffic.ways import LOSSLESS, ways_of

NUM_TURNS = 2
ANSWER_TOKENS = 192  # at most: as long as a chat model likes to answer


class SecondTurn(Part):
    """Conversations of the ``turns`` command, on an engine that keeps what it has read."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._found: list[list[TimedTurn]] = []

    def measure(self) -> Iterator[str]:
        """Every prompt twice: with what is kept, then without."""
        from mars_runtime.engine import Engine

        checkpoint = self._bench.checkpoint
        if not checkpoint.model.is_bitwise:
            yield "nothing is kept, because arithmetic is not bitwise"
            return
        settings = ways_of(Bounds())[LOSSLESS].settings
        settings = replace(settings, max_new_tokens=ANSWER_TOKENS)
        with closing(Engine(checkpoint, max_runs=1)) as engine:
            engine.costs()
            for question in QUESTIONS:
                turns = converse(engine, checkpoint.tokenizer, question, NUM_TURNS, settings)
                self._found.append(turns)
                yield f"{1000 * turns[-1].warm:.0f} ms kept, {1000 * turns[-1].cold:.0f} ms not"

    def section(self) -> Section | None:
        """The table of the ``turns`` command, and the ratio of the last turn."""
        if not self._found:
            return None
        ratio = median([turns[-1].warm / turns[-1].cold for turns in self._found])
        sentence = (
            f"The first token of a second turn takes {told(ratio)} of the time that it takes "
            "where nothing is kept."
        )
        data = {
            "ratio": ratio.value,
            "turns": [[[turn.warm, turn.cold] for turn in turns] for turns in self._found],
            "is_equal": all(turn.is_equal for turns in self._found for turn in turns),
        }
        name = self._bench.order.checkpoint
        return Section("second_turn", (sentence,), table_of(name, self._found), data)
