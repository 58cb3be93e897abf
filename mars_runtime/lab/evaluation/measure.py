"""Decode prompts in batches, and extract the output of each prompt from the events."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mars_runtime.runs.events import Event, RowStep, Step
from mars_runtime.runs.loops import find_loop
from mars_runtime.settings import DecodeSettings

Decode = Callable[[Sequence[Sequence[int]], DecodeSettings], Iterable[Event]]
"""A function that decodes prompts of any lengths as one batch, with the same settings."""


@dataclass(frozen=True, slots=True)
class RowOutput:
    """The output for one prompt.

    - tokens: emitted tokens, EOS included.
    - taken, offered: for each forward pass of the row, the number of tokens that it emitted and the
      number that it could have emitted at most.
    - is_looped: whether a repetition loop was cut off.
    """

    tokens: tuple[int, ...]
    taken: tuple[int, ...]
    offered: tuple[int, ...]
    is_ended: bool
    is_looped: bool = False

    @property
    def num_forwards(self) -> int:
        return len(self.taken)

    def without_loop(self) -> RowOutput:
        """Return the output up to its repetition loop, including the loop's pass up to there."""
        loop = find_loop(self.tokens)
        if loop is None:
            return self
        length = loop.kept
        kept_counts: list[int] = []
        for count in self.taken:
            if sum(kept_counts) == length:
                break
            kept_counts.append(min(count, length - sum(kept_counts)))
        return replace(
            self,
            tokens=self.tokens[:length],
            taken=tuple(kept_counts),
            offered=self.offered[: len(kept_counts)],
            is_ended=False,
            is_looped=True,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """The graded output for one prompt, as it is stored.

    is_right: result of the task's checker, None without a checker. output_id: hash of the tokens.
    """

    num_tokens: int
    num_forwards: int
    is_ended: bool
    is_right: bool | None
    output_id: str
    text: str
    taken: tuple[int, ...] = ()
    offered: tuple[int, ...] = ()
    is_looped: bool = False

    @property
    def tokens_per_forward(self) -> float:
        return self.num_tokens / self.num_forwards


def read_rows(events: Iterable[Event], num_rows: int) -> list[RowOutput]:
    """Extract the output of each row. Raises ValueError if a row has no forward pass."""
    steps: list[list[RowStep]] = [[] for _ in range(num_rows)]
    for event in events:
        if isinstance(event, Step):
            for row in event.rows:
                steps[row.row].append(row)
    if [] in steps:
        raise ValueError(f"Row {steps.index([])} of the batch was never decoded.")
    return [_output(row_steps) for row_steps in steps]


def num_offered(step: RowStep, before: RowStep | None) -> int:
    """Return the maximum number of tokens that a forward pass could have emitted: in a lossless
    pass AR's token and the drafts of the pass ``before``.
    """
    if step.settings.facts.is_alone:
        return max(1, len(step.accepted))
    if not step.settings.is_verified:
        return len(step.proposals)
    return 1 + (len(before.drafts) if before is not None else 0)


def survival(forwards: Iterable[tuple[int, int]]) -> list[float]:
    """Return, for each position of a pass, the share of passes that emitted a token there among
    those that could have. forwards: (emitted, offered) of each pass.
    """
    pairs = list(forwards)
    widest = max((offered for _, offered in pairs), default=0)
    shares = []
    for position in range(widest):
        emitted = [taken > position for taken, offered in pairs if offered > position]
        shares.append(sum(emitted) / len(emitted))
    return shares


def _output(steps: Sequence[RowStep]) -> RowOutput:
    return RowOutput(
        tokens=tuple(token for step in steps for token in step.accepted),
        taken=tuple(len(step.accepted) for step in steps),
        offered=tuple(
            num_offered(step, before)
            for step, before in zip(steps, [None, *steps[:-1]], strict=True)
        ),
        is_ended=steps[-1].stop == "eos",
    )


def by_length(texts: Sequence[Sequence[int]], batch_size: int) -> Iterator[list[int]]:
    """Yield batches of indices into ``texts``. Texts of similar lengths share a batch."""
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    yield from (order[first : first + batch_size] for first in range(0, len(order), batch_size))


def decode_in_batches(
    decode: Decode,
    prompts: Sequence[Sequence[int]],
    settings: DecodeSettings,
    batch_size: int,
    on_rows: Callable[[int], None] = lambda count: None,
) -> list[RowOutput]:
    """Decode all prompts, similar lengths together; return the outputs in the order of ``prompts``.
    on_rows: called after each batch with its number of prompts.
    """
    outputs: dict[int, RowOutput] = {}
    for batch in by_length(prompts, batch_size):
        events = decode([prompts[index] for index in batch], settings)
        outputs.update(zip(batch, read_rows(events, len(batch)), strict=True))
        on_rows(len(batch))
    return [outputs[index] for index in range(len(prompts))]


def outcome_of(output: RowOutput, text: str, is_right: bool | None) -> Outcome:
    ids = ",".join(map(str, output.tokens))
    return Outcome(
        num_tokens=len(output.tokens),
        num_forwards=output.num_forwards,
        is_ended=output.is_ended,
        is_right=is_right,
        output_id=hashlib.sha256(ids.encode()).hexdigest()[:16],
        text=text,
        taken=output.taken,
        offered=output.offered,
        is_looped=output.is_looped,
    )
