"""The OpenAI-compatible endpoint of the page, which uses the page's engines."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from app.engines.engines import Engines, UnavailableError
from app.engines.limits import RefusalError
from mars_runtime.serving.app import make_app
from mars_runtime.serving.limits import AddressCounter
from mars_runtime.serving.models import EngineModel, not_ready, unknown
from mars_runtime.serving.requests import Caps
from mars_runtime.serving.server import read_origins

WAIT_SECONDS = 0.02


class PageModels:
    """The ``Models`` of the endpoint, backed by the page's engines."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    @property
    def names(self) -> Sequence[str]:
        return tuple(self._engines.entries)

    @property
    def trouble(self) -> str:
        return self._engines.trouble(self._engines.default)

    def find(self, name: str) -> EngineModel:
        """Start to load the model if necessary. Raises ApiError, also while it loads."""
        try:
            self._engines.entry(name)
            load = self._engines.begin(name)
            served = load.wait(0.0)
        except RefusalError:
            raise unknown(self.names) from None
        except UnavailableError as error:
            raise not_ready(str(error)) from None
        if served is None:
            raise not_ready(f"{load.situation} Try again in a moment.")
        return EngineModel.of(served.checkpoint, served.engine)


class PathRouter:
    def __init__(self, app: ASGIApp, endpoint: ASGIApp, paths: re.Pattern[str]) -> None:
        self._app = app
        self._endpoint = endpoint
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_own = scope["type"] == "http" and self._paths.fullmatch(scope["path"])
        await (self._endpoint if is_own else self._app)(scope, receive, send)


class OpenRequests:
    def __init__(self) -> None:
        self._number = 0

    def counted(self, app: ASGIApp) -> ASGIApp:
        async def counting(scope: Scope, receive: Receive, send: Send) -> None:
            self._number += 1
            try:
                await app(scope, receive, send)
            finally:
                self._number -= 1

        return counting

    def wait(self, seconds: float) -> None:
        """Block until all responses are complete. Must not be called in the server's thread."""
        until = time.monotonic() + seconds
        while self._number and time.monotonic() < until:
            time.sleep(WAIT_SECONDS)


OPEN_REQUESTS = OpenRequests()  # for which this process waits before it exits


def make_endpoint(engines: Engines, runs: AddressCounter) -> ASGIApp:
    """runs: counts the runs of each address, those of the page included."""
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
        PageModels(engines), caps, settings.api_key, engines.metrics.expose, origins, runs
    )
    return OPEN_REQUESTS.counted(endpoint)
