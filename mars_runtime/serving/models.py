"""The interface between the HTTP routes and the engines."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mars_runtime.engine.backend import where
from mars_runtime.engine.engine import DEAD, BaseEngine
from mars_runtime.serving.errors import ApiError
from mars_runtime.text import Tokenizer

if TYPE_CHECKING:
    from mars_runtime.model.load import Checkpoint

FAILED = "The checkpoint could not be loaded. See the log of the server."
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineModel:
    name: str
    tokenizer: Tokenizer
    block_size: int
    engine: BaseEngine

    @classmethod
    def of(cls, checkpoint: Checkpoint, engine: BaseEngine) -> EngineModel:
        return cls(checkpoint.name, checkpoint.tokenizer, checkpoint.block_size, engine)


class Models(Protocol):
    """The models that an endpoint serves."""

    @property
    def names(self) -> Sequence[str]:
        """All names, including those of models that are not loaded."""

    @property
    def trouble(self) -> str:
        """Why no model can answer now, in one sentence; empty if one can."""

    def find(self, name: str) -> EngineModel:
        """Return the model with this name, without waiting until it is loaded. Raises ApiError."""


def unknown(names: Sequence[str]) -> ApiError:
    sentence = f"This model does not exist. Choose among {', '.join(names)}."
    return ApiError(404, sentence, "model")


def not_ready(sentence: str) -> ApiError:
    return ApiError(503, sentence, retry_after=5)


class SingleModel:
    """A single model, which ``bring`` loads in a thread, once.

    If loading fails or the engine dies, the supervisor of the process must restart the process.
    failure: why loading failed, in one sentence.
    """

    def __init__(self, name: str, bring: Callable[[], EngineModel]) -> None:
        self.names: Sequence[str] = (name,)
        self._bring = bring
        self._model: EngineModel | None = None
        self.failure, self._is_closed = "", False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._load, name=f"load {name}", daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> str:
        if self.failure:
            return self.failure
        if self._model is None:
            return f"{self.names[0]} is still loading. Try again in a moment."
        return "" if self._model.engine.is_alive else DEAD

    def find(self, name: str) -> EngineModel:
        if name not in self.names:
            raise unknown(self.names)
        if self.trouble or self._model is None:
            raise not_ready(self.trouble)
        return self._model

    def wait(self, timeout: float | None = None) -> str:
        self._thread.join(timeout)
        return self.trouble

    def close(self) -> None:
        """Close the engine and end its runs, or do so as soon as the model is loaded."""
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
