"""The interface between the HTTP routes and the engines.

Routes access engines through ``Models``; its implementations decide where engines run.
``SingleModel`` runs one engine in this process. ``ModelDescription`` describes a model to a page on
another machine. It contains the whole tokenizer, so that machine needs no files of the model.
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
    """The requested model does not exist. The message is one sentence."""


class NotReadyError(RuntimeError):
    """The model cannot answer now. The message is one sentence.

    seconds: time after which the client should retry.
    """

    def __init__(self, message: str, seconds: int = 5) -> None:
        super().__init__(message)
        self.seconds = seconds


class Answering(Protocol):
    """The methods of a run that are needed to build an answer.

    ``mars_runtime.engine.Run`` implements them.
    """

    def events_since(self, index: int) -> Sequence[Event]:
        """Return the events from number ``index`` on, without waiting for more.

        The last event of a run is an End.
        """

    def cancel(self) -> None:
        """End the run within one forward pass. A second call does nothing."""


class ServedModel(Protocol):
    """A model that can answer requests.

    capacity: maximum number of tokens of a prompt and its answer together. block_size: the largest
    B that the model was trained with.
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
        """Start a run for the request.

        Raises EngineBusy, EngineError or RequestError, each with one sentence.
        """

    async def race(self, requests: Sequence[Request], pace: float, is_alone: bool) -> list[Run]:
        """Start a run for each request, as a race if there are several.

        A single request shares forward passes with other runs unless ``is_alone`` is set. Raises
        the exceptions of ``submit`` and SettingsError.
        """

    @property
    def facts(self) -> Facts:
        """Checkpoint, device and measured costs of the model, as in the header of a trace."""


class Models(Protocol):
    """The models that an endpoint serves."""

    @property
    def names(self) -> Sequence[str]:
        """The names of all models, including those that are not loaded."""

    @property
    def trouble(self) -> str:
        """A sentence that explains why no model can answer now; empty if one can."""

    def find(self, name: str) -> ServedModel:
        """Return the model with this name, without waiting until it is loaded.

        Raises UnknownModelError or NotReadyError.
        """


def unknown(names: Sequence[str]) -> UnknownModelError:
    """Return the error for a name that is not one of ``names``."""
    return UnknownModelError(f"This model does not exist. Choose among {', '.join(names)}.")


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """The description of a model on another machine; fields are those of ``ServedModel``."""

    facts: Facts
    tokenizer: Annotated[Tokenizer, PlainValidator(lambda parts: Tokenizer.from_parts(dict(parts)))]
    block_size: Whole
    capacity: Whole

    @property
    def name(self) -> str:
        return self.facts.checkpoint


def about(model: ServedModel) -> dict[str, Any]:
    """Return the description of a model as JSON. Waits until its engine has measured the costs."""
    return {
        "facts": asdict(model.facts),
        "tokenizer": model.tokenizer.parts(),
        "block_size": model.block_size,
        "capacity": model.capacity,
    }


def read_about(value: Any) -> ModelDescription:
    """Parse the description of a model.

    Raises ValueError, KeyError, TypeError or TextError if it is invalid.
    """
    return _ABOUT.validate_python(value)


_ABOUT = TypeAdapter(ModelDescription)


@dataclass(frozen=True, slots=True)
class EngineModel:
    """A model and the engine object in this process that runs it."""

    name: str
    tokenizer: Tokenizer
    block_size: int
    engine: BaseEngine
    checkpoint: Checkpoint | ModelDescription | None = None

    @classmethod
    def of(cls, checkpoint: Checkpoint | ModelDescription, engine: BaseEngine) -> EngineModel:
        return cls(checkpoint.name, checkpoint.tokenizer, checkpoint.block_size, engine, checkpoint)

    @property
    def capacity(self) -> int:
        return self.engine.capacity

    async def submit(self, request: Request) -> Run:
        return self.engine.submit(request)

    async def race(self, requests: Sequence[Request], pace: float, is_alone: bool) -> list[Run]:
        if len(requests) == 1:
            return [self.engine.submit(requests[0], pace, is_alone=is_alone)]
        return self.engine.race(requests, pace)

    @property
    def facts(self) -> Facts:
        """Checkpoint, device and measured costs. Waits until the engine has measured the costs."""
        checkpoint = self.checkpoint
        if isinstance(checkpoint, ModelDescription):
            return checkpoint.facts
        return Facts(self.name) if checkpoint is None else facts_of(checkpoint, self.engine.costs())


class SingleModel:
    """A single model, which is loaded in a thread, so that the server can report its state.

    bring: loads the model. failure: why loading failed, as a sentence; empty if it has not failed.

    The model is loaded only once. If loading fails or the engine dies, ``trouble`` reports it, and
    the supervisor of the process must restart the process.
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
        return (self._name,)

    @property
    def trouble(self) -> str:
        if self.failure:
            return self.failure
        if self._model is None:
            return f"{self._name} is still loading. Try again in a moment."
        return "" if self._model.engine.is_alive else DEAD

    def find(self, name: str) -> EngineModel:
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
        """Close the engine and end its runs.

        If the model is still loading, its engine is closed as soon as it is loaded.
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
            is_expected = isinstance(error, CheckpointError)
            if not is_expected:
                log.error("a checkpoint failed to load\n%s", where(error))
            self.failure = str(error) if is_expected else FAILED
            return
        with self._lock:
            self._model = model
            is_late = self._is_closed
        if is_late:
            model.engine.close()
