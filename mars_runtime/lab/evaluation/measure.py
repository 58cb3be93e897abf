"""Decode prompts in batches, and store the output of each prompt."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from mars_runtime.runs.events import Event, RowStep, Step
from mars_runtime.runs.loops import find_loop
from mars_runtime.settings import DecodeSettings, describe

Decode = Callable[[Sequence[Sequence[int]], DecodeSettings], Iterable[Event]]
"""Decodes prompts of any lengths as one batch."""


@dataclass(frozen=True, slots=True)
class RowOutput:
    """tokens: EOS included. taken: how many of them each forward pass emitted."""

    tokens: tuple[int, ...]
    taken: tuple[int, ...]
    is_ended: bool
    is_looped: bool = False

    def __post_init__(self) -> None:
        if not self.tokens or sum(self.taken) != len(self.tokens):
            raise ValueError("An output needs tokens, and the forward passes that emitted them.")

    @property
    def tokens_per_forward(self) -> float:
        return len(self.tokens) / len(self.taken)

    def without_loop(self) -> RowOutput:
        """The pass in which the loop begins counts up to there."""
        loop = find_loop(self.tokens)
        if loop is None:
            return self
        kept: list[int] = []
        for count in self.taken:
            if sum(kept) == loop.kept:
                break
            kept.append(min(count, loop.kept - sum(kept)))
        return RowOutput(self.tokens[: loop.kept], tuple(kept), is_ended=False, is_looped=True)


def read_rows(events: Iterable[Event], num_rows: int) -> list[RowOutput]:
    """Raises ValueError if a row has no tokens."""
    steps: list[list[RowStep]] = [[] for _ in range(num_rows)]
    for event in events:
        if isinstance(event, Step):
            for row in event.rows:
                steps[row.row].append(row)
    return [
        RowOutput(
            tokens=tuple(token for step in row for token in step.accepted),
            taken=tuple(len(step.accepted) for step in row),
            is_ended=bool(row) and row[-1].stop == "eos",
        )
        for row in steps
    ]


def decode_in_batches(
    decode: Decode,
    prompts: Sequence[Sequence[int]],
    settings: DecodeSettings,
    batch_size: int,
    on_rows: Callable[[int], None] = lambda count: None,
) -> list[RowOutput]:
    """Decode prompts of similar lengths together; return the outputs in the order of
    ``prompts``."""
    outputs: dict[int, RowOutput] = {}
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    for first in range(0, len(order), batch_size):
        batch = order[first : first + batch_size]
        events = decode([prompts[index] for index in batch], settings)
        outputs.update(zip(batch, read_rows(events, len(batch)), strict=True))
        on_rows(len(batch))
    return [outputs[index] for index in range(len(prompts))]


@dataclass(frozen=True, slots=True)
class Cell:
    """What determines stored outputs."""

    checkpoint: str
    fingerprint: str
    dtype: str
    family: str
    prompts_id: str
    num_prompts: int
    settings: DecodeSettings

    @property
    def key(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def method(self) -> str:
        return f"{self.checkpoint} · {describe(self.settings)}"

    @property
    def reference(self) -> Cell:
        return replace(self, settings=DecodeSettings(max_new_tokens=self.settings.max_new_tokens))


@dataclass(frozen=True, slots=True)
class StoredCell:
    key: str
    outputs: tuple[RowOutput, ...]


LINE = TypeAdapter(StoredCell)


class CellStore:
    """Outputs are appended as lines of JSON; invalid lines are ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cells: dict[str, tuple[RowOutput, ...]] = {}
        for line in path.read_bytes().split(b"\n") if path.exists() else ():
            try:
                stored = LINE.validate_json(line, strict=True)
                self._cells[stored.key] = stored.outputs
            except ValueError:
                continue

    def get(self, cell: Cell) -> tuple[RowOutput, ...] | None:
        return self._cells.get(cell.key)

    def put(self, cell: Cell, outputs: Sequence[RowOutput]) -> None:
        stored = StoredCell(cell.key, tuple(outputs))
        # The leading line break separates this line from a line that a crash left incomplete.
        with self._path.open("ab") as file:
            file.write(b"\n" + LINE.dump_json(stored) + b"\n")
        self._cells[stored.key] = stored.outputs
