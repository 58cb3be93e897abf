"""Engines for checkpoints that an endpoint on another machine serves, at the URL MARS_REMOTE.

This machine serves only the page. It downloads no files and loads no weights.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace

import httpx

from app.engines.engines import Engines, Served, Tell, UnavailableError
from app.settings import AppSettings, AppSettingsError
from mars_runtime.engine.engine import EngineError
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.registry import Entry
from mars_runtime.serving.remote import AWAY, Machine, RemoteEngine

CHECK_SECONDS = 0.75  # time between two health checks of the machine
ANSWER_SECONDS = 1.5  # timeout of a health check
WARM_UP_SECONDS = 60.0  # timeout for the warm-up, in which the machine measures its forward passes
NO_ADDRESS = "MARS_REMOTE must be the URL of an endpoint, such as http://host:8000."


def _address(text: str) -> str:
    """Return the URL of the endpoint without a trailing /v1. Raises AppSettingsError."""
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        raise AppSettingsError(NO_ADDRESS) from None
    if url.scheme not in ("http", "https") or not url.host:
        raise AppSettingsError(NO_ADDRESS)
    return text.rstrip("/").removesuffix("/v1")


class RemoteEngines(Engines):
    """``Engines`` for checkpoints that another machine serves.

    Offers only the default checkpoint, unless the settings offer others.
    """

    def __init__(self, settings: AppSettings) -> None:
        """Start checking the machine's health. Raises AppSettingsError if MARS_REMOTE is not a
        URL.
        """
        address = _address(settings.remote)
        super().__init__(replace(settings, offered=settings.offered or settings.checkpoint))
        self._machine = Machine(address, settings.remote_key)
        self._fault = AWAY
        self._is_closed = threading.Event()
        threading.Thread(target=self._watch, name="remote health", daemon=True).start()

    def trouble(self, name: str) -> str:
        """Return the error of the latest health check or of loading the checkpoint; empty if there
        is none.
        """
        return self._fault or super().trouble(name)

    def close(self) -> None:
        """End all runs and close the connection to the machine."""
        self._is_closed.set()
        super().close()
        self._machine.close()

    def _watch(self) -> None:
        """Check the machine's health at intervals. Load the default checkpoint when the machine is
        up.
        """
        while not self._is_closed.wait(CHECK_SECONDS):
            self._fault = self._machine.trouble(ANSWER_SECONDS)
            if not self._fault and self._loads and super().trouble(self.wanted):
                with suppress(UnavailableError):  # the next run reports the error
                    self.begin(self.wanted)

    def _is_absent(self, entry: Entry) -> bool:
        return False

    def _bring(self, name: str, tell: Tell) -> Served:
        tell(f"Waiting for {name} on {self.settings.remote}…")
        try:
            about = self._machine.about(name, WARM_UP_SECONDS)
        except EngineError as error:
            raise CheckpointError(str(error)) from error
        engine = RemoteEngine(self._machine, name, about.capacity)
        return Served(self.entries[name], about, engine)
