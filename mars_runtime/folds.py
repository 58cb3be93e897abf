"""Figures of a run as pure functions of its events; no figure is counted anywhere else.

Seconds are device time: prefill is separate from decoding, and pauses of slow motion are excluded.
A figure of a row without steps is 0. A row-forward is one row in one forward of a batch, whether it
emitted tokens, was committed or was idle; rows that have left a batch are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from mars_runtime.derived import Source, drafted, step_sources
from mars_runtime.events import End, Event, Prefill, RowStep, Step
from mars_runtime.loops import find_loop
from mars_runtime.text import Detokenizer
from mars_runtime.trace import Trace

MIN_TIMED_TOKENS = 20
"""Minimum number of tokens of a run for comparing its speed with another run's."""


def row_steps(events: Iterable[Event], row: int = 0) -> Iterator[tuple[RowStep, float]]:
    """Yield the steps of ``row``, each with the seconds of its forward."""
    for event in events:
        if isinstance(event, Step):
            for step in event.rows:
                if step.row == row:
                    yield step, event.seconds


def rows(events: Iterable[Event]) -> tuple[int, ...]:
    """Return the numbers of the rows that took part, in order."""
    return tuple(sorted({row.row for step in steps(events) for row in step.rows}))


def accepted_tokens(events: Iterable[Event], row: int = 0) -> list[int]:
    """Return the emitted token ids, EOS included."""
    return [token for step, _ in row_steps(events, row) for token in step.accepted]


def num_tokens(events: Iterable[Event], row: int = 0) -> int:
    """Return the number of emitted tokens, EOS included."""
    return sum(len(step.accepted) for step, _ in row_steps(events, row))


def num_forwards(events: Iterable[Event], row: int = 0) -> int:
    """Return the number of forwards of this row, without prefill."""
    return sum(1 for _ in row_steps(events, row))


def loops_at(events: Iterable[Event], row: int = 0) -> int | None:
    """Return how many tokens the row had emitted when its text began to repeat itself, or None.

    See ``loops.py``.
    """
    loop = find_loop(accepted_tokens(events, row))
    return None if loop is None else loop.kept


def up_to_loop(events: Sequence[Event], row: int = 0) -> Sequence[Event]:
    """Return the part of a row's run that figures count: up to where its text begins to repeat
    itself.

    A loop is easy to predict, so counting it would inflate the figures. The last forward is cut to
    the tokens that count, and forwards of other rows only are left out. Without a loop the events
    are returned unchanged.
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
    """Return this row's tokens per forward, without prefill and without a loop at its end."""
    counted = up_to_loop(events, row)
    return _ratio(num_tokens(counted, row), num_forwards(counted, row))


def prefill_seconds(events: Iterable[Event]) -> float:
    """Return the seconds of prefill."""
    return sum(event.seconds for event in events if isinstance(event, Prefill))


def decode_seconds(events: Iterable[Event], row: int = 0) -> float:
    """Return the seconds of the forwards of this row, without prefill."""
    return sum(seconds for _, seconds in row_steps(events, row))


def tokens_per_second(events: Sequence[Event], row: int = 0) -> float:
    """Return the emitted tokens per second of decoding, up to a loop of the text."""
    counted = up_to_loop(events, row)
    return _ratio(num_tokens(counted, row), decode_seconds(counted, row))


def ms_per_forward(events: Sequence[Event], row: int = 0) -> float:
    """Return the mean milliseconds per forward, without prefill, up to a loop of the text."""
    counted = up_to_loop(events, row)
    return 1000 * _ratio(decode_seconds(counted, row), num_forwards(counted, row))


def drafting(events: Iterable[Event], row: int = 0) -> Iterator[tuple[int, int]]:
    """Yield (drafted, accepted) for each forward that judged drafts of the row.

    Drafts are all proposals but the first. In lossless mode they are the fed tokens that were not
    verified yet.
    """
    waiting = 0
    for step, _ in row_steps(events, row):
        num_drafted = drafted(step, waiting)
        if num_drafted:
            yield num_drafted, min(num_drafted, len(step.accepted) - 1)
        waiting = len(step.drafts)


def sources(events: Iterable[Event], row: int = 0) -> Iterator[tuple[Source, ...]]:
    """Yield the sources of the tokens of each forward of the row."""
    before = None
    for step, _ in row_steps(events, row):
        yield step_sources(step, before)
        before = step


def num_draft_forwards(events: Iterable[Event], row: int = 0) -> int:
    """Return the forwards of a draft model for this row, which count in no other figure but
    time."""
    return sum(step.num_draft_forwards for step, _ in row_steps(events, row))


def num_reused(events: Iterable[Event]) -> int:
    """Return the tokens of the prompt that came from the prefix cache."""
    return sum(event.num_reused for event in events if isinstance(event, Prefill))


def ttft(events: Sequence[Event], row: int = 0) -> float | None:
    """Return the seconds to the first tokens (prefill and the row's first step), or None."""
    first = next(row_steps(events, row), None)
    return None if first is None else prefill_seconds(events) + first[1]


def first_divergence(first: Sequence[Event], second: Sequence[Event], row: int = 0) -> int | None:
    """Return the first position where two runs emitted different tokens, or None.

    A run that ended with EOS also differs where the other one continues; a run that is still in
    progress or was cut short does not.
    """
    one, two = accepted_tokens(first, row), accepted_tokens(second, row)
    for position, (a, b) in enumerate(zip(one, two, strict=False)):
        if a != b:
            return position
    shorter = first if len(one) < len(two) else second
    has_ended = any(step.stop == "eos" for step, _ in row_steps(shorter, row))
    return min(len(one), len(two)) if len(one) != len(two) and has_ended else None


def text(trace: Trace, row: int = 0) -> str:
    """Return the output: its given beginning and the emitted text, without EOS."""
    return given_text(trace) + "".join(text_pieces(trace, row))


def given_text(trace: Trace) -> str:
    """Return the given beginning of the output."""
    return Detokenizer(trace.vocabulary.__getitem__).push(trace.header.given)


def text_pieces(trace: Trace, row: int = 0) -> list[str]:
    """Return the text that each forward completed, and a last piece with the rest."""
    detokenizer = Detokenizer(trace.vocabulary.__getitem__)
    detokenizer.push(trace.header.given)
    pieces = [detokenizer.push(visible_tokens(step)) for step, _ in row_steps(trace.events, row)]
    return [*pieces, detokenizer.flush()]


def visible_tokens(step: RowStep) -> tuple[int, ...]:
    """Return the accepted tokens without EOS."""
    return step.accepted[:-1] if step.stop == "eos" else step.accepted


def end(events: Sequence[Event]) -> End | None:
    """Return how the run ended, or None while it is in progress."""
    last = events[-1] if events else None
    return last if isinstance(last, End) else None


@dataclass(frozen=True, slots=True)
class Totals:
    """Figures of a batch; each is 0 without data.

    num_tokens: over all rows, EOS included. num_forwards: of the whole batch; num_commits of them
    are commits. num_row_forwards: rows times forwards; num_idle of them are idle. seconds: of
    decoding, without prefill_seconds. peak_cache_bytes: of the largest group. num_looped: rows with
    texts that began to repeat themselves. From there on they took num_loop_tokens in
    num_loop_forwards row-forwards, in num_loop_steps forwards without any other row, and
    loop_seconds, their share of each forward's time. Loops are searched for when the run has ended,
    and every rate excludes them.
    """

    num_tokens: int
    num_forwards: int
    num_commits: int
    num_row_forwards: int
    num_idle: int
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
        """Tokens of all rows, without loops."""
        return self.num_tokens - self.num_loop_tokens

    @property
    def counted_forwards(self) -> int:
        """Forwards of the batch, without those in which every row was in a loop."""
        return self.num_forwards - self.num_loop_steps

    @property
    def counted_row_forwards(self) -> int:
        """Row-forwards without loops; idle ones and commits are included."""
        return self.num_row_forwards - self.num_loop_forwards

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all rows per second of decoding, without loops."""
        return _ratio(self.counted_tokens, self.seconds - self.loop_seconds)

    @property
    def effective_tpf(self) -> float:
        """Tokens per row-forward, without loops."""
        return _ratio(self.counted_tokens, self.counted_row_forwards)

    @property
    def idle_share(self) -> float:
        """Return the share of (row, forward) pairs in which the row had already finished."""
        return _ratio(self.num_idle, self.num_row_forwards)


def steps(events: Iterable[Event]) -> list[Step]:
    """Return the steps, without prefill."""
    return [event for event in events if isinstance(event, Step)]


def totals(events: Sequence[Event]) -> Totals:
    """Return all figures of the batch so far."""
    forwards = steps(events)
    num_idle = sum(len(step.idle) for step in forwards)
    loops = _loops(events) if end(events) else {}
    beyond = [_num_in_loops(step, loops) for step in forwards]
    return Totals(
        num_tokens=sum(map(num_accepted, forwards)),
        num_forwards=len(forwards),
        num_commits=sum(step.is_commit for step in forwards),
        num_row_forwards=sum(len(step.rows) for step in forwards) + num_idle,
        num_idle=num_idle,
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
            step.seconds * num / (len(step.rows) + len(step.idle))
            for num, step in zip(beyond, forwards, strict=True)
            if num
        ),
    )


def _loops(events: Sequence[Event]) -> dict[int, int]:
    """Return row -> number of tokens before its loop, for rows with a text that repeats itself."""
    by_row = {row: loops_at(events, row) for row in rows(events)}
    return {row: kept for row, kept in by_row.items() if kept is not None}


def _num_in_loops(step: Step, loops: Mapping[int, int]) -> int:
    """Return how many rows of a forward were already in their loops."""
    return sum(row.row in loops and row.start >= loops[row.row] for row in step.rows)


def num_accepted(step: Step) -> int:
    """Return the number of tokens that a forward emitted for all rows together."""
    return sum(len(row.accepted) for row in step.rows)


def peak_cache_bytes(events: Iterable[Event]) -> int:
    """Return the bytes of the largest group's keys and values; each group frees them before the
    next."""
    return max((event.cache_bytes for event in events if isinstance(event, Prefill)), default=0)


def timeline(events: Sequence[Event]) -> list[tuple[float, int]]:
    """Return (seconds of decoding, tokens of all rows), at the start and after each forward."""
    forwards = steps(events)
    clocks = accumulate((step.seconds for step in forwards), initial=0.0)
    counts = accumulate(map(num_accepted, forwards), initial=0)
    return list(zip(clocks, counts, strict=True))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
