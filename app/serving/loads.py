"""One checkpoint on its way into memory: fetched where it is absent, then loaded.

Knows no gradio, no visitor and not how it is done: that is a function it is given.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mars_runtime.engine.backend import where
from mars_runtime.engine.base import BaseEngine
from mars_runtime.engine.engine import DEAD
from mars_runtime.engine.header import Facts
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.registry import Entry
from mars_runtime.serving.about import About
from mars_runtime.settings import DecodeSettings, captured

if TYPE_CHECKING:
    from mars_runtime.model.load import Checkpoint

LOADING = "load "  # how the names of its threads begin
MEGABYTE = 1_000_000
FAULT = "The checkpoint failed to load inside the app."
Tell = Callable[[str], None]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Served:
    """A checkpoint and its engine; where that is another machine's, what is known of it here."""

    entry: Entry
    checkpoint: Checkpoint | About
    engine: BaseEngine

    @property
    def about(self) -> Checkpoint | Facts:
        """For the head of a trace: what it runs on."""
        return self.checkpoint.facts if isinstance(self.checkpoint, About) else self.checkpoint

    @property
    def is_elsewhere(self) -> bool:
        """Whether another machine decodes."""
        return isinstance(self.checkpoint, About)

    def in_force(self, settings: DecodeSettings) -> DecodeSettings:
        """What of the settings its device obeys."""
        return captured(settings) if self.checkpoint.is_captured else settings

    @property
    def is_bitwise(self) -> bool:
        """Whether what a token gives depends on nothing else in a forward."""
        if isinstance(self.checkpoint, About):
            return self.checkpoint.facts.is_bitwise
        return self.checkpoint.model.is_bitwise


class UnavailableError(RuntimeError):
    """A checkpoint cannot be served; the message is one sentence."""


class Load:
    """Begins at once, in a thread of its own, which keeps nobody from leaving: a network may hang.

    bring: fetches and loads, and tells its argument what it is doing.
    situation: what goes on, as a sentence; the last one once it is over.
    """

    def __init__(self, name: str, bring: Callable[[Tell], Served]) -> None:
        self.situation = f"Loading {name}…"
        self._bring = bring
        self._future: Future[Served] = Future()
        threading.Thread(target=self._run, name=LOADING + name, daemon=True).start()

    @property
    def served(self) -> Served | None:
        """What was loaded, None as long as nothing is."""
        is_loaded = self._future.done() and self._future.exception() is None
        return self._future.result() if is_loaded else None

    @property
    def is_dead(self) -> bool:
        """Whether it was loaded, and its engine serves nobody any more."""
        return self.served is not None and not self.served.engine.is_alive

    @property
    def failure(self) -> str:
        """Why it ended with nothing loaded, as a sentence; empty where it did not."""
        error = self._future.exception() if self._future.done() else None
        if error is None:
            return ""
        return str(error) if isinstance(error, CheckpointError) else FAULT

    @property
    def trouble(self) -> str:
        """Why it answers nobody now, as a sentence; empty where it does."""
        if self.failure or self.served is None:
            return self.failure or self.situation
        return DEAD if self.is_dead else ""

    def wait(self, timeout: float | None = None) -> Served | None:
        """What was loaded, or None if it is still on its way after ``timeout`` seconds.

        Raises UnavailableError.
        """
        try:
            return self._future.result(timeout)
        except NotYet:
            return None
        except Exception as error:
            raise UnavailableError(self.failure) from error

    def _run(self) -> None:
        try:
            self._future.set_result(self._bring(self._tell))
        except Exception as error:
            if not isinstance(error, CheckpointError):
                log.error("a checkpoint failed to load\n%s", where(error))
            self._future.set_exception(error)

    def _tell(self, situation: str) -> None:
        self.situation = situation


def fetching(name: str, num_bytes: int, num_in_all: int) -> str:
    """How far a fetch has come, such as: Fetching mars-smollm2, 94 MB: 43 %."""
    if num_in_all <= 0:
        return f"Fetching {name}…"
    percent = min(100, 100 * num_bytes // num_in_all)
    return f"Fetching {name}, {num_in_all / MEGABYTE:.0f} MB: {percent} %"
