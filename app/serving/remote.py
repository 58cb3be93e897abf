"""Engines whose checkpoint is on another machine, which serves the endpoint: MARS_REMOTE.

Only the page runs here: nothing is fetched and no weights are read. Knows no gradio.
"""

from __future__ import annotations

from dataclasses import replace

from app.serving.engines import Engines
from app.serving.loads import Served, Tell
from app.serving.settings import AppSettings, AppSettingsError
from mars_runtime.engine.engine import EngineError
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.registry import Entry
from mars_runtime.serving.remote.engine import RemoteEngine
from mars_runtime.serving.remote.machine import Machine

WARM_UP_SECONDS = 60.0  # that the machine may need until it has measured what forwards cost
NO_ADDRESS = "MARS_REMOTE must be the address of an endpoint, such as http://host:8000."


class RemoteEngines(Engines):
    """As ``Engines``, for what the machine serves: unless others are offered, the wanted one."""

    def __init__(self, settings: AppSettings) -> None:
        """Raises AppSettingsError."""
        if not settings.remote.startswith(("http://", "https://")):
            raise AppSettingsError(NO_ADDRESS)
        super().__init__(replace(settings, offered=settings.offered or settings.checkpoint))
        self._machine = Machine(settings.remote.rstrip("/"), settings.remote_key)

    def close(self) -> None:
        """End every run, and let go of the machine."""
        super().close()
        self._machine.close()

    def _is_absent(self, entry: Entry) -> bool:
        return False

    def _bring(self, name: str, tell: Tell) -> Served:
        tell(f"Asking {self.settings.remote} for {name}…")
        try:
            about = self._machine.about(name, WARM_UP_SECONDS)
        except EngineError as error:
            raise CheckpointError(str(error)) from error
        engine = RemoteEngine(self._machine, name, about.capacity)
        return Served(self.entries[name], about, engine)
