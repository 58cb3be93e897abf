"""What the endpoint asks of whoever holds models: the seam between HTTP and engines.

Names go in, events come out. Where an engine lives, in this process or in another, is known only to
whoever implements this. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mars_runtime.engine.header import Facts
from mars_runtime.engine.request import Request
from mars_runtime.engine.run import Run
from mars_runtime.events import Event
from mars_runtime.text import Tokenizer


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
    def is_captured(self) -> bool:
        """Whether it runs on a GPU, where some settings are held (``settings.CAPTURED``)."""

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
