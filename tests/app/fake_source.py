"""A checkpoint that is fetched as a test wishes: slowly, in vain, or never to the end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from scripted_page import ScriptedBackend, make_served

from app.engines.engines import Engines, Served, Tell
from app.handlers import Handlers
from app.handlers import make_handlers as handlers_over
from app.settings import AppSettings
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.registry import Entry, registry

NO_NETWORK = "The checkpoint chat could not be fetched (no answer): run the fetch with a network."
FETCHED = replace(registry()["mars-smollm2"], name="chat", note="A chat model.")
SIZE = 94_000_000


class FakeSource:
    """What ``mars_runtime.model.fetch`` is to the app. Nothing arrives before ``go`` is set."""

    def __init__(self, failure: str = "", is_present: bool = False) -> None:
        self.go = threading.Event()
        self.failure = failure
        self.calls: list[bool] = []
        self._is_present = is_present

    def is_present(self, entry: Entry) -> bool:
        return self._is_present

    def fetch(
        self, entry: Entry, progress: Callable[[int, int], None], offline: bool = False
    ) -> Path:
        self.calls.append(offline)
        progress(SIZE * 43 // 100, SIZE)
        self.go.wait(600)
        if self.failure:
            raise CheckpointError(self.failure)
        self._is_present = True
        return Path("chat.gguf")


class FetchingEngines(Engines):
    """``chat``, which is wanted and has to be fetched, and ``tiny``, which is bundled."""

    def __init__(
        self, settings: AppSettings, source: FakeSource, served: dict[str, Served]
    ) -> None:
        self._made = served
        entries = {name: item.entry for name, item in served.items()}
        super().__init__(settings, entries, source)

    def _load(self, name: str, tell: Tell) -> Served:
        return self._made[name]


def make_handlers(
    folder: Path, source: FakeSource, **caps: object
) -> tuple[Handlers, dict[str, ScriptedBackend]]:
    """Handlers with open engines, and the scripted backend of each checkpoint."""
    settings = AppSettings(checkpoint="chat", **caps)  # type: ignore[arg-type]
    tiny = Entry("tiny", 8, path="tiny", note="A tiny model.")
    backends = {"chat": ScriptedBackend("I chat." * 20), "tiny": ScriptedBackend("I count." * 20)}
    served = {
        entry.name: make_served(folder / entry.name, entry, backends[entry.name], settings)
        for entry in (FETCHED, tiny)
    }
    handlers = handlers_over(FetchingEngines(settings, source, served))
    handlers.engines.open()
    return handlers, backends
