"""Every figure of a run as a pure function of its events; nothing is counted anywhere else.

Seconds are device time: prefill apart from decoding, waits of slow motion outside. A figure of a
row that has no step yet is 0. Of a whole batch a row-forward is one row in one forward, whether it
took tokens, took part in a commit or sat idle; rows that have left a batch cost none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

from mars_runtime.events import End, Event, Prefill, RowStep, Step
from mars_runtime.loops import find_loop
from mars_runtime.methods import Method
from mars_runtime.text import Detokenizer
from mars_runtime.trace import Trace

Source = Literal["ar", "masks", "look-up", "draft model", "guesses"]
"""Who proposed a token: the slot that AR itself would have read (``ar``), masks, the text behind an
earlier occurrence of its last tokens, a draft model, or Jacobi's guesses."""

UNDRAFTED: frozenset[Method] = frozenset({"ar", "block_diffusion"})
"""Methods that judge no drafts: each token is the model's own."""

MIN_TIMED_TOKENS = 20
"""Tokens that a run must have before its speed is compared with another's."""


def row_steps(events: Iterable[Event], row: int = 0) -> Iterator[tuple[RowStep, float]]:
    """What each forward did for ``row``, with the seconds of that forward."""
    for event in events:
        if isinstance(event, Step):
            for step in event.rows:
                if step.row == row:
                    yield step, event.seconds


def rows(events: Iterable[Event]) -> tuple[int, ...]:
    """The rows that took part, in order."""
    return tuple(sorted({row.row for step in steps(events) for row in step.rows}))


def accepted_tokens(events: Iterable[Event], row: int = 0) -> list[int]:
    """The emitted token ids, the end of turn included."""
    return [token for step, _ in row_steps(events, row) for token in step.accepted]


def num_tokens(events: Iterable[Event], row: int = 0) -> int:
    """Emitted tokens, the end of turn included."""
    return sum(len(step.accepted) for step, _ in row_steps(events, row))


def num_forwards(events: Iterable[Event], row: int = 0) -> int:
    """Forwards that this row took part in, prefill apart."""
    return sum(1 for _ in row_steps(events, row))


def loops_at(events: Iterable[Event], row: int = 0) -> int | None:
    """How many tokens the row had emitted when its text began to repeat itself (``loops.py``); None
    where it did not."""
    loop = find_loop(accepted_tokens(events, row))
    return None if loop is None else loop.kept


def up_to_loop(events: Sequence[Event], row: int = 0) -> Sequence[Event]:
    """The part of a row's run that figures count: up to where its text begins to repeat itself.

    A loop is easy to predict and worth nothing. The last forward is cut down to the tokens that
    count; forwards of other rows only are left out. Without a loop the events are returned as they
    are.
    """
    kept = loops_at(events, row)
    if kept is None:
        return events
    found: list[Event] = []
    for event in events:
        if not isinstance(event, Step):
            found.append(event)
            continue
        own = [step for step in event.rows if step.row == row and step.start < kept]
        cut = tuple(replace(step, accepted=step.accepted[: kept - step.start]) for step in own)
        if cut:
            found.append(replace(event, rows=cut))
    return found


def tpf(events: Sequence[Event], row: int = 0) -> float:
    """Tokens per forward of this row, prefill apart, up to a loop of its text."""
    counted = up_to_loop(events, row)
    return _ratio(num_tokens(counted, row), num_forwards(counted, row))


def prefill_seconds(events: Iterable[Event]) -> float:
    """Seconds to read the prompt."""
    return sum(event.seconds for event in events if isinstance(event, Prefill))


def decode_seconds(events: Iterable[Event], row: int = 0) -> float:
    """Seconds of the forwards that this row took part in, prefill apart."""
    return sum(seconds for _, seconds in row_steps(events, row))


def tokens_per_second(events: Sequence[Event], row: int = 0) -> float:
    """Emitted tokens per second of decoding, prefill apart, up to a loop of the text."""
    counted = up_to_loop(events, row)
    return _ratio(num_tokens(counted, row), decode_seconds(counted, row))


def ms_per_forward(events: Sequence[Event], row: int = 0) -> float:
    """Mean milliseconds of a forward, prefill apart, up to a loop of the text."""
    counted = up_to_loop(events, row)
    return 1000 * _ratio(decode_seconds(counted, row), num_forwards(counted, row))


def drafting(events: Iterable[Event], row: int = 0) -> Iterator[tuple[int, int]]:
    """(drafted, accepted) of each forward that judged drafts of the row: proposals past the first,
    or in lossless mode those that had waited for verification and were fed."""
    waiting = 0
    for step, _ in row_steps(events, row):
        num_drafted = drafted(step, waiting)
        if num_drafted:
            yield num_drafted, min(num_drafted, len(step.accepted) - 1)
        waiting = len(step.drafts)


def drafted(step: RowStep, waiting: int) -> int:
    """How many drafts a forward judged, given how many waited for verification before it."""
    if step.settings.method in UNDRAFTED:
        return 0
    if step.settings.is_verified:
        return min(waiting, step.num_pending - 1)
    return len(step.proposals) - 1


def sources(events: Iterable[Event], row: int = 0) -> Iterator[tuple[Source, ...]]:
    """Of each forward of the row, who proposed each of its tokens."""
    before = None
    for step, _ in row_steps(events, row):
        yield step_sources(step, before)
        before = step


def step_sources(step: RowStep, before: RowStep | None) -> tuple[Source, ...]:
    """Who proposed the tokens of a forward; ``before``: the forward before it, which drafted.

    A verified token is a draft that AR confirmed, or AR's own. Without verification the first is
    AR's own. Block diffusion reads masks alone.
    """
    method, count = step.settings.method, len(step.accepted)
    masks: Source = "masks"
    by_masks = (masks,) * count
    if method == "block_diffusion":
        return by_masks
    if method == "ar" or not step.settings.is_verified:
        return ("ar", *by_masks)[:count]
    drafts = before.drafts if before is not None else ()
    judged = drafts[: drafted(step, len(drafts))]
    found: list[Source] = ["ar"] * count
    for place, (token, draft) in enumerate(zip(step.accepted, judged, strict=False)):
        if token != draft or before is None:
            break
        found[place] = _drafter(before, place)
    return tuple(found)


def _drafter(step: RowStep, place: int) -> Source:
    """Who proposed the draft at ``place`` among those that wait after a forward."""
    if step.settings.method == "jacobi":
        return "guesses"
    if place >= len(step.drafts) - len(step.guessed):
        return "draft model"
    return "look-up" if step.looked_up else "masks"


def passes_saved(events: Sequence[Event], row: int = 0) -> Counter[Source]:
    """How many forwards fewer than one per token, by who proposed what saved them, up to a loop of
    the text. Each forward gives one token that is credited to no drafter: AR's own, or its last
    where drafts gave all of them."""
    saved: Counter[Source] = Counter()
    for found in sources(up_to_loop(events, row), row):
        thanked = list(found)
        if "ar" in thanked:
            thanked.remove("ar")
        elif thanked:
            thanked.pop()
        else:
            saved["masks"] -= 1  # block diffusion: a forward after which nothing could leave yet
        saved.update(thanked)
    return saved


def num_draft_forwards(events: Iterable[Event], row: int = 0) -> int:
    """Forwards of a draft model that this row took part in; in no other figure but time."""
    return sum(step.num_draft_forwards for step, _ in row_steps(events, row))


def num_reused(events: Iterable[Event]) -> int:
    """Tokens of the prompt that were not computed again."""
    return sum(event.num_reused for event in events if isinstance(event, Prefill))


def ttft(events: Sequence[Event], row: int = 0) -> float | None:
    """Seconds to the first tokens: prefill and the row's first step; None before it."""
    first = next(row_steps(events, row), None)
    return None if first is None else prefill_seconds(events) + first[1]


def first_divergence(first: Sequence[Event], second: Sequence[Event], row: int = 0) -> int | None:
    """The first position where two runs emitted different tokens, None if there is none so far.

    A run that has ended by itself also differs where the other goes on; one still running, or cut
    short, does not.
    """
    one, two = accepted_tokens(first, row), accepted_tokens(second, row)
    for position, (a, b) in enumerate(zip(one, two, strict=False)):
        if a != b:
            return position
    shorter = first if len(one) < len(two) else second
    has_ended = any(step.stop == "eos" for step, _ in row_steps(shorter, row))
    return min(len(one), len(two)) if len(one) != len(two) and has_ended else None


def text(trace: Trace, row: int = 0) -> str:
    """The output: what was given of it and what was emitted, without the token that ended the
    turn."""
    return given_text(trace) + "".join(text_pieces(trace, row))


def given_text(trace: Trace) -> str:
    """The text that was readable before the first forward."""
    return Detokenizer(trace.vocabulary.__getitem__).push(trace.header.given)


def text_pieces(trace: Trace, row: int = 0) -> list[str]:
    """The text that became readable with each forward, and a last piece for what was left."""
    detokenizer = Detokenizer(trace.vocabulary.__getitem__)
    detokenizer.push(trace.header.given)
    pieces = [detokenizer.push(visible_tokens(step)) for step, _ in row_steps(trace.events, row)]
    return [*pieces, detokenizer.flush()]


def visible_tokens(step: RowStep) -> tuple[int, ...]:
    """The accepted tokens without the end of turn."""
    return step.accepted[:-1] if step.stop == "eos" else step.accepted


def end(events: Sequence[Event]) -> End | None:
    """How the run ended, None while it runs."""
    last = events[-1] if events else None
    return last if isinstance(last, End) else None


@dataclass(frozen=True, slots=True)
class Totals:
    """A batch in figures; each is 0 where there is nothing yet.

    num_tokens: over all rows, ends of turn included. num_forwards: of the whole batch, of which
    num_commits are commits. num_row_forwards: rows times forwards, num_idle of them idle.
    seconds: of decoding, prefill_seconds apart. peak_cache_bytes: of the largest group. num_looped:
    rows whose texts began to repeat themselves, and what they took from there on: num_loop_tokens,
    in num_loop_forwards row-forwards, during num_loop_steps forwards that no other row took part
    in, and loop_seconds, their share of each forward's time. Loops are looked for once the run is
    over. Every rate leaves them out.
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
        """Tokens of all rows, loops left out."""
        return self.num_tokens - self.num_loop_tokens

    @property
    def counted_forwards(self) -> int:
        """Forwards of the batch, those left out in which every row was in a loop."""
        return self.num_forwards - self.num_loop_steps

    @property
    def counted_row_forwards(self) -> int:
        """Row-forwards, loops left out; idle ones and commits count like any other."""
        return self.num_row_forwards - self.num_loop_forwards

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all rows per second of decoding, loops left out."""
        return _ratio(self.counted_tokens, self.seconds - self.loop_seconds)

    @property
    def effective_tpf(self) -> float:
        """Tokens per row-forward, loops left out."""
        return _ratio(self.counted_tokens, self.counted_row_forwards)

    @property
    def idle_share(self) -> float:
        """Share of row-forwards that took nothing."""
        return _ratio(self.num_idle, self.num_row_forwards)


def steps(events: Iterable[Event]) -> list[Step]:
    """The forwards, prefill apart."""
    return [event for event in events if isinstance(event, Step)]


def totals(events: Sequence[Event]) -> Totals:
    """All figures of the batch so far."""
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
    """The number of tokens before the loop, of each row whose text repeats itself."""
    found = {row: loops_at(events, row) for row in rows(events)}
    return {row: kept for row, kept in found.items() if kept is not None}


def _num_in_loops(step: Step, loops: Mapping[int, int]) -> int:
    """Rows of a forward that had come to their loops before it."""
    return sum(row.row in loops and row.start >= loops[row.row] for row in step.rows)


def num_accepted(step: Step) -> int:
    """Tokens that a forward gave to all rows together."""
    return sum(len(row.accepted) for row in step.rows)


def peak_cache_bytes(events: Iterable[Event]) -> int:
    """Keys and values of the largest group; groups follow each other and free theirs."""
    return max((event.cache_bytes for event in events if isinstance(event, Prefill)), default=0)


def timeline(events: Sequence[Event]) -> list[tuple[float, int]]:
    """(seconds of decoding, tokens of all rows so far): at the start, then after each forward."""
    forwards = steps(events)
    clocks = accumulate((step.seconds for step in forwards), initial=0.0)
    counts = accumulate(map(num_accepted, forwards), initial=0)
    return list(zip(clocks, counts, strict=True))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
