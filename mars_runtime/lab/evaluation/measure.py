"""Decode prompts in batches and record the output of each: a fold over events."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mars_runtime.events import Event, RowStep, Step
from mars_runtime.loops import find_loop
from mars_runtime.settings import DecodeSettings

Decode = Callable[[Sequence[Sequence[int]], DecodeSettings], Iterable[Event]]
"""Decodes a ragged batch of token ids with one settings for all rows."""


@dataclass(frozen=True, slots=True)
class RowOutput:
    """The output for one prompt.

    tokens: EOS included. taken, offered: for each forward pass of the row without prefill, how many
    tokens were emitted and how many could have been. is_looped: whether a repetition loop was cut.
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
        """Return the output before a repetition loop. The forward pass in which the loop begins
        counts with its remaining tokens."""
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
    """A RowOutput, judged and reduced to what is stored.

    is_right: by the task's checker, None without one. output_id: equal for two outcomes exactly
    when their tokens are. taken, offered, is_looped: as in RowOutput.
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
        """Tokens per forward pass of this row, up to EOS."""
        return self.num_tokens / self.num_forwards


def read_rows(events: Iterable[Event], num_rows: int) -> list[RowOutput]:
    """Return each row's tokens and forward passes in a batch. Raises ValueError for a row without
    any.
    """
    steps: list[list[RowStep]] = [[] for _ in range(num_rows)]
    for event in events:
        if isinstance(event, Step):
            for row in event.rows:
                steps[row.row].append(row)
    if [] in steps:
        raise ValueError(f"Row {steps.index([])} of the batch was never decoded.")
    return [_output(row_steps) for row_steps in steps]


def num_offered(step: RowStep, before: RowStep | None) -> int:
    """Return how many tokens a forward pass could have emitted. In lossless mode that is AR's token
    and the drafts of the previous forward pass: new proposals must be verified first."""
    if step.settings.method == "ar":
        return 1
    if step.settings.method == "block_diffusion":
        return max(1, len(step.accepted))
    if not step.settings.is_verified:
        return len(step.proposals)
    return 1 + (len(before.drafts) if before is not None else 0)


def survival(forwards: Iterable[tuple[int, int]]) -> list[float]:
    """Return acceptance by position: of the forward passes that offered a token there, the share
    that emitted it. forwards: pairs of emitted and offered tokens."""
    known = list(forwards)
    widest = max((offered for _, offered in known), default=0)
    shares = []
    for place in range(widest):
        emitted = [taken > place for taken, offered in known if offered > place]
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
    """Yield batches of indices of texts with similar lengths."""
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    yield from (order[first : first + batch_size] for first in range(0, len(order), batch_size))


def decode_in_batches(
    decode: Decode,
    prompts: Sequence[Sequence[int]],
    settings: DecodeSettings,
    batch_size: int,
    on_rows: Callable[[int], None] = lambda count: None,
) -> list[RowOutput]:
    """Return outputs in the order of ``prompts``. Prompts of similar lengths share a batch, which
    changes only the time. on_rows: called with the size of each finished batch."""
    outputs: dict[int, RowOutput] = {}
    for batch in by_length(prompts, batch_size):
        events = decode([prompts[index] for index in batch], settings)
        outputs.update(zip(batch, read_rows(events, len(batch)), strict=True))
        on_rows(len(batch))
    return [outputs[index] for index in range(len(prompts))]


def judge(output: RowOutput, text: str, is_right: bool | None) -> Outcome:
    """Return the outcome of one output."""
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
