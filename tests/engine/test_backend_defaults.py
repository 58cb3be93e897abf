"""What an engine assumes of a backend and a decoder that offer only what is required."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mars_runtime.engine.backend import Backend
from mars_runtime.event_stream import EventStream
from mars_runtime.events import Event, Prefill
from mars_runtime.settings import DecodeSettings
from tests.engine.scripted import Script, scripted_step

STEP = scripted_step(0, 1, DecodeSettings(), "limit")


def test_a_plain_iterator_is_a_stream_without_checks_and_prefix() -> None:
    stream = EventStream.of(iter([Prefill(1), STEP]))
    assert stream.hit is None
    assert list(stream) == [Prefill(1), STEP]
    assert stream.checked(STEP) is STEP
    stream.close()
    assert EventStream.of(stream) is stream


def test_closing_a_stream_closes_its_generator() -> None:
    ended = []

    def events() -> Iterator[Event]:
        try:
            yield Prefill(1)
            yield STEP
        finally:
            ended.append(True)

    stream = EventStream.of(events())
    next(stream)
    stream.close()
    assert ended == [True]


def test_a_backend_that_lacks_a_method_is_rejected_when_it_is_made() -> None:
    class Unfinished(Script):
        synchronize = Backend.synchronize

    with pytest.raises(TypeError, match="synchronize"):
        Unfinished()
    assert Script().costs is None
