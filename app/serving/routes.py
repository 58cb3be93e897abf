"""Passes only those requests to Gradio that the page and its endpoints need.

Gradio has routes that this app does not need: uploads, a fetcher of URLs, proxies, recordings, deep
links. This module rejects requests for other routes. It also rejects values that Gradio would treat
as files, unpaired surrogates, calls of unknown functions, and values that a function does not
accept.
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
    """The values that a page accepts.

    events: the number of values that each event accepts, by the event's number.
    endpoints: for each endpoint, its parameters and whether each is optional.
    parts: for each component, by its number, the names of the server functions that may be called.
    """

    events: Mapping[int, int]
    endpoints: Mapping[str, Mapping[str, bool]]
    parts: Mapping[int, Collection[str]]

    def fault_of(self, path: str, posted: Any) -> tuple[int, str]:
        """Return the status and error message for values posted to a path, or status 0 if the
        values fit.
        """
        if not isinstance(posted, dict):
            return 400, NO_OBJECT
        if path.startswith(CALLS):
            number, name = posted.get("component_id"), posted.get("fn_name")
            is_part = type(number) is int and name in list(self.parts.get(number, ()))
            is_whole = "data" in posted and isinstance(posted.get("session_hash"), str)
            return (404, UNKNOWN) if not is_part else (0, "") if is_whole else (400, OTHER_VALUES)
        if EVENTS.fullmatch(path):
            number = posted.get("fn_index")
            wanted = self.events.get(number) if type(number) is int else None
            return _check(wanted, posted.get("data"))
        if named := NAMED.fullmatch(path):
            parameters = self.endpoints.get(named["name"])
            if parameters is None or not named["v2"]:
                wanted = None if parameters is None else len(parameters)
                return _check(wanted, posted.get("data"))
            needed = {name for name, is_optional in parameters.items() if not is_optional}
            fits = needed <= posted.keys() <= parameters.keys()
            return (0, "") if fits else (400, OTHER_VALUES)
        return 0, ""


def _check(wanted: int | None, data: object) -> tuple[int, str]:
    if wanted is None:
        return 404, UNKNOWN
    fits = isinstance(data, list) and len(data) == wanted
    return (0, "") if fits else (400, OTHER_VALUES)


class Routes:
    """ASGI middleware that responds with 404 to unknown routes, and with 400 to rejected bodies.

    has_tools: whether the app serves MCP.
    """

    def __init__(self, app: ASGIApp, takes: AcceptedValues, has_tools: bool) -> None:
        self._app = app
        self._takes = takes
        self._has_tools = has_tools

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close"})
        elif not self._is_open(scope["method"], scope["path"]):
            await answer(send, 404, NOTHING)
        elif not all(map(_is_session, _sessions_in_query(scope))):
            await answer(send, 400, LONG_SESSION)
        elif scope["method"] != "POST" or TOOLS.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
        elif not is_json(scope):
            # Other types are rejected: a form may contain files, and pages of other sites can post
            # other types without permission.
            await answer(send, 415, ONLY_JSON)
        else:
            await self._check(scope, receive, send)

    def _is_open(self, method: str, path: str) -> bool:
        if self._has_tools and TOOLS.fullmatch(path):
            return True
        if method == "POST":
            return WRITTEN.fullmatch(path) is not None
        return method in ("GET", "HEAD") and READ.fullmatch(path) is not None

    async def _check(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on if its body is valid, which ``BodyLimit`` has read whole."""
        body = (await receive()).get("body", b"")
        path, posted = scope["path"], parsed(body)
        is_call = path.startswith(CALLS)  # Gradio does not process the values of a call
        status, fault = 400, session_fault(posted) or ("" if is_call else fault_of(posted))
        if not fault:
            status, fault = self._takes.fault_of(path, posted)
        if fault:
            await answer(send, status, fault)
            return
        await self._app(scope, replayed(body, receive), send)


class Refusals:
    """ASGI middleware that responds with 400 instead of Gradio's 500 if ``EVENT`` fails with an
    error message for the visitor.

    An internal error has no message (``show_error`` is off) and remains a 500.
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


def session_fault(posted: Any) -> str:
    """Return why the session name in this JSON is rejected, or "" if it is valid. Gradio and this
    app store visitors' state under this name.
    """
    name = posted.get("session_hash") if isinstance(posted, dict) else None
    return "" if _is_session(name) else LONG_SESSION


def _is_session(name: object) -> bool:
    return name is None or (isinstance(name, str) and len(name) <= MAX_SESSION)


def _sessions_in_query(scope: Scope) -> list[str]:
    query: str = scope["query_string"].decode("latin-1")
    return parse_qs(query).get("session_hash", [])


def fault_of(posted: Any) -> str:
    """Return why this JSON is rejected, or "" if it is valid. Gradio would read or fetch some
    values as files, and it cannot encode some texts.
    """
    remaining = [posted]
    while remaining:
        value = remaining.pop()
        if isinstance(value, dict):
            if "path" in value or "url" in value:
                return NO_FILES
            remaining += [*value, *value.values()]
        elif isinstance(value, list):
            remaining += value
        elif isinstance(value, str) and _HALF.search(value):
            return NO_TEXT
    return ""


def parsed(body: bytes) -> Any:
    """Return the JSON value of a body, or None if it is invalid."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def parsed_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body, or an empty one if the body is not a JSON object."""
    value = parsed(body)
    return value if isinstance(value, dict) else {}


async def answer(send: Send, status: int, sentence: str) -> None:
    body = json.dumps({"detail": sentence}).encode()
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
