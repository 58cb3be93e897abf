"""Interface of an engine.

``engine.py`` implements it in a thread of this process, and ``leased/`` on a device that is leased
for each run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mars_runtime.decoders.methods import MAX_BLOCK_SIZE
from mars_runtime.engine.request import (
    DEFAULT_DEADLINE,
    AnyRequest,
    CustomDecoderRequest,
    Request,
    RequestError,
)
from mars_runtime.engine.run import Observer, Run
from mars_runtime.engine.scheduler import Scheduler
from mars_runtime.settings import DecodeSettings

if TYPE_CHECKING:
    from mars_runtime.decoders.forward_costs import ForwardCosts
    from mars_runtime.engine.request import CustomDecode

MAX_LANES = 8


class BaseEngine(ABC):
    """Serves runs on one model."""

    _scheduler: Scheduler[Run]
    _observers: list[Observer]

    @property
    def num_running(self) -> int:
        """Number of active jobs (runs, races, custom decoder runs)."""
        return self._scheduler.num_active

    @property
    def num_waiting(self) -> int:
        """Number of queued jobs."""
        return self._scheduler.num_waiting

    @property
    def max_running(self) -> int:
        """Maximum number of active jobs; 0 if another component limits it."""
        return self._scheduler.max_active

    @property
    def busy_limits(self) -> tuple[float, int]:
        """The limits of tau, and of B in lossless mode, that the queue imposes (``busy.py``)."""
        return 1.0, MAX_BLOCK_SIZE

    def observe(self, observer: Observer) -> None:
        """Call ``observer`` with every event of every run from now on."""
        self._observers.append(observer)

    @property
    @abstractmethod
    def is_alive(self) -> bool:
        """Whether the engine accepts requests."""

    @property
    @abstractmethod
    def capacity(self) -> int:
        """Maximum number of tokens of a prompt and its answer together."""

    def is_ready(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for the warm-up and return whether it is complete."""
        return True

    @abstractmethod
    def costs(self) -> ForwardCosts | None:
        """Return the costs of forward passes on this device, or None if they were not measured."""

    @abstractmethod
    def close(self) -> None:
        """End all runs and the engine within one forward pass. Further calls do nothing."""

    @abstractmethod
    def _serve(
        self, requests: Sequence[AnyRequest], pace: float, is_shared: bool = False
    ) -> list[Run]:
        """Start runs that are scheduled together.

        ``is_shared`` allows a single run to share forward passes with others.
        """

    def submit(self, request: Request, pace: float = 0.0, *, is_alone: bool = False) -> Run:
        """Start a run for a request. It shares forward passes with other runs.

        pace: slow motion: after each forward pass the run pauses ``pace`` times as long as the pass
            took. The pauses are not part of any measured time.
        is_alone: do not share forward passes, for timing. The whole prompt is then prefilled
            without the prefix cache.

        Raises EngineBusy, EngineError (the engine is closed), RequestError or SettingsError, each
        with a one-sentence message.
        """
        is_alone = is_alone or request.settings.facts.is_alone
        return self._serve([request], pace, is_shared=not is_alone)[0]

    def run_decoder(
        self,
        decode: CustomDecode,
        settings: DecodeSettings,
        *,
        deadline: float = DEFAULT_DEADLINE,
        pace: float = 0.0,
        owner: str = "",
    ) -> Run:
        """Start a run of any decoder, which uses the device exclusively.

        Its Steps may have many rows. The worker thread calls ``decode`` with the model, its
        vocabulary, the source of this run's settings and the costs (see CustomDecoderRequest).
        The run ends with ``limit`` if any row ended at its limit, else with ``repeats`` if any row
        repeated itself, else with ``eos``. Raises the same errors as ``submit``.
        """
        return self._serve([CustomDecoderRequest(decode, settings, deadline, owner)], pace)[0]

    def race(self, requests: Sequence[AnyRequest], pace: float = 0.0) -> list[Run]:
        """Start several runs that take turns: the run with the least device time so far is next.

        All runs reuse the same number of cached tokens of their prompts. The runs of a race share
        no forward passes. A single request is served as by ``submit``. Raises the same errors as
        ``submit``.
        """
        if not 1 <= len(requests) <= MAX_LANES:
            raise RequestError(f"A race must have 1 to {MAX_LANES} runs, got {len(requests)}.")
        first = requests[0]
        if len(requests) == 1 and isinstance(first, Request):
            return [self.submit(first, pace)]
        return self._serve(requests, pace)
