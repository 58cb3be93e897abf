"""Models as the endpoint sees them: the seam between HTTP and engines.

Names go in, events come out. Where an engine lives is known only to whoever implements ``Models``:
``SingleModel`` holds one in this process. What a page that has a model on another machine is told
of it is ``About``: its tokenizer travels whole, so that the page needs none of its files.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from pydantic import PlainValidator, TypeAdapter

from mars_runtime.engine.backend import where
from mars_runtime.engine.base import BaseEngine
from mars_runtime.engine.engine import DEAD
from mars_runtime.engine.header import Facts, facts_of
from mars_runtime.engine.request import Request
from mars_runtime.engine.run import Run
from mars_runtime.events import Event
from mars_runtime.json_values import Whole
from mars_runtime.text import Tokenizer

if TYPE_CHECKING:
    from mars_runtime.model.load import Checkpoint

FAILED = "The checkpoint could not be loaded: see the log of the server."
log = logging.getLogger(__name__)


class UnknownModelError(LookupError):
    """There is no model of that name; the message is one sentence."""


class NotReadyError(RuntimeError):
    """A model that cannot answer now, but may later; the message is one sentence.

    seconds: after which it is worth asking again.
    """

    def __init__(self, message: str, seconds: int = 5) -> None:
        super().__init__(message)
        self.seconds = seconds


class Answering(Protocol):
    """A request being served; ``mars_runtime.engine.Run`` is one."""

    def events_since(self, index: int) -> Sequence[Event]:
        """The events from the ``index``-th on, without waiting; the last one of all is an End."""

    def cancel(self) -> None:
        """End within one forward. A second call does nothing."""


class Model(Protocol):
    """One that answers now. capacity: tokens of a prompt and its answer together; block_size: the
    largest B that it was trained for."""

    @property
    def name(self) -> str: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def block_size(self) -> int: ...
    @property
    def capacity(self) -> int: ...

    async def submit(self, request: Request) -> Run:
        """Serve a request. Raises EngineBusy, EngineError or RequestError, each one sentence."""

    async def race(self, requests: Sequence[Request], pace: float, is_alone: bool) -> list[Run]:
        """Serve several side by side, or a single one, which shares forwards unless ``is_alone``.
        Raises what ``submit`` raises, and SettingsError."""

    @property
    def facts(self) -> Facts:
        """What it runs on, as the head of a trace tells it."""


class Models(Protocol):
    """Those that may be asked for."""

    @property
    def names(self) -> Sequence[str]:
        """What they are called, loaded or not."""

    @property
    def trouble(self) -> str:
        """Why nothing can be answered now, as a sentence; empty where something can."""

    def find(self, name: str) -> Model:
        """The model of that name, without waiting for it. Raises UnknownModelError or
        NotReadyError."""


def unknown(names: Sequence[str]) -> UnknownModelError:
    """What to tell who asks for another."""
    return UnknownModelError(f"There is no such model here: choose among {', '.join(names)}.")


@dataclass(frozen=True, slots=True)
class About:
    """A model on another machine. block_size, capacity: as of a Model."""

    facts: Facts
    tokenizer: Annotated[Tokenizer, PlainValidator(lambda parts: Tokenizer.from_parts(dict(parts)))]
    block_size: Whole
    capacity: Whole

    @property
    def name(self) -> str:
        """What it is called there."""
        return self.facts.checkpoint


def about(model: Model) -> dict[str, Any]:
    """As JSON; waits until the engine is warm."""
    return {
        "facts": asdict(model.facts),
        "tokenizer": model.tokenizer.parts(),
        "block_size": model.block_size,
        "capacity": model.capacity,
    }


def read_about(value: Any) -> About:
    """Back again. Raises ValueError, KeyError, TypeError or TextError for what is not one."""
    return _ABOUT.validate_python(value)


_ABOUT = TypeAdapter(About)


@dataclass(frozen=True, slots=True)
class EngineModel:
    """An engine of this process as a Model."""

    name: str
    tokenizer: Tokenizer
    block_size: int
    engine: BaseEngine
    checkpoint: Checkpoint | About | None = None

    @classmethod
    def of(cls, checkpoint: Checkpoint | About, engine: BaseEngine) -> EngineModel:
        """A loaded checkpoint and its engine."""
        return cls(checkpoint.name, checkpoint.tokenizer, checkpoint.block_size, engine, checkpoint)

    @property
    def capacity(self) -> int:
        """Tokens of a prompt and its answer together."""
        return self.engine.capacity

    async def submit(self, request: Request) -> Run:
        """Serve a request. Raises what ``Engine.submit`` raises."""
        return self.engine.submit(request)

    async def race(self, requests: Sequence[Request], pace: float, is_alone: bool) -> list[Run]:
        """Serve several side by side, or one. Raises what ``Engine.race`` raises."""
        if len(requests) == 1:
            return [self.engine.submit(requests[0], pace, is_alone=is_alone)]
        return self.engine.race(requests, pace)

    @property
    def facts(self) -> Facts:
        """What it runs on; waits until the engine is warm."""
        known = self.checkpoint
        if isinstance(known, About):
            return known.facts
        return Facts(self.name) if known is None else facts_of(known, self.engine.costs())


class SingleModel:
    """One model, brought by a thread of its own so that the server can say that it is loading.

    bring: loads it; ``failure``: why it could not, as a sentence. A model that failed to load, or
    whose worker died, is not brought again: ``trouble`` says so, and whoever watches over the
    process starts another.
    """

    def __init__(self, name: str, bring: Callable[[], EngineModel]) -> None:
        self._name = name
        self._bring = bring
        self._model: EngineModel | None = None
        self.failure = ""
        self._is_closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._load, name=f"load {name}", daemon=True)
        self._thread.start()

    @property
    def names(self) -> Sequence[str]:
        """Its name."""
        return (self._name,)

    @property
    def trouble(self) -> str:
        """Why it cannot answer now, as a sentence; empty where it can."""
        if self.failure:
            return self.failure
        if self._model is None:
            return f"{self._name} is still loading: try again in a moment."
        return "" if self._model.engine.is_alive else DEAD

    def find(self, name: str) -> EngineModel:
        """The model. Raises UnknownModelError or NotReadyError."""
        if name != self._name:
            raise unknown(self.names)
        if self.trouble or self._model is None:
            raise NotReadyError(self.trouble)
        return self._model

    def wait(self, timeout: float | None = None) -> str:
        """Wait until it is loaded or has failed; its ``trouble``."""
        self._thread.join(timeout)
        return self.trouble

    def close(self) -> None:
        """End its engine and every run of it; what is still loading ends as soon as it is there."""
        with self._lock:
            self._is_closed = True
        if self._model is not None:
            self._model.engine.close()

    def _load(self) -> None:
        from mars_runtime.model.config import CheckpointError

        try:
            model = self._bring()
        except Exception as error:
            is_told = isinstance(error, CheckpointError)
            if not is_told:
                log.error("a checkpoint failed to load\n%s", where(error))
            self.failure = str(error) if is_told else FAILED
            return
        with self._lock:
            self._model = model
            is_late = self._is_closed
        if is_late:
            model.engine.close()
