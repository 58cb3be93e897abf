"""What every endpoint does first: wait for the checkpoint, and refuse in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from app.controls import RefusalError
from app.serving.engines import Engines
from app.serving.loads import Served
from app.stream import sentence_of

S = TypeVar("S")


def with_checkpoint(engines: Engines, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, the page's own checkpoint among them where they name none."""
    return {**values, "checkpoint": values.get("checkpoint") or engines.default}


def begun(engines: Engines, name: str, start: Callable[[Served], S]) -> S:
    """What ``start`` returns for the checkpoint. Raises RefusalError for all of it."""
    try:
        served = engines.get(name, timeout=engines.settings.max_seconds)
        if served is None:
            situation = engines.begin(name).situation
            raise RefusalError("checkpoint", f"Try again in a while: {situation}")
        return start(served)
    except Exception as error:
        raise RefusalError("prompt", sentence_of(error)) from None
