"""Passes only those requests to Gradio that the page and its endpoints need.

Gradio's uploads, fetcher of URLs, proxies, recordings and deep links are not among them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.gradio_compat import CALLS, EVENT, EVENTS, NAMED, READ, TOOLS, WRITTEN
from mars_runtime.serving.errors import ApiError
from mars_runtime.serving.limits import is_json, replayed

NOTHING = "This address does not exist."
NO_OBJECT = "The request must be one JSON object."
UNKNOWN = "The page has no function with this number or name. Reload the page, or see /?view=api."
OTHER_VALUES = "The values do not fit this function. Reload the page, or see /?view=api."
ONLY_JSON = "The content type must be application/json."
NO_TEXT = "Remove the characters that are not valid text."
# An unpaired surrogate is valid in JSON, but it cannot be encoded in a response, a log or a file.
_HALF = re.compile("[\ud800-\udfff]")
MAX_SESSION = 64  # maximum number of characters; the sessions of Gradio's pages have eleven
LONG_SESSION = f"session_hash must have at most {MAX_SESSION} letters and digits."
NO_FILES = "This app accepts no files. Send plain text and numbers."


@dataclass(frozen=True, slots=True)
class AcceptedValues:
    """events: how many values each event accepts. endpoints: whether their parameters are optional.
    parts: server functions of each component that may be called.
    """

    events: Mapping[int, int]
    endpoints: Mapping[str, Mapping[str, bool]]
    parts: Mapping[int, Collection[str]]

    def check(self, path: str, posted: Any) -> None:
        """Raise ApiError if the posted values do not fit."""
        if not isinstance(posted, dict):
            raise ApiError(400, NO_OBJECT)
        fits = True
        if path.startswith(CALLS):
            number, name = posted.get("component_id"), posted.get("fn_name")
            if type(number) is not int or name not in list(self.parts.get(number, ())):
                raise ApiError(404, UNKNOWN)
            fits = "data" in posted and isinstance(posted.get("session_hash"), str)
        elif EVENTS.fullmatch(path):
            number = posted.get("fn_index")
            fits = _fits(self.events.get(number) if type(number) is int else None, posted)
        elif named := NAMED.fullmatch(path):
            parameters = self.endpoints.get(named["name"])
            if parameters is None or not named["v2"]:
                fits = _fits(None if parameters is None else len(parameters), posted)
            else:
                needed = {name for name, is_optional in parameters.items() if not is_optional}
                fits = needed <= posted.keys() <= parameters.keys()
        if not fits:
            raise ApiError(400, OTHER_VALUES)


def _fits(number: int | None, posted: dict[str, Any]) -> bool:
    if number is None:
        raise ApiError(404, UNKNOWN)
    data = posted.get("data")
    return isinstance(data, list) and len(data) == number


class Routes:
    """ASGI middleware. has_tools: whether the app serves MCP."""

    def __init__(self, app: ASGIApp, takes: AcceptedValues, has_tools: bool) -> None:
        self._app = app
        self._takes = takes
        self._has_tools = has_tools

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return
        if not self._is_open(scope["method"], scope["path"]):
            raise ApiError(404, NOTHING)
        check_session(*parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", []))
        if scope["method"] != "POST" or TOOLS.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
        elif not is_json(scope):
            # A form may contain files, and pages of other sites can post forms without permission.
            raise ApiError(415, ONLY_JSON)
        else:
            body = (await receive()).get("body", b"")  # which ``BodyLimit`` has read whole
            path, posted = scope["path"], parsed(body)
            if isinstance(posted, dict):
                check_session(posted.get("session_hash"))
            if not path.startswith(CALLS):  # whose values Gradio does not process
                check_json(posted)
            self._takes.check(path, posted)
            await self._app(scope, replayed(body, receive), send)

    def _is_open(self, method: str, path: str) -> bool:
        if self._has_tools and TOOLS.fullmatch(path):
            return True
        if method == "POST":
            return WRITTEN.fullmatch(path) is not None
        return method in ("GET", "HEAD") and READ.fullmatch(path) is not None


class Refusals:
    """ASGI middleware that responds with 400 instead of Gradio's 500 if ``EVENT`` fails with a
    message for the visitor. An internal error has none, because ``show_error`` is off.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(EVENT):
            await self._app(scope, receive, send)
            return
        start: Message = {}

        async def mended(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and message["status"] == 500:
                start = message
                return
            if start:
                is_sentence = bool(parsed_object(message.get("body", b"")).get("error"))
                await send({**start, "status": 400 if is_sentence else 500})
                start = {}
            await send(message)

        await self._app(scope, receive, mended)


def check_session(*names: object) -> None:
    """Raise ApiError for a name that Gradio and this app should not store state under."""
    for name in names:
        if name is not None and not (isinstance(name, str) and len(name) <= MAX_SESSION):
            raise ApiError(400, LONG_SESSION)


def check_json(posted: Any) -> None:
    """Raise ApiError for values that Gradio would read or fetch as files, or cannot encode."""
    remaining = [posted]
    while remaining:
        value = remaining.pop()
        if isinstance(value, dict):
            if "path" in value or "url" in value:
                raise ApiError(400, NO_FILES)
            remaining += [*value, *value.values()]
        elif isinstance(value, list):
            remaining += value
        elif isinstance(value, str) and _HALF.search(value):
            raise ApiError(400, NO_TEXT)


def parsed(body: bytes) -> Any:
    """Return the JSON value of a body, or None if it is invalid."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def parsed_object(body: bytes) -> dict[str, Any]:
    value = parsed(body)
    return value if isinstance(value, dict) else {}
