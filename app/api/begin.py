"""What every endpoint does first: wait for the checkpoint, and refuse in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from app.controls import RefusalError
from app.engines import Served
from app.handlers import Handlers, sentence_of

S = TypeVar("S")


def begun(handlers: Handlers, start: Callable[[Served], S]) -> S:
    """What ``start`` returns for the checkpoint of the app. Raises RefusalError for all of it."""
    try:
        served = handlers.engines.get(handlers.engines.default)
        assert served is not None, "without a timeout it is loaded or refused"
        return start(served)
    except Exception as error:
        raise RefusalError("prompt", sentence_of(error)) from None
