"""Engines on ZeroGPU, which lends a GPU for each call of a decorated function.

ZeroGPU forks a process for the function and moves weights to the GPU there, but only weights that
the main thread loaded before the page was served. Therefore all checkpoints are loaded at the
start, none in the background. Only this module imports the package ``spaces``.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Callable, Generator
from functools import partial
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING

import gradio as gr

from app.engines.engines import CheckpointLoad, Engines, LoadedModel
from app.settings import SWITCH, AppSettings, AppSettingsError
from mars_runtime.engine.backend import check_fits
from mars_runtime.engine.leased.engine import LOST, LeasedEngine
from mars_runtime.engine.leased.worker import (
    Call,
    Decode,
    Lease,
    LeaseError,
    News,
    SharedMemory,
    Worker,
    open_checkpoint,
)
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.fetch import Progress
from mars_runtime.model.registry import Entry
from mars_runtime.model.source import Source
from mars_runtime.serving.server import bound

if TYPE_CHECKING:
    from mars_runtime.decoders.forward_costs import ForwardCosts
    from mars_runtime.engine.backend import Backend
    from mars_runtime.model.load import Checkpoint

VARIABLE = "SPACES_ZERO_GPU"
MISSING = (
    "This Space has ZeroGPU hardware, but the Python package “spaces” is missing. Run "
    "“python -m app.deploy --target zerogpu” and upload the folder that it writes."
)
WORKER_ERROR = "ZeroGPU worker error"  # title of errors whose message is not meant for visitors
MAX_CHARS = 300
MAX_LOADED = 3  # maximum number of checkpoints, because loaded ones are never unloaded
TOO_LATE = "This model was not loaded when the page started. Choose another one."
log = logging.getLogger(__name__)


def is_on_zerogpu() -> bool:
    """Whether this process is a Space with ZeroGPU hardware. Call it before torch is imported,
    because ``spaces`` patches torch. Raises AppSettingsError if the package ``spaces`` is missing.
    """
    if not SWITCH.get(os.environ.get(VARIABLE, "").strip().lower(), False):
        return False
    if find_spec("spaces") is None:
        raise AppSettingsError(MISSING)
    from spaces.config import Config

    return bool(Config.zero_gpu)


def zero_engines(settings: AppSettings) -> LeasedEngines:
    """Return engines on GPUs that ZeroGPU lends. Call it in the main thread, because it loads the
    weights.
    """
    return LeasedEngines(settings, lend)


class LeasedEngines(Engines):
    """``Engines`` for the first MAX_LOADED of the offered checkpoints. All are loaded before the
    page is served.
    """

    def __init__(self, settings: AppSettings, lend: Callable[[Decode], Lease]) -> None:
        """Load the checkpoints. lend: wraps a decoding function so that it runs in a process that
        has a GPU.
        """
        super().__init__(settings)
        self._slots = SharedMemory()
        self._checkpoints: dict[str, Checkpoint] = {}
        for record in islice(self._records.values(), MAX_LOADED):
            bring = partial(self._bring, record)
            record.load = CheckpointLoad(record.entry.name, bring, has_thread=False)
        worker = Worker(self._slots, self._open_backend)
        self._lease = lend(worker.decode)

    def begin(self, name: str) -> CheckpointLoad:
        record = self._record(name)
        if record.load is None:
            record.load = CheckpointLoad(name, _refuse)
        return record.load

    def _load(self, entry: Entry, source: Source, progress: Progress) -> LoadedModel:
        from mars_runtime.model.load import load_checkpoint

        settings, name = self.settings, entry.name
        checkpoint = load_checkpoint(
            source, device=settings.device, dtype=settings.dtype, progress=progress
        )
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
        return LoadedModel(entry, checkpoint, engine)

    def before_serving(self) -> None:
        """Launch and close an empty Gradio app. ``spaces`` packs the weights and reports that the
        app is up when an app is launched, and the page itself is mounted, not launched.
        """
        with bound("127.0.0.1", 0) as free:
            port = free.getsockname()[1]
        with gr.Blocks(analytics_enabled=False) as empty:
            pass
        empty.launch(
            server_name="127.0.0.1",
            server_port=port,
            prevent_thread_lock=True,
            quiet=True,
            share=False,
            ssr_mode=False,
        )
        empty.close(verbose=False)

    def _open_backend(self, name: str, costs: ForwardCosts | None) -> Backend:
        """Open the backend in the process that has the GPU."""
        return open_checkpoint(self._checkpoints[name], costs)


def _refuse(load: CheckpointLoad) -> None:
    raise CheckpointError(TOO_LATE)


def lend(decode: Decode) -> Lease:
    """Wrap ``decode`` so that ZeroGPU runs it in a process with a GPU. The result raises
    LeaseError.
    """
    import spaces

    # A single decorated function for all checkpoints, because ZeroGPU reuses a process only for
    # the same function.
    @spaces.GPU(duration=duration)  # type: ignore[untyped-decorator]
    def decoded(call: Call) -> Generator[News, None, None]:
        yield from decode(call)

    def lease(call: Call) -> Generator[News, None, None]:
        try:
            yield from decoded(call)
        except gr.Error as error:
            raise LeaseError(sentence(error)) from None

    return lease


def duration(call: Call) -> int:
    """Return how many seconds of GPU quota the visitor must have left for this call."""
    return math.ceil(call.seconds)


def sentence(error: gr.Error) -> str:
    """Return ZeroGPU's message about quotas or waiting, without its markup. For a killed process,
    return LOST.
    """
    if getattr(error, "title", "") == WORKER_ERROR:
        return LOST
    text = re.sub(r"\[([^]]*)]\([^)]*\)", r"\1", str(error.message))
    text = " ".join(re.sub(r"<[^>]*>", " ", text).split())
    return text[:MAX_CHARS] or LOST
