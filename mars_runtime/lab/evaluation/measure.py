"""Decode prompts and say of each what came out: a fold over the events of batches.

Knows no model: ``Decode`` is any function from prompts and settings to events. Nothing is timed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mars_runtime.events import Event, RowStep, Step
from mars_runtime.loops import find_loop
from mars_runtime.settings import DecodeSettings

Decode = Callable[[Sequence[Sequence[int]], DecodeSettings], Iterable[Event]]
"""Decodes a ragged batch: prompts as token ids, one settings for all rows."""


@dataclass(frozen=True, slots=True)
class RowOutput:
    """What one prompt gave. ``tokens`` holds EOS when it was reached; ``taken`` and ``offered`` say
    of each forward this row took part in, prefill apart, how many tokens left and how many could
    have. is_looped: whether the tokens went on in a repetition that was cut off."""

    tokens: tuple[int, ...]
    taken: tuple[int, ...]
    offered: tuple[int, ...]
    is_ended: bool
    is_looped: bool = False

    @property
    def num_forwards(self) -> int:
        return len(self.taken)

    def without_loop(self) -> RowOutput:
        """Up to where the tokens begin to repeat themselves; the forward that went beyond counts as
        far as it is kept."""
        loop = find_loop(self.tokens)
        if loop is None:
            return self
        length = loop.kept
        kept: list[int] = []
        for count in self.taken:
            if sum(kept) == length:
                break
            kept.append(min(count, length - sum(kept)))
        return replace(
            self,
            tokens=self.tokens[:length],
            taken=tuple(kept),
            offered=self.offered[: len(kept)],
            is_ended=False,
            is_looped=True,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """A RowOutput judged and made small enough to keep.

    is_right: by the task's checker, None for text that has no right answer.
    output_id: equal for two outcomes exactly when their tokens are.
    taken, offered, is_looped: as of a RowOutput.
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
        """TPF of this row, to EOS."""
        return self.num_tokens / self.num_forwards


def read_rows(events: Iterable[Event], num_rows: int) -> list[RowOutput]:
    """Gather each row's tokens and forwards from a batch. Raises ValueError for a row that never
    took part."""
    steps: list[list[RowStep]] = [[] for _ in range(num_rows)]
    for event in events:
        if isinstance(event, Step):
            for row in event.rows:
                steps[row.row].append(row)
    if [] in steps:
        raise ValueError(f"Row {steps.index([])} of the batch was never decoded.")
    return [_output(own) for own in steps]


def num_offered(step: RowStep, before: RowStep | None) -> int:
    """Tokens that could have left with a forward: in lossless mode AR's own and the drafts that the
    forward before left to verify, for what masks propose cannot leave at once."""
    if step.settings.method == "ar":
        return 1
    if step.settings.method == "block_diffusion":
        return max(1, len(step.accepted))
    if not step.settings.is_verified:
        return len(step.proposals)
    return 1 + (len(before.drafts) if before is not None else 0)


def survival(forwards: Iterable[tuple[int, int]]) -> list[float]:
    """Acceptance by position: for each place in a forward, of the forwards that offered a token
    there the share that gave it. ``forwards`` are pairs of tokens taken and offered."""
    known = list(forwards)
    widest = max((offered for _, offered in known), default=0)
    found = []
    for place in range(widest):
        given = [taken > place for taken, offered in known if offered > place]
        found.append(sum(given) / len(given))
    return found


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
    """Numbers of the texts in batches; those of like length share one."""
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    yield from (order[first : first + batch_size] for first in range(0, len(order), batch_size))


def decode_in_batches(
    decode: Decode,
    prompts: Sequence[Sequence[int]],
    settings: DecodeSettings,
    batch_size: int,
    on_rows: Callable[[int], None] = lambda count: None,
) -> list[RowOutput]:
    """Outputs in the order of ``prompts``. Prompts of like length share a batch, which changes the
    time it takes and, by law 2, nothing else. ``on_rows`` hears the size of each finished batch."""
    outputs: dict[int, RowOutput] = {}
    for batch in by_length(prompts, batch_size):
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
        taken=output.taken,
        offered=output.offered,
        is_looped=output.is_looped,
    )
