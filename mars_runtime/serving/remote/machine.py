"""The requests that a page sends to the machine that decodes for it. Knows no run and no thread."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from mars_runtime.byte_level import TextError
from mars_runtime.engine.engine import EngineBusy, EngineError
from mars_runtime.engine.request import RequestError
from mars_runtime.serving.about import About, read_about

CONNECT_SECONDS = 5.0
SILENT_SECONDS = 15.0  # some beats of the stream: then the machine is taken for lost
AWAY = "The machine that decodes for this page does not answer: run it again in a moment."
LOST = "The machine that decoded this was lost: run it again in a moment."
STRANGE = "The machine that decodes for this page speaks another language: update both."
Event = tuple[str, str]
"""Name and data of a server-sent event."""


class Machine:
    """address: where the endpoint is served, such as http://host:8000; key: what it asks for."""

    def __init__(self, address: str, key: str = "") -> None:
        headers = {b"authorization": f"Bearer {key}".encode()} if key else {}
        timeout = httpx.Timeout(SILENT_SECONDS, connect=CONNECT_SECONDS)
        limits = httpx.Limits(max_connections=None)
        self._http = httpx.Client(
            base_url=address, headers=headers, timeout=timeout, limits=limits, trust_env=False
        )

    def about(self, name: str, seconds: float) -> About:
        """What is known of a model there; it may be measuring still, which takes ``seconds`` at
        most. Raises EngineError."""
        with _sentences():
            answer = self._http.get(f"/v1/models/{name}/about", timeout=seconds)
            _check(answer)
            try:
                return read_about(answer.json())
            except (ValueError, KeyError, TypeError, TextError) as error:
                raise EngineError(STRANGE) from error

    def trouble(self, seconds: float) -> str:
        """Why it answers nobody now, as a sentence; empty where it does. Waits so long at most."""
        try:
            answer = self._http.get("/health", timeout=seconds)
        except httpx.HTTPError:
            return AWAY
        return (_sentence(answer.text) or AWAY) if answer.is_error else ""

    @contextmanager
    def begin(self, asked: Mapping[str, Any], session: str) -> Iterator[Stream]:
        """Begin a run. Raises EngineBusy, EngineError or RequestError."""
        headers = {"x-session-id": session}
        with (
            _sentences(),
            self._http.stream("POST", "/v1/runs", json=dict(asked), headers=headers) as answer,
        ):
            if answer.is_error:
                answer.read()
            _check(answer)
            yield Stream(answer)

    def steer(self, run: str, session: str, changes: Mapping[str, Any]) -> None:
        """Change settings of a run. Raises EngineError or RequestError."""
        path, headers = f"/v1/runs/{run}/settings", {"x-session-id": session}
        with _sentences():
            _check(self._http.post(path, json=dict(changes), headers=headers))

    def stop(self, run: str, session: str, lane: int) -> None:
        """End a lane of a run. Raises EngineError."""
        headers = {"x-session-id": session}
        with _sentences():
            _check(self._http.delete(f"/v1/runs/{run}", params={"lane": lane}, headers=headers))

    def close(self) -> None:
        """Let go of all connections."""
        self._http.close()


class Stream:
    """What a run tells. ``name``: by which it is steered."""

    def __init__(self, answer: httpx.Response) -> None:
        self.name = answer.headers.get("x-run-id", "")
        self._answer = answer

    def __iter__(self) -> Iterator[Event]:
        """Events, to the end. Raises EngineError: the machine is lost, or says that it failed."""
        name, data = "", ""
        with _sentences(LOST):
            for line in self._answer.iter_lines():
                kind, _, value = line.partition(": ")
                if kind == "event":
                    name = value
                elif kind == "data":
                    data = value
                elif not line and data:
                    yield _checked(name, data)
                    name = data = ""


def _checked(name: str, data: str) -> Event:
    """An event without a name is an error, or the end."""
    if not name and data != "[DONE]":
        raise EngineError(_sentence(data) or AWAY)
    return name, data


@contextmanager
def _sentences(sentence: str = AWAY) -> Iterator[None]:
    try:
        yield
    except (httpx.HTTPError, httpx.StreamError) as error:
        raise EngineError(sentence) from error


def _check(answer: httpx.Response) -> None:
    """Raises what the engine would have raised."""
    if not answer.is_error:
        return
    answer.read()
    kinds: dict[int, Callable[[str], Exception]] = {400: RequestError, 429: EngineBusy}
    sentence = _sentence(answer.text) or AWAY
    raise kinds.get(answer.status_code, EngineError)(sentence)


def _sentence(body: str) -> str:
    """What the machine says went wrong; empty where it says nothing that is ours."""
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return message if isinstance(message, str) else ""
