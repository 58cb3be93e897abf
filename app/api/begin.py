"""What every endpoint does first: wait for the checkpoint, and refuse in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from app.controls import RefusalError
from app.engines import Served
from app.handlers import Handlers, sentence_of

S = TypeVar("S")


def checkpoint_of(handlers: Handlers, values: Mapping[str, Any]) -> Any:
    """The checkpoint that is asked for, by name; the page's own where none is."""
    return values.get("checkpoint") or handlers.engines.default


def begun(handlers: Handlers, name: str, start: Callable[[Served], S]) -> S:
    """What ``start`` returns for the checkpoint. Raises RefusalError for all of it."""
    try:
        served = handlers.engines.get(name, timeout=handlers.settings.max_seconds)
        if served is None:
            situation = handlers.engines.begin(name).situation
            raise RefusalError("checkpoint", f"Try again in a while: {situation}")
        return start(served)
    except Exception as error:
        raise RefusalError("prompt", sentence_of(error)) from None
