"""A checkpoint that is fetched as a test wishes: slowly, in vain, or never to the end."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from scripted_page import ScriptedBackend, make_served, source_of

from app.engines.engines import Engines, LoadedModel
from app.handlers import Handlers
from app.handlers import make_handlers as handlers_over
from app.settings import AppSettings
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.fetch import Progress, downloading
from mars_runtime.model.registry import Entry, registry
from mars_runtime.model.source import Source

NO_NETWORK = "The checkpoint chat could not be fetched (no answer): run the fetch with a network."
FETCHED = replace(registry()["mars-smollm2"], name="chat", note="A chat model.")
SIZE = 94_000_000


class FakeHub:
    """Where the files of a checkpoint come from. Nothing arrives before ``go`` is set."""

    def __init__(self, failure: str = "", is_present: bool = False) -> None:
        self.go = threading.Event()
        self.failure = failure
        self.calls: list[bool] = []
        self.is_present = is_present

    def download(self, source: Source, progress: Progress, offline: bool) -> Source:
        self.calls.append(offline)
        progress(downloading(source.name, SIZE * 43 // 100, SIZE))
        self.go.wait(600)
        if self.failure:
            raise CheckpointError(self.failure)
        self.is_present = True
        return replace(source, missing=())


class FetchingEngines(Engines):
    """``chat``, which is wanted and has to be fetched, and ``tiny``, which is bundled."""

    def __init__(self, settings: AppSettings, hub: FakeHub, served: dict[str, LoadedModel]) -> None:
        self._made, self._hub = served, hub
        super().__init__(settings, {name: item.entry for name, item in served.items()})

    def _resolve(self, entry: Entry) -> Source:
        is_missing = entry.gguf is not None and not self._hub.is_present
        return replace(source_of(entry), missing=(entry.gguf,) if is_missing else ())

    def _download(self, source: Source, progress: Progress) -> Source:
        return self._hub.download(source, progress, self.settings.offline)

    def _load(self, entry: Entry, source: Source, progress: Progress) -> LoadedModel:
        return self._made[entry.name]


def make_handlers(
    folder: Path, hub: FakeHub, **caps: object
) -> tuple[Handlers, dict[str, ScriptedBackend]]:
    """Handlers with open engines, and the scripted backend of each checkpoint."""
    settings = AppSettings(checkpoint="chat", **caps)
    tiny = Entry("tiny", 8, path="tiny", note="A tiny model.", dtype="fp32")
    backends = {"chat": ScriptedBackend("I chat." * 20), "tiny": ScriptedBackend("I count." * 20)}
    served = {
        entry.name: make_served(folder / entry.name, entry, backends[entry.name], settings)
        for entry in (FETCHED, tiny)
    }
    handlers = handlers_over(FetchingEngines(settings, hub, served))
    handlers.engines.open()
    return handlers, backends
