"""Loads checkpoints in the background and keeps an engine for each. Knows no gradio and no visitor.

Torch is imported by the loading thread, so the page is up before the first checkpoint is.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.controls import MAX_PACE
from app.settings import AppSettings
from mars_runtime.engine.backend import num_threads
from mars_runtime.engine.engine import Engine, EngineError
from mars_runtime.engine.request import Request
from mars_runtime.events import Step
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.registry import Entry, registry
from mars_runtime.settings import DecodeSettings

if TYPE_CHECKING:
    from mars_runtime.model.load import Checkpoint

DEFAULT_BLOCK_SIZE = 8
MAX_LOADED = 3  # engines are kept for the life of the process, so their number is bounded
TIMED_TOKENS, TIMED_SECONDS = 16, 2.0
WATCHABLE_SECONDS = 0.1  # a token of a race in slow motion: a hundred last some ten seconds
RACE_COST = 1.4  # forwards of a race over those of its AR lane, roughly


class UnavailableError(RuntimeError):
    """A checkpoint cannot be served; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Served:
    """A loaded checkpoint and its engine; ``threads`` of the arithmetic."""

    entry: Entry
    checkpoint: Checkpoint
    engine: Engine
    threads: int = 1


def read_entries(chosen: str) -> dict[str, Entry]:
    """The registry by name, the chosen one first; a folder outside it gets an entry of its own."""
    entries = registry()
    first = entries.pop(chosen, None) or Entry(chosen, DEFAULT_BLOCK_SIZE)
    return {first.name: first, **entries}


class Engines:
    """Name -> engine, each loaded once, on demand, away from the page's threads."""

    def __init__(self, settings: AppSettings, entries: dict[str, Entry] | None = None) -> None:
        self.settings = settings
        self.entries = read_entries(settings.checkpoint) if entries is None else entries
        self._loading: dict[str, Future[Served]] = {}
        self._lock = threading.Lock()
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")

    @property
    def default(self) -> str:
        """The checkpoint the app was started with."""
        return next(iter(self.entries))

    def start(self, name: str) -> None:
        """Begin loading unless it is loaded, loading or refused. Raises UnavailableError."""
        if name not in self.entries:
            raise UnavailableError("Choose a checkpoint from the list.")
        with self._lock:
            found = self._loading.get(name)
            if found is not None and not (found.done() and found.exception()):
                return
            if found is None and len(self._loading) >= MAX_LOADED:
                raise UnavailableError("Choose a checkpoint that was used before: no more fit.")
            self._loading[name] = self._loader.submit(self._load, name)

    def get(self, name: str, timeout: float | None = None) -> Served | None:
        """The engine, or None if loading after ``timeout`` s. Raises UnavailableError."""
        self.start(name)
        try:
            return self._loading[name].result(timeout)
        except NotYet:
            return None
        except Exception as error:
            with self._lock:
                self._loading.pop(name, None)
            if isinstance(error, CheckpointError):
                raise UnavailableError(str(error)) from error
            raise

    def close(self) -> None:
        """End every engine and what it runs."""
        self._loader.shutdown(wait=False, cancel_futures=True)
        for future in self._loading.values():
            if future.done() and not future.cancelled() and future.exception() is None:
                future.result().engine.close()

    def _load(self, name: str) -> Served:
        from mars_runtime.model.load import load_checkpoint

        settings = self.settings
        checkpoint = load_checkpoint(name, device=settings.device, dtype=settings.dtype)
        engine = Engine(checkpoint, max_runs=settings.max_runs, max_waiting=settings.max_waiting)
        return Served(self.entries[name], checkpoint, engine, num_threads(checkpoint))


def watchable_pace(served: Served) -> int:
    """How many times slower a race must run now to be followed, by a short run of its own.

    0 where it is slow enough by itself, and where the engine has no time for the question.
    """
    prompt_ids = served.checkpoint.tokenizer.encode_prompt("Once upon a time")
    settings = DecodeSettings("ar", max_new_tokens=TIMED_TOKENS)
    try:
        run = served.engine.submit(Request(prompt_ids, settings, TIMED_SECONDS))
    except EngineError:
        return 0
    run.wait()
    steps = [event.seconds for event in run.events_since(0) if isinstance(event, Step)]
    if not steps:
        return 0
    forward = sorted(steps)[len(steps) // 2]
    pace = WATCHABLE_SECONDS / max(forward * RACE_COST, 1e-6) - 1
    return round(min(max(pace, 0), MAX_PACE))
