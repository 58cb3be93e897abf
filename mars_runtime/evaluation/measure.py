"""Decode prompts and say of each what came out: a fold over the events of batches.

Knows no model: ``Decode`` is any function from prompts and settings to events. Nothing is timed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mars_runtime.events import Event, Step
from mars_runtime.settings import DecodeSettings

Decode = Callable[[Sequence[Sequence[int]], DecodeSettings], Iterable[Event]]
"""Decodes a ragged batch: prompts as token ids, one settings for all rows."""


@dataclass(frozen=True, slots=True)
class RowOutput:
    """What one prompt gave. ``tokens`` holds EOS when it was reached; ``num_forwards`` are the
    forwards this row took part in, prefill apart."""

    tokens: tuple[int, ...]
    num_forwards: int
    is_ended: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """A RowOutput judged and made small enough to keep.

    is_right: by the task's checker, None for text that has no right answer.
    output_id: equal for two outcomes exactly when their tokens are.
    """

    num_tokens: int
    num_forwards: int
    is_ended: bool
    is_right: bool | None
    output_id: str
    text: str

    @property
    def tokens_per_forward(self) -> float:
        """TPF of this row, to EOS."""
        return self.num_tokens / self.num_forwards


def read_rows(events: Iterable[Event], num_rows: int) -> list[RowOutput]:
    """Gather each row's tokens and forwards from a batch. Raises ValueError for a row that never
    took part."""
    tokens: list[list[int]] = [[] for _ in range(num_rows)]
    forwards = [0] * num_rows
    is_ended = [False] * num_rows
    for event in events:
        if not isinstance(event, Step):
            continue
        for row in event.rows:
            tokens[row.row].extend(row.accepted)
            forwards[row.row] += 1
            is_ended[row.row] = row.stop == "eos"
    if 0 in forwards:
        raise ValueError(f"Row {forwards.index(0)} of the batch was never decoded.")
    return [
        RowOutput(tuple(ids), count, ended)
        for ids, count, ended in zip(tokens, forwards, is_ended, strict=True)
    ]


def decode_in_batches(
    decode: Decode,
    prompts: Sequence[Sequence[int]],
    settings: DecodeSettings,
    batch_size: int,
    on_rows: Callable[[int], None] = lambda count: None,
) -> list[RowOutput]:
    """Outputs in the order of ``prompts``. Prompts of like length share a batch, which changes the
    time it takes and, by law 2, nothing else. ``on_rows`` hears the size of each finished batch."""
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    outputs: dict[int, RowOutput] = {}
    for first in range(0, len(order), batch_size):
        batch = order[first : first + batch_size]
        events = decode([prompts[index] for index in batch], settings)
        outputs.update(zip(batch, read_rows(events, len(batch)), strict=True))
        on_rows(len(batch))
    return [outputs[index] for index in range(len(prompts))]


def judge(output: RowOutput, text: str, is_right: bool | None) -> Outcome:
    """Keep what later figures need of one output."""
    ids = ",".join(map(str, output.tokens))
    return Outcome(
        num_tokens=len(output.tokens),
        num_forwards=output.num_forwards,
        is_ended=output.is_ended,
        is_right=is_right,
        output_id=hashlib.sha256(ids.encode()).hexdigest()[:16],
        text=text,
    )
