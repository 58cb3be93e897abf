"""A page without weights: the real engine over a scripted backend."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from app.engines.engines import Engines, LoadedModel
from app.handlers import Handlers
from app.handlers import make_handlers as handlers_over
from app.settings import AppSettings, AppSettingsError
from app.ui.controls import SHOWN
from mars_runtime.engine.engine import Engine
from mars_runtime.model.fetch import Progress
from mars_runtime.model.registry import REGISTRY, Entry
from mars_runtime.model.source import Source
from mars_runtime.settings import DecodeSettings
from tests.engine.scripted import eventually as eventually
from tests.scripted_text import ScriptedBackend, write_tokenizer

PORT = int(os.environ["GRADIO_SERVER_PORT"])
TEXT = 'Say ${HOME}<b>bold</b> "x" {{y}} `z`\n    indented 👩‍👧 ' * 12


class ReadyEngines(Engines):
    """Engines with a checkpoint that is loaded while ``held`` is set, and one that never is."""

    def __init__(self, settings: AppSettings, served: LoadedModel) -> None:
        super().__init__(
            settings, {"scripted": served.entry, "absent": Entry("absent", 8, path="absent")}
        )
        self.held = threading.Event()
        self.held.set()
        self._served = served
        self.get("scripted")

    def forget(self) -> None:
        """The checkpoint is to be loaded again, once ``held`` is set."""
        self.held.clear()
        for record in self._records.values():
            record.load = None

    def _resolve(self, entry: Entry) -> Source:
        return source_of(entry) if entry.name == "scripted" else super()._resolve(entry)

    def _load(self, entry: Entry, source: Source, progress: Progress) -> LoadedModel:
        assert self.held.wait(120)
        return self._served


def source_of(entry: Entry) -> Source:
    """A source with nothing missing."""
    return Source(entry.name, entry.name, REGISTRY, Path(entry.name), entry)


def make_served(
    folder: Path, entry: Entry, backend: ScriptedBackend, settings: AppSettings
) -> LoadedModel:
    """An engine over ``backend`` for an entry of the registry."""
    model = SimpleNamespace(
        device=torch.device("cpu"),
        dtype=torch.float32,
        cache_dtype=torch.float32,
        arithmetic="float32",
        is_bitwise=True,
        weights=lambda: iter(()),
        config=SimpleNamespace(cache_shape=lambda rows, capacity: (2, rows, capacity, 2, 8)),
    )
    checkpoint = SimpleNamespace(
        name=entry.name,
        tokenizer=write_tokenizer(folder),
        weight_files=(),
        model=model,
        block_size=entry.block_size,
        diffusion_size=0,
    )
    engine = Engine(backend, settings.max_runs, settings.max_waiting)
    return LoadedModel(entry, checkpoint, engine)


def make_handlers(
    folder: Path, backend: ScriptedBackend, path: str | None = "scripted", **caps: object
) -> Handlers:
    """Handlers to be closed with ``handlers.engines.close()``. path: none for a chat model."""
    settings = AppSettings(checkpoint="scripted", **caps)
    entry = Entry("scripted", 8, path=path, licence="Apache-2.0")
    served = make_served(folder, entry, backend, settings)
    return handlers_over(ReadyEngines(settings, served))


def controls(**changes: object) -> dict[str, object]:
    """What the page sends for a run, with changes."""
    return {
        "prompt": "Say hello.",
        **{name: getattr(DecodeSettings(), name) for name in SHOWN},
        "block_size": 8,
        "pace": 0,
        "view": "race",
        "max_new_tokens": 64,
        "checkpoint": "scripted",
        "system": "",
        "history": "",
        "given": None,
        **changes,
    }


@contextmanager
def page_served(handlers: Handlers, **rest: Any) -> Iterator[str]:
    """Where their page is served, at the first free port of this process; closed afterwards."""
    from app.server import serve

    settings = handlers.engines.settings
    for port in range(PORT, PORT + 99):
        handlers.engines.settings = replace(settings, port=port)
        with suppress(AppSettingsError):
            page = serve(handlers, is_blocking=False, **rest)
            break
    try:
        yield page.url
    finally:
        page.close()
        handlers.engines.close()
