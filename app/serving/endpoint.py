"""The OpenAI-compatible endpoint of the page, on the page's own engines."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from app.engines.engines import Engines, UnavailableError
from app.engines.limits import RefusalError
from mars_runtime.serving.addresses import read_origins
from mars_runtime.serving.app import make_app
from mars_runtime.serving.limits import Application, Message, Receive, Send
from mars_runtime.serving.models import EngineModel, NotReadyError, unknown
from mars_runtime.serving.requests import Caps

WAIT_SECONDS = 0.02


class PageModels:
    """``Models`` of the endpoint, backed by the page's engines."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    @property
    def names(self) -> Sequence[str]:
        """Names of the checkpoints that visitors may select."""
        return tuple(self._engines.entries)

    @property
    def trouble(self) -> str:
        """Why the default checkpoint cannot answer; empty if it can."""
        return self._engines.trouble(self._engines.default)

    def find(self, name: str) -> EngineModel:
        """Return the model of this name; start to load it if necessary.

        Raises UnknownModelError, or NotReadyError while it loads.
        """
        try:
            self._engines.entry(name)
            load = self._engines.begin(name)
            served = load.wait(0.0)
        except RefusalError:
            raise unknown(self.names) from None
        except UnavailableError as error:
            raise NotReadyError(str(error)) from None
        if served is None:
            raise NotReadyError(f"{load.situation} Try again in a moment.")
        return EngineModel.of(served.checkpoint, served.engine)


class PathRouter:
    """ASGI middleware that routes ``paths`` to the endpoint and all others to the page."""

    def __init__(self, app: Application, endpoint: Application, paths: re.Pattern[str]) -> None:
        self._app = app
        self._endpoint = endpoint
        self._paths = paths

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Forward the request to the endpoint or to the page."""
        is_own = scope["type"] == "http" and self._paths.fullmatch(scope["path"])
        await (self._endpoint if is_own else self._app)(scope, receive, send)


class OpenRequests:
    """Count of requests without a complete answer."""

    def __init__(self) -> None:
        self._number = 0

    def counted(self, app: Application) -> Application:
        """Return ``app`` with its requests counted."""

        async def counting(scope: Message, receive: Receive, send: Send) -> None:
            self._number += 1
            try:
                await app(scope, receive, send)
            finally:
                self._number -= 1

        return counting

    def wait(self, seconds: float) -> None:
        """Wait for all answers, at most ``seconds``; call it from another thread."""
        until = time.monotonic() + seconds
        while self._number and time.monotonic() < until:
            time.sleep(WAIT_SECONDS)


OPEN_REQUESTS = OpenRequests()
"""Requests to this process's endpoint. The server waits for them before it exits."""


def make_endpoint(engines: Engines) -> Application:
    """Return the endpoint on the page's engines, with the page's limits."""
    settings = engines.settings
    caps = Caps(
        settings.max_new_tokens,
        settings.max_seconds,
        settings.max_body_bytes,
        settings.max_runs_per_address,
        settings.max_prompt_chars,
    )
    origins = read_origins(settings.allowed_origins)
    endpoint = make_app(
        PageModels(engines), caps, settings.api_key, engines.metrics.expose, origins
    )
    return OPEN_REQUESTS.counted(endpoint)
