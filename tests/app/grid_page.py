"""A page for the Trade-off tab, on a scripted backend with a text that differs from AR's below
tau 0.6.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from scripted_page import TEXT, ScriptedBackend, make_handlers

from app.handlers import Handlers
from mars_runtime.engine.request import Request
from mars_runtime.runs.events import Event, Step
from mars_runtime.settings import DecodeSettings

WRONG_FROM = 10
"""The token from which an unverified text differs from AR's, where B is above 2 and tau low."""


class GridBackend(ScriptedBackend):
    """Takes B tokens per forward at a low tau, one elsewhere; lossless always takes them all.

    permits: where there are any, each forward of MARS takes one, so that a test can hold it.
    begun: the settings of every run, in the order in which they began; ``named``: in short.
    """

    def __init__(self) -> None:
        super().__init__(TEXT)
        self.permits: threading.Semaphore | None = None
        self.begun: list[DecodeSettings] = []

    @property
    def named(self) -> list[str]:
        return [
            s.method if s.method == "ar" else "lookup" if s.lookup else
            f"{'lossless' if s.lossless else f'{s.tau:g}'}/{s.block_size}"
            for s in self.begun
        ]  # fmt: skip

    def decode(self, request: Request, settings: Callable[[], DecodeSettings]) -> Iterator[Event]:
        self.begun.append(settings())
        is_bold = settings().method == "mars" and settings().tau < 0.6
        is_wrong = is_bold and not settings().lossless and settings().num_proposals > 2
        for event in super().decode(request, settings):
            if self.permits and settings().method == "mars":
                self.permits.acquire(timeout=60)
            if settings().num_proposals > 1:  # masks make a forward longer
                time.sleep(self.forward_seconds)
            yield swapped(event) if is_wrong and isinstance(event, Step) else event


def swapped(step: Step) -> Step:
    """Another letter from WRONG_FROM on."""
    (row,) = step.rows
    accepted = tuple(
        ord("#") if row.start + place >= WRONG_FROM and token < 256 else token
        for place, token in enumerate(row.accepted)
    )
    return replace(step, rows=(replace(row, accepted=accepted),))


def make_page(folder: Path, **caps: object) -> tuple[Handlers, GridBackend]:
    """Handlers over the backend; close them with ``handlers.engines.close()``."""
    backend = GridBackend()
    return make_handlers(folder, backend, **caps), backend


def controls(**changes: object) -> dict[str, object]:
    """What the tab sends for a run, with changes: the lossless row and one of τ, two cells each."""
    return {
        "prompt": "Say ${HOME}<b>.",
        "rows": [0.5, "lossless"],
        "columns": [4, 2],
        "max_new_tokens": 32,
        "checkpoint": "scripted",
        **changes,
    }
