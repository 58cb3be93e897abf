"""Interface of an engine: in a thread of this process (``engine.py``) or on a device that is leased
for each run (``leased/``).
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
        """Number of active jobs (runs, races, solo runs)."""
        return self._scheduler.num_active

    @property
    def num_waiting(self) -> int:
        """Number of queued jobs."""
        return self._scheduler.num_waiting

    @property
    def max_running(self) -> int:
        """Maximum number of active jobs; 0 if another component limits it."""
        return self._scheduler.max_active

    def observe(self, observer: Observer) -> None:
        """Call ``observer`` with every event of every run from now on."""
        self._observers.append(observer)

    @property
    @abstractmethod
    def is_alive(self) -> bool:
        """Whether requests are served."""

    @property
    @abstractmethod
    def capacity(self) -> int:
        """Maximum number of tokens of a prompt and its answer together."""

    def is_ready(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for the warm-up; return whether it is complete."""
        return True

    @abstractmethod
    def costs(self) -> ForwardCosts | None:
        """Return the costs of forwards on this device; None if they were not measured."""

    def look(self, fed: Fed, owner: str = "") -> Future[Layers]:
        """Compute the predictions of a forward after each layer, in the background.

        The work is done in short pieces between forwards of runs, which it barely delays. Cancel
        the Future if its result is no longer needed. ``owner`` as in Request.

        Raises EngineBusy, EngineError (closed) or RequestError (not supported), and through the
        Future DecodeError; each message is one sentence.
        """
        raise RequestError(NO_LOOK)

    @abstractmethod
    def close(self) -> None:
        """End every run and the engine, within one forward. Further calls do nothing."""

    @abstractmethod
    def _serve(self, requests: Sequence[Asked], pace: float, is_shared: bool = False) -> list[Run]:
        """Start runs that are scheduled together. is_shared: whether a run may share forwards."""

    def submit(self, request: Request, pace: float = 0.0, *, is_alone: bool = False) -> Run:
        """Start a run for a request, which shares forwards with other runs.

        is_alone: do not share forwards, for timing; the whole prompt is then prefilled, without the
        prefix cache. pace: rest of N times each forward, not counted by any clock.

        Raises EngineBusy, EngineError (closed), RequestError or SettingsError, each with one
        sentence.
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
        """Start a run of any decoder on this model, alone on the device; its Steps may have many
        rows.

        The worker thread calls ``decode`` with the model, its vocabulary and the source of this
        run's settings; see Solo. The run ends with ``eos`` if every row did, else with ``limit``.
        Raises the same errors as ``submit``.
        """
        return self._serve([Solo(decode, settings, deadline, owner)], pace)[0]

    def race(self, asked: Sequence[Asked], pace: float = 0.0) -> list[Run]:
        """Start several runs that take turns on a fair clock: the one with the smallest clock is
        next.

        All runs reuse the same number of cached tokens of their prompts. Forwards of a race are not
        shared; a single request is served as by ``submit``. Raises the same errors as ``submit``.
        """
        if not 1 <= len(asked) <= MAX_LANES:
            raise RequestError(f"A race has 1 to {MAX_LANES} runs.")
        first = asked[0]
        if len(asked) == 1 and isinstance(first, Request):
            return [self.submit(first, pace)]
        return self._serve(asked, pace)
