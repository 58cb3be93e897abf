"""Interface between the HTTP routes and the engines.

Only an implementation of ``Models`` knows where engines run: ``SingleModel`` has one in this
process. ``ModelDescription`` describes a model to a page on another machine. It includes the whole
tokenizer, so the page needs no files of the model.
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

FAILED = "The checkpoint could not be loaded. See the log of the server."
log = logging.getLogger(__name__)


class UnknownModelError(LookupError):
    """No model has that name; the message is one sentence."""


class NotReadyError(RuntimeError):
    """The model cannot answer yet; the message is one sentence.

    seconds: after which the client should retry.
    """

    def __init__(self, message: str, seconds: int = 5) -> None:
        super().__init__(message)
        self.seconds = seconds


class Answering(Protocol):
    """A request in progress, such as ``mars_runtime.engine.Run``."""

    def events_since(self, index: int) -> Sequence[Event]:
        """Return the events from number ``index`` on, without waiting. The last event of a run is
        an End.
        """

    def cancel(self) -> None:
        """End within one forward. A second call does nothing."""


class ServedModel(Protocol):
    """A model that is ready.

    capacity: maximum tokens of a prompt and its answer together. block_size: the largest B that it
    was trained for.
    """

    @property
    def name(self) -> str: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def block_size(self) -> int: ...
    @property
    def capacity(self) -> int: ...

    async def submit(self, request: Request) -> Run:
        """Serve a request. Raises EngineBusy, EngineError or RequestError, each with one
        sentence.
        """

    async def race(self, requests: Sequence[Request], pace: float, is_alone: bool) -> list[Run]:
        """Serve several requests as a race. A single request shares forwards unless ``is_alone``.
        Raises what ``submit`` raises, and SettingsError.
        """

    @property
    def facts(self) -> Facts:
        """Checkpoint, device and measured costs, as in a trace header."""


class Models(Protocol):
    """The models that an endpoint serves."""

    @property
    def names(self) -> Sequence[str]:
        """Names of all models, loaded or not."""

    @property
    def trouble(self) -> str:
        """Why no model can answer now, as a sentence; empty if one can."""

    def find(self, name: str) -> ServedModel:
        """Return the model of that name without waiting for it. Raises UnknownModelError or
        NotReadyError.
        """


def unknown(names: Sequence[str]) -> UnknownModelError:
    """Return the error for a name that is not among these."""
    return UnknownModelError(f"This model does not exist. Choose among {', '.join(names)}.")


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """Description of a model on another machine. block_size, capacity: as in ``ServedModel``."""

    facts: Facts
    tokenizer: Annotated[Tokenizer, PlainValidator(lambda parts: Tokenizer.from_parts(dict(parts)))]
    block_size: Whole
    capacity: Whole

    @property
    def name(self) -> str:
        """Name of the model on that machine."""
        return self.facts.checkpoint


def about(model: ServedModel) -> dict[str, Any]:
    """Return the description of a model as JSON. Waits until the engine is warm."""
    return {
        "facts": asdict(model.facts),
        "tokenizer": model.tokenizer.parts(),
        "block_size": model.block_size,
        "capacity": model.capacity,
    }


def read_about(value: Any) -> ModelDescription:
    """Parse the description of a model. Raises ValueError, KeyError, TypeError or TextError if it
    is malformed.
    """
    return _ABOUT.validate_python(value)


_ABOUT = TypeAdapter(ModelDescription)


@dataclass(frozen=True, slots=True)
class EngineModel:
    """Model on an engine of this process."""

    name: str
    tokenizer: Tokenizer
    block_size: int
    engine: BaseEngine
    checkpoint: Checkpoint | ModelDescription | None = None

    @classmethod
    def of(cls, checkpoint: Checkpoint | ModelDescription, engine: BaseEngine) -> EngineModel:
        """Build a model from a checkpoint and its engine."""
        return cls(checkpoint.name, checkpoint.tokenizer, checkpoint.block_size, engine, checkpoint)

    @property
    def capacity(self) -> int:
        """Maximum tokens of a prompt and its answer together."""
        return self.engine.capacity

    async def submit(self, request: Request) -> Run:
        """Serve a request. Raises what ``Engine.submit`` raises."""
        return self.engine.submit(request)

    async def race(self, requests: Sequence[Request], pace: float, is_alone: bool) -> list[Run]:
        """Serve several requests at the same time. Raises what ``Engine.race`` raises."""
        if len(requests) == 1:
            return [self.engine.submit(requests[0], pace, is_alone=is_alone)]
        return self.engine.race(requests, pace)

    @property
    def facts(self) -> Facts:
        """Checkpoint, device and measured costs; waits until the engine is warm."""
        known = self.checkpoint
        if isinstance(known, ModelDescription):
            return known.facts
        return Facts(self.name) if known is None else facts_of(known, self.engine.costs())


class SingleModel:
    """One model, loaded in a thread of its own so that the server can report that it is loading.

    bring: loads the model. ``failure``: why loading failed, as a sentence. The model is loaded only
    once: after a failed load or a dead worker, ``trouble`` reports it, and the supervisor of the
    process has to restart it.
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
        """The name of the model, as the only item."""
        return (self._name,)

    @property
    def trouble(self) -> str:
        """Why the model cannot answer now, as a sentence; empty if it can."""
        if self.failure:
            return self.failure
        if self._model is None:
            return f"{self._name} is still loading. Try again in a moment."
        return "" if self._model.engine.is_alive else DEAD

    def find(self, name: str) -> EngineModel:
        """Return the model. Raises UnknownModelError or NotReadyError."""
        if name != self._name:
            raise unknown(self.names)
        if self.trouble or self._model is None:
            raise NotReadyError(self.trouble)
        return self._model

    def wait(self, timeout: float | None = None) -> str:
        """Wait until the model is loaded or has failed, and return ``trouble``."""
        self._thread.join(timeout)
        return self.trouble

    def close(self) -> None:
        """Close the engine and end its runs. A model that is still loading is closed once
        loaded.
        """
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
