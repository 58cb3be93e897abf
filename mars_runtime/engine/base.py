"""What callers see of an engine, wherever it decodes: in a thread of this process (``engine.py``)
or on a device that is lent for each run (``leased/``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from mars_runtime.engine.request import DEFAULT_DEADLINE, Asked, Request, RequestError, Solo
from mars_runtime.engine.run import Observer, Run
from mars_runtime.engine.scheduler import Scheduler
from mars_runtime.layers import Fed, Layers
from mars_runtime.methods import METHODS
from mars_runtime.settings import DecodeSettings

if TYPE_CHECKING:
    from mars_runtime.decoders.forward_costs import ForwardCosts
    from mars_runtime.engine.request import SoloDecode

MAX_LANES = 8
NO_LOOK = "The layers are only shown where the model runs in the page's own process."


class BaseEngine(ABC):
    """Serves runs on one model."""

    _scheduler: Scheduler[Run]
    _observers: list[Observer]

    @property
    def num_running(self) -> int:
        """Jobs (runs, races, solo runs) that take turns."""
        return self._scheduler.num_active

    @property
    def num_waiting(self) -> int:
        """Jobs in line behind them."""
        return self._scheduler.num_waiting

    @property
    def max_running(self) -> int:
        """Jobs that can be served at once; 0 where that is not this engine's to say."""
        return self._scheduler.max_active

    def observe(self, observer: Observer) -> None:
        """Tell ``observer`` every event of every run from now on, whoever submitted it."""
        self._observers.append(observer)

    @property
    @abstractmethod
    def is_alive(self) -> bool:
        """Whether requests are served."""

    @property
    @abstractmethod
    def capacity(self) -> int:
        """Tokens that a prompt and its answer may have together."""

    def is_ready(self, timeout: float) -> bool:
        """Whether it has warmed up, waiting for that for so many seconds."""
        return True

    @abstractmethod
    def costs(self) -> ForwardCosts | None:
        """What forwards cost here; None if it was not measured."""

    def look(self, fed: Fed, owner: str = "") -> Future[Layers]:
        """What a forward says after each layer, worked out beside whatever is decoded, in pieces
        that hold nobody up; cancel it when nobody waits any more. ``owner`` as of a Request.

        Raises EngineBusy, EngineError (closed) or RequestError (it can't look), the Future
        DecodeError; each one sentence.
        """
        raise RequestError(NO_LOOK)

    @abstractmethod
    def close(self) -> None:
        """End every run and the engine, within one forward. A second call does nothing."""

    @abstractmethod
    def _serve(self, asked: Sequence[Asked], pace: float, is_shared: bool = False) -> list[Run]:
        """Begin runs that are served as one; ``is_shared``: one that may share forwards."""

    def submit(self, request: Request, pace: float = 0.0, *, is_alone: bool = False) -> Run:
        """Serve a request, sharing forwards with whoever else is there unless ``is_alone``, as to
        time it: then it also reads all of its prompt, whatever is kept of it. ``pace`` N rests N
        times each forward, outside every clock.

        Raises EngineBusy, EngineError (closed), RequestError or SettingsError, each one sentence.
        """
        is_alone = is_alone or METHODS[request.settings.method].is_alone
        return self._serve([request], pace, is_shared=not is_alone)[0]

    def solo(
        self,
        decode: SoloDecode,
        settings: DecodeSettings,
        *,
        deadline: float = DEFAULT_DEADLINE,
        pace: float = 0.0,
        owner: str = "",
    ) -> Run:
        """Serve any decoder on this model, alone on the device; its Steps may have many rows.

        ``decode`` is called by the worker with the model, its vocabulary and the source of this
        run's settings; see Solo. The run ends with ``eos`` if every row did, else with ``limit``.
        Raises what ``submit`` raises.
        """
        return self._serve([Solo(decode, settings, deadline, owner)], pace)[0]

    def race(self, asked: Sequence[Asked], pace: float = 0.0) -> list[Run]:
        """Serve several, side by side on a fair clock: the one whose clock is behind goes on. All
        reuse as much of what is kept of their prompts as all can.

        No forward of a race is shared, so a request by itself is served as by ``submit``.
        Raises what ``submit`` raises.
        """
        if not 1 <= len(asked) <= MAX_LANES:
            raise RequestError(f"A race has 1 to {MAX_LANES} runs.")
        first = asked[0]
        if len(asked) == 1 and isinstance(first, Request):
            return [self.submit(first, pace)]
        return self._serve(asked, pace)
