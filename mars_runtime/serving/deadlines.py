"""Ends connections whose requests are not whole in time: uvicorn waits for them for ever.

Headers have ten seconds, a body ten and one more for each 50 kB that were declared. What is
answered takes as long as it takes. Knows no route.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS = 10.0
BYTES_PER_SECOND = 50_000


class DeadlineProtocol(H11Protocol):
    """One connection."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Headers may come."""
        super().connection_made(transport)
        self._expect(0)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more is waited for."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Part of a request."""
        before = self.cycle
        if before is not None and before.response_complete and self._deadline is None:
            self._expect(0)  # the headers of the next one begin
        super().data_received(data)
        if self.cycle is before and (before is None or before.response_complete):
            return  # still its headers
        if not self.cycle.more_body:
            self._stop()
        elif self.cycle is not before or self._deadline is None:
            self._expect(_length(self.cycle.scope["headers"]))

    def _expect(self, num_bytes: int) -> None:
        self._stop()
        seconds = SECONDS + num_bytes / BYTES_PER_SECOND
        self._deadline = self.loop.call_later(seconds, self._end)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end(self) -> None:
        self._deadline = None
        self.transport.close()


def _length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    declared = dict(headers).get(b"content-length", b"0")
    return int(declared) if declared.isdigit() else 0
