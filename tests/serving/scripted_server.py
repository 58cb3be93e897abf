"""The engine and server over a backend that answers each prompt with a text of its own."""

from __future__ import annotations

import hashlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import openai

from mars_runtime.engine import Engine, Request
from mars_runtime.runs.events import Event
from mars_runtime.serving.app import make_app
from mars_runtime.serving.limits import Proxies
from mars_runtime.serving.metrics import Metrics
from mars_runtime.serving.models import EngineModel, SingleModel
from mars_runtime.serving.requests import DEFAULT_CAPS, Caps
from mars_runtime.serving.server import Server, bound
from mars_runtime.settings import DecodeSettings
from tests.engine.scripted import eventually
from tests.scripted_text import ScriptedBackend, write_tokenizer

NAME = "scripted"
QUESTION = "What is it?"
ASK: list[Any] = [{"role": "user", "content": QUESTION}]


class Oracle(ScriptedBackend):
    """Writes ``answer_to`` the prompt, which no two prompts share, once it is ``released``."""

    def __init__(self, forward_seconds: float = 0.002, *, is_held: bool = False) -> None:
        super().__init__(forward_seconds=forward_seconds)
        self.released = threading.Event()
        if not is_held:
            self.released.set()

    def answer_to(self, prompt_ids: Sequence[int]) -> str:
        """Return a mark of the prompt, then words with characters of several bytes."""
        mark = hashlib.sha256(repr(tuple(prompt_ids)).encode()).hexdigest()[:12]
        return f"{mark}: ünï ☃ 👩‍👧 and so on, to the end of {mark}."

    def decode(self, request: Request, settings: Callable[[], DecodeSettings]) -> Iterator[Event]:
        events = super().decode(request, settings)
        yield next(events)
        assert self.released.wait(60)
        yield from events


class Endless(Oracle):
    def answer_to(self, prompt_ids: Sequence[int]) -> str:
        return "x" * 10_000


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
        return self.model.tokenizer.encode_prompt(content)

    def text_for(self, content: str = QUESTION) -> str:
        return self.backend.answer_to(self.ids(content))

    def text_after(self, prompt: str) -> str:
        return self.backend.answer_to(self.model.tokenizer.encode(prompt))

    @property
    def num_open(self) -> int:
        return self.model.engine.num_running + self.model.engine.num_waiting

    def is_idle(self) -> bool:
        return eventually(lambda: self.num_open == 0, 30.0)


@contextmanager
def serving(
    folder: Path,
    backend: Oracle,
    *,
    caps: Caps = DEFAULT_CAPS,
    key: str = "",
    origins: Sequence[str] = (),
    held: threading.Event | None = None,
    num_proxies: int = 0,
    **sizes: Any,
) -> Iterator[Place]:
    """Serve in a thread. held: the model is loading until it is set. sizes: of the engine."""

    def bring() -> EngineModel:
        assert held is None or held.wait(60)
        engine = Engine(backend, **{"max_runs": 4, "max_waiting": 4, **sizes})
        metrics.watch(NAME, engine)
        return EngineModel(NAME, write_tokenizer(folder), 8, engine)

    metrics = Metrics()
    models = SingleModel(NAME, bring)
    listener = bound("127.0.0.1", 0)
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
