"""Errors of the endpoint, sent as one sentence in JSON."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mars_runtime.engine.backend import where
from mars_runtime.engine.engine import EngineBusy, EngineError
from mars_runtime.engine.request import RequestError
from mars_runtime.settings import SettingsError
from mars_runtime.text import TextError

BUSY_SECONDS, DEAD_SECONDS = 1, 10  # after which a client should retry
FAULT = "An error on the server interrupted this request. Send it again, or change it."
KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
log = logging.getLogger(__name__)


class ApiError(Exception):
    """A rejected request. retry_after: in seconds; 0 if a retry cannot succeed."""

    def __init__(
        self,
        status: int,
        sentence: str,
        field: str | None = None,
        retry_after: int = 0,
        **headers: str,
    ) -> None:
        super().__init__(sentence)
        self.status, self.field, self.headers = status, field, headers
        if status == 401:
            self.headers["www-authenticate"] = "Bearer"
        if retry_after:
            self.headers["retry-after"] = str(retry_after)

    @property
    def body(self) -> dict[str, Any]:
        default = "invalid_request_error" if self.status < 500 else "server_error"
        kind = KINDS.get(self.status, default)
        error = {"message": str(self), "type": kind, "param": self.field, "code": self.status}
        return {"error": error}

    @property
    def response(self) -> Response:
        return JSONResponse(self.body, self.status, self.headers)


def api_error(error: Exception) -> ApiError:
    """Log an unexpected exception, without its message, which could contain the prompt."""
    sentence = str(error)
    if isinstance(error, ApiError):
        return error
    if isinstance(error, (RequestError, SettingsError, TextError)):
        return ApiError(400, sentence)
    if isinstance(error, EngineBusy):
        return ApiError(429, sentence, retry_after=BUSY_SECONDS)
    if isinstance(error, EngineError):
        return ApiError(503, sentence, retry_after=DEAD_SECONDS)
    log.error("a request failed: %s", where(error))
    return ApiError(500, FAULT)


class Faults:
    """ASGI middleware that responds to exceptions. A response that has begun is cut off.

    It must enclose the app: the server logs the full text of every exception that reaches it.
    """

    def __init__(self, app: ASGIApp, respond: Callable[[ApiError], Response]) -> None:
        self._app, self._respond = app, respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_begun = scope["type"] != "http"

        async def send_and_note(message: Message) -> None:
            nonlocal is_begun
            is_begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
            return
        except ClientDisconnect:
            response = Response(status_code=499)  # nginx's code for a closed connection
        except Exception as error:
            response = self._respond(api_error(error))
        if not is_begun:
            await response(scope, receive, send)
