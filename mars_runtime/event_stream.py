"""The events of one decoding, with what a decoder may offer on top of them."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from mars_runtime.events import Event, Step
from mars_runtime.prefix_cache import PrefixHit


class EventStream(Iterator[Event]):
    """Yields a Prefill, then one Step per forward.

    hit: the cached prefix of the prompt, granted by the caller before the first event. None if the
    decoder reuses nothing.
    """

    def __init__(self, events: Iterator[Event], hit: PrefixHit | None = None) -> None:
        self._events = events
        self.hit = hit

    @classmethod
    def of(cls, events: Iterator[Event]) -> EventStream:
        """Return ``events`` if they are a stream, else a stream of them without extras."""
        return events if isinstance(events, EventStream) else cls(events)

    def __next__(self) -> Event:
        return next(self._events)

    def close(self) -> None:
        """End the decoding and release what it holds."""
        if isinstance(self._events, Generator):
            self._events.close()

    def checked(self, step: Step) -> Step:
        """Return the latest step with its ``checks``, or unchanged if the decoder has none.

        This is separate from the step so that the caller can leave it out of the measured time.
        """
        return step
