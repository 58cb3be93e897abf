"""The interface between the HTTP routes and the engines.

Routes access engines through ``Models``; its implementations decide where engines run.
``SingleModel`` runs one engine in this process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mars_runtime.engine.backend import where
from mars_runtime.engine.engine import DEAD, BaseEngine
from mars_runtime.engine.request import Request
from mars_runtime.engine.run import Run
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
class EngineModel:
    """A model and the engine object in this process that runs it."""

    name: str
    tokenizer: Tokenizer
    block_size: int
    engine: BaseEngine

    @classmethod
    def of(cls, checkpoint: Checkpoint, engine: BaseEngine) -> EngineModel:
        return cls(checkpoint.name, checkpoint.tokenizer, checkpoint.block_size, engine)

    @property
    def capacity(self) -> int:
        return self.engine.capacity

    async def submit(self, request: Request) -> Run:
        return self.engine.submit(request)


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
