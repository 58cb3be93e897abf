"""What became of each request of a load: an immutable record, folded from the engine's events.

Moments are seconds of real time from the start of the load, as whoever reads the engine saw them.
Knows no engine, no clock and no text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from mars_runtime.events import End, Event, Step

State = Literal["waiting", "served", "done", "refused", "failed", "cut"]
"""``waiting`` for a place; ``served``: read or decoded; ``done``: its text came to an end;
``refused``: the line was full; ``failed``: an error ended it; ``cut``: it was stopped, or ran out
of time."""
_STATES: dict[str, State] = {"eos": "done", "limit": "done", "error": "failed"}


@dataclass(frozen=True, slots=True)
class Record:
    """One request of a load.

    arrived, admitted, first, ended: when it came, got a place, wrote its first token, was over;
        None as long as it has not.
    max_new_tokens: asked for. budget: seconds from arrival within which the answer is wanted, None
        where any time will do.
    tokens: written so far, the end of turn included. num_forwards: that it took part in.
    """

    number: int
    arrived: float
    max_new_tokens: int = 1
    budget: float | None = None
    state: State = "waiting"
    admitted: float | None = None
    first: float | None = None
    ended: float | None = None
    tokens: tuple[int, ...] = ()
    num_forwards: int = 0

    @property
    def num_tokens(self) -> int:
        """Tokens written so far."""
        return len(self.tokens)

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return self.ended is not None

    @property
    def ttft(self) -> float | None:
        """Time to first token: seconds from arrival, the wait included; None before it."""
        return None if self.first is None else self.first - self.arrived

    @property
    def latency(self) -> float | None:
        """Seconds from arrival to the whole answer; None where it never came to its end."""
        if self.state != "done" or self.ended is None:
            return None
        return self.ended - self.arrived

    @property
    def tpot(self) -> float | None:
        """Seconds per output token after the first; None for an answer of one, or not whole."""
        if self.state != "done" or self.ended is None or self.first is None:
            return None
        return (self.ended - self.first) / (self.num_tokens - 1) if self.num_tokens > 1 else None

    @property
    def is_in_time(self) -> bool | None:
        """Whether the whole answer came within the budget; None without one, or as long as that
        is open."""
        if self.budget is None or not self.is_over:
            return None
        return self.latency is not None and self.latency <= self.budget


def admitted(record: Record, at: float) -> Record:
    """The record once the engine has taken its request."""
    return replace(record, state="served", admitted=at)


def refused(record: Record, at: float) -> Record:
    """The record of a request that nobody took."""
    return replace(record, state="refused", ended=at)


def cut(record: Record, at: float) -> Record:
    """The record of a request that was given up before it had a place."""
    return replace(record, state="cut", ended=at)


def after(record: Record, event: Event, at: float) -> Record:
    """The record after one more event of its run, seen ``at``."""
    if isinstance(event, End):
        return replace(record, state=_STATES.get(event.reason, "cut"), ended=at)
    if not isinstance(event, Step):
        return record
    written = tuple(token for row in event.rows for token in row.accepted)
    return replace(
        record,
        first=at if record.first is None and written else record.first,
        tokens=record.tokens + written,
        num_forwards=record.num_forwards + len(event.rows),
    )
