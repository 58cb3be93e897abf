"""Engines whose device is lent for each run: all checkpoints are loaded here and now.

ZeroGPU moves weights to the device in every process that it forks, which it can do only for what
was loaded by the main thread before the page was served. So nothing is loaded behind the page.
Knows no gradio and not who lends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from app.serving.engines import Engines
from app.serving.loads import Served, Tell
from app.serving.settings import AppSettings
from mars_runtime.engine.backend import check_fits
from mars_runtime.engine.leased import Lease, LeasedEngine, Slots, Worker
from mars_runtime.engine.leased.calls import Decode
from mars_runtime.engine.leased.worker import open_checkpoint
from mars_runtime.model.config import CheckpointError

if TYPE_CHECKING:
    from mars_runtime.decoders.adaptive import ForwardCosts
    from mars_runtime.engine.backend import Backend
    from mars_runtime.model.load import Checkpoint

MAX_LOADED = 3  # they stay for the life of the process
TOO_LATE = "This checkpoint was not loaded when the page started: choose another one."
log = logging.getLogger(__name__)


class LeasedEngines(Engines):
    """As ``Engines``, for the first few of what may be chosen."""

    def __init__(self, settings: AppSettings, lend: Callable[[Decode], Lease]) -> None:
        """``lend`` makes of what decodes here what decodes on a device, in another process."""
        super().__init__(settings)
        self._slots = Slots()
        self._checkpoints: dict[str, Checkpoint] = {}
        self._brought: dict[str, Served | CheckpointError] = {}
        for name in islice(self.entries, MAX_LOADED):
            self._brought[name] = self._bring_now(name)
        worker = Worker(self._slots, self._open_backend)
        self._lease = lend(worker.decode)

    def _bring_now(self, name: str) -> Served | CheckpointError:
        try:
            return super()._bring(name, log.info)
        except CheckpointError as error:
            log.error("%s: %s", name, error)
            return error

    def _bring(self, name: str, tell: Tell) -> Served:
        found = self._brought.get(name) or CheckpointError(TOO_LATE)
        if isinstance(found, CheckpointError):
            raise found
        return found

    def _load(self, name: str) -> Served:
        from mars_runtime.model.load import load_checkpoint

        settings = self.settings
        checkpoint = load_checkpoint(name, device=settings.device, dtype=settings.dtype)
        self._checkpoints[name] = checkpoint
        capacity = checkpoint.model.config.max_positions
        engine = LeasedEngine(
            name,
            lambda call: self._lease(call),
            self._slots,
            partial(check_fits, checkpoint.model, capacity=capacity),
            capacity,
            max_runs=settings.max_runs,
            max_waiting=settings.max_waiting,
        )
        return Served(self.entries[name], checkpoint, engine)

    def _open_backend(self, name: str, costs: ForwardCosts | None) -> Backend:
        """In the other process."""
        return open_checkpoint(self._checkpoints[name], costs)
