"""Iterator over the events of a decoder."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from mars_runtime.decoders.prefix_cache import PrefixHit
from mars_runtime.runs.events import Event, Step


class EventStream(Iterator[Event]):
    """Yields a Prefill, then one Step per forward pass.

    hit: the cached prefix that the decoder may reuse, granted before the first event.
    """

    def __init__(self, events: Iterator[Event], hit: PrefixHit | None = None) -> None:
        self._events = events
        self.hit = hit

    @classmethod
    def of(cls, events: Iterator[Event]) -> EventStream:
        return events if isinstance(events, EventStream) else cls(events)

    def __next__(self) -> Event:
        return next(self._events)

    def close(self) -> None:
        if isinstance(self._events, Generator):
            self._events.close()

    def checked(self, step: Step) -> Step:
        """Return the latest step with ``checks``, if the decoder computes any; not timed."""
        return step
