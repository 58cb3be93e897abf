"""Compute the statistics of a run from its events: tokens, forward passes, times and rates.

Seconds are device time without the pauses of slow motion; prefill is separate. A row-forward is one
row in one forward pass of a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mars_runtime.decoders.methods import Source
from mars_runtime.runs.annotations import step_drafting, step_sources
from mars_runtime.runs.events import FINAL, End, Event, Prefill, RowStep, Step
from mars_runtime.runs.loops import find_loop
from mars_runtime.runs.trace import Trace
from mars_runtime.text import Detokenizer

MIN_TIMED_TOKENS = 20
"""Tokens that each of two runs needs before their speeds are compared."""


def row_steps(events: Iterable[Event], row: int = 0) -> Iterator[tuple[RowStep, float]]:
    for event in events:
        if isinstance(event, Step):
            for step in event.rows:
                if step.row == row:
                    yield step, event.seconds


def rows(events: Iterable[Event]) -> tuple[int, ...]:
    return tuple(sorted({row.row for step in steps(events) for row in step.rows}))


def accepted_tokens(events: Iterable[Event], row: int = 0) -> list[int]:
    return [token for step, _ in row_steps(events, row) for token in step.accepted]


def num_tokens(events: Iterable[Event], row: int = 0) -> int:
    return sum(len(step.accepted) for step, _ in row_steps(events, row))


def num_forwards(events: Iterable[Event], row: int = 0) -> int:
    return sum(1 for _ in row_steps(events, row))


def loops_at(events: Iterable[Event], row: int = 0) -> int | None:
    """Return the number of tokens before the text of this row began to repeat itself, or None."""
    loop = find_loop(accepted_tokens(events, row))
    return None if loop is None else loop.kept


def up_to_loop(events: Sequence[Event], row: int = 0) -> Sequence[Event]:
    """Return the events of ``row`` up to its repetition loop, because loops are easy to predict and
    would inflate the speed. The last step is cut to the tokens before the loop. Steps that do not
    contain ``row`` are dropped.
    """
    num_counted = loops_at(events, row)
    if num_counted is None:
        return events
    counted: list[Event] = []
    for event in events:
        if not isinstance(event, Step):
            counted.append(event)
            continue
        row_steps = [step for step in event.rows if step.row == row and step.start < num_counted]
        cut = tuple(
            replace(step, accepted=step.accepted[: num_counted - step.start]) for step in row_steps
        )
        if cut:
            counted.append(replace(event, rows=cut))
    return counted


def tpf(events: Sequence[Event], row: int = 0) -> float:
    """Return tokens per forward pass, without prefill and a repetition loop."""
    counted = up_to_loop(events, row)
    return _ratio(num_tokens(counted, row), num_forwards(counted, row))


def prefill_seconds(events: Iterable[Event]) -> float:
    return sum(event.seconds for event in events if isinstance(event, Prefill))


def decode_seconds(events: Iterable[Event], row: int = 0) -> float:
    return sum(seconds for _, seconds in row_steps(events, row))


def tokens_per_second(events: Sequence[Event], row: int = 0) -> float:
    """Without prefill and a repetition loop."""
    counted = up_to_loop(events, row)
    return _ratio(num_tokens(counted, row), decode_seconds(counted, row))


def ms_per_forward(events: Sequence[Event], row: int = 0) -> float:
    """Without prefill and a repetition loop."""
    counted = up_to_loop(events, row)
    return 1000 * _ratio(decode_seconds(counted, row), num_forwards(counted, row))


def drafting(events: Iterable[Event], row: int = 0) -> Iterator[tuple[int, int]]:
    before = None
    for step, _ in row_steps(events, row):
        numbers = step_drafting(step, before)
        if numbers[0]:
            yield numbers
        before = step


def sources(events: Iterable[Event], row: int = 0) -> Iterator[tuple[Source, ...]]:
    before = None
    for step, _ in row_steps(events, row):
        yield step_sources(step, before)
        before = step


def num_draft_forwards(events: Iterable[Event], row: int = 0) -> int:
    """Other functions include their time but do not count them."""
    return sum(step.num_draft_forwards for step, _ in row_steps(events, row))


def declined(events: Iterable[Event], row: int = 0) -> tuple[float, ...]:
    """Return ``RowStep.declined`` of the row's last step."""
    steps = [step for step, _ in row_steps(events, row)]
    return steps[-1].declined if steps else ()


def num_reused(events: Iterable[Event]) -> int:
    return sum(event.num_reused for event in events if isinstance(event, Prefill))


def ttft(events: Sequence[Event], row: int = 0) -> float | None:
    """Return the time to first token: prefill and the row's first step; None without a step."""
    first = next(row_steps(events, row), None)
    return None if first is None else prefill_seconds(events) + first[1]


def first_divergence(first: Sequence[Event], second: Sequence[Event], row: int = 0) -> int | None:
    """Return the first position where two runs emitted different tokens, or None. A run that ended
    with EOS differs at its length; missing tokens of any other run are not a difference.
    """
    a, b = accepted_tokens(first, row), accepted_tokens(second, row)
    for position, (token, other) in enumerate(zip(a, b, strict=False)):
        if token != other:
            return position
    shorter = first if len(a) < len(b) else second
    has_ended = any(step.stop == "eos" for step, _ in row_steps(shorter, row))
    return min(len(a), len(b)) if len(a) != len(b) and has_ended else None


def differs_at(first: Sequence[Event], second: Sequence[Event]) -> int | None:
    """Return the first position where the texts of two runs differ, counted until they begin to
    repeat themselves, or None. If both texts are complete, a longer one differs too.
    """
    texts = [accepted_tokens(up_to_loop(events)) for events in (first, second)]
    for position, (token, other) in enumerate(zip(*texts, strict=False)):
        if token != other:
            return position
    ends = [end(events) for events in (first, second)]
    is_complete = all(last is not None and last.reason in FINAL for last in ends)
    lengths = sorted(map(len, texts))
    return lengths[0] if is_complete and lengths[0] < lengths[1] else None


def text(trace: Trace, row: int = 0) -> str:
    return given_text(trace) + "".join(text_pieces(trace, row))


def given_text(trace: Trace) -> str:
    return Detokenizer(trace.vocabulary.__getitem__).push(trace.header.given)


def text_pieces(trace: Trace, row: int = 0) -> list[str]:
    """Return the text that each step completed, and a last piece for incomplete characters."""
    detokenizer = Detokenizer(trace.vocabulary.__getitem__)
    detokenizer.push(trace.header.given)
    pieces = [detokenizer.push(visible_tokens(step)) for step, _ in row_steps(trace.events, row)]
    return [*pieces, detokenizer.flush()]


def visible_tokens(step: RowStep) -> tuple[int, ...]:
    return step.accepted[:-1] if step.stop == "eos" else step.accepted


def end(events: Sequence[Event]) -> End | None:
    last = events[-1] if events else None
    return last if isinstance(last, End) else None


@dataclass(frozen=True, slots=True)
class Totals:
    """Statistics of a batch.

    - seconds: without prefill_seconds.
    - peak_cache_bytes: bytes of keys and values of the largest group of rows.
    - num_looped: rows with a repetition loop, which every rate excludes.
    - num_loop_steps: forward passes in which every active row was in a loop.
    - loop_seconds: time spent in loops; rows share the time of a forward pass equally.
    """

    num_tokens: int
    num_forwards: int
    num_row_forwards: int
    seconds: float
    prefill_seconds: float
    peak_cache_bytes: int
    num_looped: int = 0
    num_loop_tokens: int = 0
    num_loop_forwards: int = 0
    num_loop_steps: int = 0
    loop_seconds: float = 0.0

    @property
    def counted_tokens(self) -> int:
        return self.num_tokens - self.num_loop_tokens

    @property
    def counted_forwards(self) -> int:
        return self.num_forwards - self.num_loop_steps

    @property
    def counted_row_forwards(self) -> int:
        return self.num_row_forwards - self.num_loop_forwards

    @property
    def tokens_per_second(self) -> float:
        return _ratio(self.counted_tokens, self.seconds - self.loop_seconds)

    @property
    def effective_tpf(self) -> float:
        return _ratio(self.counted_tokens, self.counted_row_forwards)


def steps(events: Iterable[Event]) -> list[Step]:
    return [event for event in events if isinstance(event, Step)]


def totals(events: Sequence[Event]) -> Totals:
    forwards = steps(events)
    loops = _loops(events) if end(events) else {}
    beyond = [_num_in_loops(step, loops) for step in forwards]
    return Totals(
        num_tokens=sum(map(num_accepted, forwards)),
        num_forwards=len(forwards),
        num_row_forwards=sum(len(step.rows) for step in forwards),
        seconds=sum(step.seconds for step in forwards),
        prefill_seconds=prefill_seconds(events),
        peak_cache_bytes=peak_cache_bytes(events),
        num_looped=len(loops),
        num_loop_tokens=sum(num_tokens(events, row) - kept for row, kept in loops.items()),
        num_loop_forwards=sum(beyond),
        num_loop_steps=sum(
            0 < num == len(step.rows) for num, step in zip(beyond, forwards, strict=True)
        ),
        loop_seconds=sum(
            step.seconds * num / len(step.rows)
            for num, step in zip(beyond, forwards, strict=True)
            if num
        ),
    )


def _loops(events: Sequence[Event]) -> dict[int, int]:
    by_row = {row: loops_at(events, row) for row in rows(events)}
    return {row: kept for row, kept in by_row.items() if kept is not None}


def _num_in_loops(step: Step, loops: Mapping[int, int]) -> int:
    return sum(row.row in loops and row.start >= loops[row.row] for row in step.rows)


def num_accepted(step: Step) -> int:
    return sum(len(row.accepted) for row in step.rows)


def peak_cache_bytes(events: Iterable[Event]) -> int:
    """Each group of rows frees its cache before the next one starts."""
    return max((event.cache_bytes for event in events if isinstance(event, Prefill)), default=0)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
