"""What every endpoint does first: wait for the checkpoint, and refuse in a sentence."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from app.controls import RefusalError
from app.serving.engines import Engines, Served
from app.stream import HEARTBEAT_SECONDS, WARMING_UP, sentence_of

T = TypeVar("T")


def with_checkpoint(engines: Engines, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, the page's own checkpoint among them where they name none."""
    return {**values, "checkpoint": values.get("checkpoint") or engines.default}


def awaited(engines: Engines, name: str, so_far: Callable[[str], T]) -> Generator[T, None, Served]:
    """The checkpoint. Until it is there, ``so_far`` of what it is doing, about every second: only
    at a value does gradio end what a caller has left. Raises RefusalError."""
    until = time.monotonic() + engines.settings.max_seconds
    with refused(), engines.kept(name):
        load = engines.begin(name)
        while (served := load.wait(HEARTBEAT_SECONDS)) is None:
            if time.monotonic() > until:
                raise RefusalError("checkpoint", f"Try again in a while: {load.situation}")
            yield so_far(load.situation)
        while not served.engine.is_ready(HEARTBEAT_SECONDS):
            yield so_far(WARMING_UP)
    return served


@contextmanager
def refused() -> Iterator[None]:
    """Whatever goes wrong becomes a RefusalError."""
    try:
        yield
    except Exception as error:
        raise RefusalError("prompt", sentence_of(error)) from None
