"""The endpoint without weights: the real engine and server over a backend that answers each prompt
with a text of its own."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import openai

from mars_runtime.engine import Engine
from mars_runtime.serving.app import make_app
from mars_runtime.serving.metrics import Metrics
from mars_runtime.serving.models import EngineModel, SingleModel
from mars_runtime.serving.requests import DEFAULT_CAPS, Caps
from mars_runtime.serving.server import Server, bound
from mars_runtime.text import Tokenizer
from tests.scripted_text import ScriptedBackend, write_tokenizer

NAME = "scripted"


class Oracle(ScriptedBackend):
    """Writes what ``answer_to`` says, which no two prompts share."""

    def answer_to(self, prompt_ids: Sequence[int]) -> str:
        """Its own mark, then words with characters of several bytes."""
        mark = hashlib.sha256(repr(tuple(prompt_ids)).encode()).hexdigest()[:12]
        return f"{mark}: ünï ☃ 👩‍👧 and so on, to the end of {mark}."


class Place:
    """A running server: where it is, what is behind it, and a client of OpenAI's own."""

    def __init__(self, address: str, models: SingleModel, backend: Oracle) -> None:
        self.address = address
        self.models = models
        self.backend = backend
        self.client = openai.OpenAI(
            base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=60
        )
        self.http = httpx.Client(base_url=address, timeout=60)

    @property
    def model(self) -> EngineModel:
        """What answers."""
        return self.models.find(NAME)

    def text_for(self, content: str) -> str:
        """What the backend writes to a first question."""
        return self.backend.answer_to(self.model.tokenizer.encode_prompt(content))

    @property
    def num_open(self) -> int:
        """Requests that the engine has, served or in line."""
        return len(self.model.engine._scheduler)


def scripted_model(folder: Path, engine: Engine) -> EngineModel:
    """An engine over a scripted backend as a model with a tokenizer of bytes."""
    tokenizer: Tokenizer = write_tokenizer(folder)
    return EngineModel(NAME, tokenizer, 8, engine)


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
) -> Iterator[Place]:
    """A server in a thread, at any port. held: the model goes on loading until it is set."""

    def bring() -> EngineModel:
        if held is not None:
            assert held.wait(60)
        engine = Engine(backend, max_runs, max_waiting, max_turn_seconds)
        metrics.watch(NAME, engine)
        return scripted_model(folder, engine)

    metrics = Metrics()
    models = SingleModel(NAME, bring)
    listener = bound("127.0.0.1", port)
    address = "http://127.0.0.1:{1}".format(*listener.getsockname())
    server = Server(make_app(models, caps, key, metrics.expose, origins), models.close)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    place = Place(address, models, backend)
    try:
        if held is None:
            assert models.wait(60) == ""
        yield place
    finally:
        place.client.close()
        place.http.close()
        server.leave()
        thread.join(30)
        assert not thread.is_alive()


def eventually(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Whether it comes true within so many seconds."""
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.005)
    return condition()
