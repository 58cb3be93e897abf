"""The endpoint without weights: the real engine and server over a backend that answers each prompt
with a text of its own."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import openai

from mars_runtime.engine import Engine
from mars_runtime.serving.app import make_app
from mars_runtime.serving.limits import Proxies
from mars_runtime.serving.metrics import Metrics
from mars_runtime.serving.models import EngineModel, SingleModel
from mars_runtime.serving.requests import DEFAULT_CAPS, Caps
from mars_runtime.serving.server import Server, bound
from tests.scripted_text import ScriptedBackend, write_tokenizer

NAME = "scripted"
QUESTION = "What is it?"
ASK: list[Any] = [{"role": "user", "content": QUESTION}]


class Oracle(ScriptedBackend):
    """Writes ``answer_to`` the prompt, which no two prompts share."""

    def answer_to(self, prompt_ids: Sequence[int]) -> str:
        """Return a mark of the prompt, then words with characters of several bytes."""
        mark = hashlib.sha256(repr(tuple(prompt_ids)).encode()).hexdigest()[:12]
        return f"{mark}: ünï ☃ 👩‍👧 and so on, to the end of {mark}."


class Place:
    """A running server: its address, what is behind it, and clients of it."""

    def __init__(self, address: str, models: SingleModel, backend: Oracle) -> None:
        self.address, self.models, self.backend = address, models, backend
        self.client = openai.OpenAI(
            base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=60
        )
        self.http = httpx.Client(base_url=address, timeout=60)

    @property
    def model(self) -> EngineModel:
        return self.models.find(NAME)

    def ids(self, content: str = QUESTION) -> list[int]:
        """Return the prompt that a first question becomes."""
        return self.model.tokenizer.encode_prompt(content)

    def text_for(self, content: str = QUESTION) -> str:
        """Return what the backend writes to a first question."""
        return self.backend.answer_to(self.ids(content))

    def text_after(self, prompt: str) -> str:
        """Return what the backend writes behind a plain text."""
        return self.backend.answer_to(self.model.tokenizer.encode(prompt))

    @property
    def num_open(self) -> int:
        """Requests that the engine has, running or waiting."""
        return self.model.engine.num_running + self.model.engine.num_waiting

    def is_idle(self, seconds: float = 30.0) -> bool:
        """Whether the engine has no request any more within so many seconds."""
        return eventually(lambda: self.num_open == 0, seconds)


@contextmanager
def serving(
    folder: Path,
    backend: Oracle,
    *,
    max_runs: int = 4,
    max_waiting: int = 4,
    max_turn_seconds: float = 60.0,
    caps: Caps = DEFAULT_CAPS,
    key: str = "",
    origins: Sequence[str] = (),
    held: threading.Event | None = None,
    port: int = 0,
    num_proxies: int = 0,
) -> Iterator[Place]:
    """Serve in a thread, at any port. held: the model is loading until it is set."""

    def bring() -> EngineModel:
        assert held is None or held.wait(60)
        engine = Engine(backend, max_runs, max_waiting, max_turn_seconds)
        metrics.watch(NAME, engine)
        return EngineModel(NAME, write_tokenizer(folder), 8, engine)

    metrics = Metrics()
    models = SingleModel(NAME, bring)
    listener = bound("127.0.0.1", port)
    address = "http://127.0.0.1:{1}".format(*listener.getsockname())
    app = Proxies(make_app(models, caps, key, metrics.expose, origins), num_proxies)
    server = Server(app, "127.0.0.1", models.close)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    place = Place(address, models, backend)
    try:
        assert held is not None or models.wait(60) == ""
        yield place
    finally:
        place.client.close()
        place.http.close()
        server.leave()
        thread.join(30)
        assert not thread.is_alive()


def chat(place: Place, messages: Any = ASK, **more: Any) -> Any:
    return place.client.chat.completions.create(model=NAME, messages=messages, **more)


def complete(place: Place, prompt: Any, **more: Any) -> Any:
    return place.client.completions.create(model=NAME, prompt=prompt, **more)


def respond(place: Place, **more: Any) -> Any:
    return place.client.responses.create(**{"model": NAME, "input": QUESTION, **more})


class Said(NamedTuple):
    """What a request brought, whole or streamed: texts and reasons of the choices by their index,
    log probabilities of a chat, and the answer or its last chunk."""

    texts: list[str]
    reasons: list[str]
    logprobs: list[Any]
    last: Any
    chunks: list[Any]


def said(answer: Any) -> Said:
    """Read an answer, or a stream to its end."""
    chunks = [answer] if hasattr(answer, "choices") else list(answer)
    texts: dict[int, str] = defaultdict(str)
    reasons: dict[int, str] = {}
    logprobs: list[Any] = []
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        shown = getattr(choice, "delta", None) or getattr(choice, "message", None)
        texts[choice.index] += (choice.text if shown is None else shown.content) or ""
        reasons[choice.index] = choice.finish_reason
        logprobs += getattr(choice.logprobs, "content", None) or []
    order = sorted(texts)
    return Said(
        [texts[n] for n in order], [reasons[n] for n in order], logprobs, chunks[-1], chunks
    )


def eventually(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Whether it comes true within so many seconds."""
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.005)
    return condition()
