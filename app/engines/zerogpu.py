"""Engines on ZeroGPU, which lends a GPU for each call of a decorated function.

ZeroGPU forks a process for the function and moves weights to the GPU there, but only weights that
the main thread loaded before the page was served. Only this module imports the package ``spaces``.
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
    Worker,
    open_checkpoint,
)
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.fetch import Progress
from mars_runtime.model.registry import Entry
from mars_runtime.model.source import Source
from mars_runtime.serving.server import bound

if TYPE_CHECKING:
    from mars_runtime.engine.backend import Backend
    from mars_runtime.model.load import Checkpoint

VARIABLE = "SPACES_ZERO_GPU"
MISSING = (
    "This Space has ZeroGPU hardware, but the Python package “spaces” is missing. Run "
    "“python -m app.deploy --target zerogpu” and upload the folder that it writes."
)
WORKER_ERROR = "ZeroGPU worker error"  # title of errors whose message is not meant for visitors
MAX_CHARS = 300  # of an error message
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


class LeasedEngines(Engines):
    """``Engines`` for the first MAX_LOADED of the offered checkpoints, all loaded here."""

    def __init__(
        self, settings: AppSettings, lend: Callable[[Decode], Lease] | None = None
    ) -> None:
        """lend: makes a function that decodes in a process with a GPU; ZeroGPU's by default."""
        super().__init__(settings)
        self._checkpoints: dict[str, Checkpoint] = {}
        for record in islice(self._records.values(), MAX_LOADED):
            bring = partial(self._bring, record)
            record.load = CheckpointLoad(record.entry.name, bring, has_thread=False)
        self._lease = (lend or lend_by_zerogpu)(Worker(self._open_backend).decode)

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
            partial(check_fits, checkpoint.model, capacity=capacity),
            capacity,
            max_runs=settings.max_runs,
            max_waiting=settings.max_waiting,
        )
        return LoadedModel(entry, checkpoint, engine)

    def before_serving(self) -> None:
        """Launch and close an empty Gradio app: ``spaces`` packs the weights when an app is
        launched, and the page itself is mounted.
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

    def _open_backend(self, name: str) -> Backend:
        return open_checkpoint(self._checkpoints[name])


def _refuse(load: CheckpointLoad) -> None:
    raise CheckpointError(TOO_LATE)


def lend_by_zerogpu(decode: Decode) -> Lease:
    """Wrap ``decode`` so that ZeroGPU runs it. The result raises LeaseError."""
    import spaces

    # One decorated function for all checkpoints: ZeroGPU reuses a process for the same one only.
    # The duration is what must be left of the visitor's quota.
    @spaces.GPU(duration=lambda call: math.ceil(call.seconds))  # type: ignore[untyped-decorator]
    def decoded(call: Call) -> Generator[News, None, None]:
        yield from decode(call)

    def lease(call: Call) -> Generator[News, None, None]:
        try:
            yield from decoded(call)
        except gr.Error as error:
            raise LeaseError(sentence(error)) from None

    return lease


def sentence(error: gr.Error) -> str:
    """Return ZeroGPU's message without its markup; for a killed process, LOST."""
    if getattr(error, "title", "") == WORKER_ERROR:
        return LOST
    text = re.sub(r"\[([^]]*)]\([^)]*\)", r"\1", str(error.message))
    text = " ".join(re.sub(r"<[^>]*>", " ", text).split())
    return text[:MAX_CHARS] or LOST
