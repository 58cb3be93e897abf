"""ZeroGPU, which lends a GPU for each call of a decorated function: the one such function.

Knows the package ``spaces``, which only such a Space needs, and the errors it raises.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Generator
from importlib.util import find_spec

import gradio as gr

from app.serving.leased import LeasedEngines
from app.serving.settings import SWITCH, AppSettings, AppSettingsError
from mars_runtime.engine.leased import Call, Lease, LeaseError, News
from mars_runtime.engine.leased.calls import Decode
from mars_runtime.engine.leased.engine import LOST

VARIABLE = "SPACES_ZERO_GPU"
MISSING = (
    "This Space has ZeroGPU hardware, which needs the package spaces: upload the folder that "
    "python -m app.deploy --target zerogpu writes."
)
WORKER_ERROR = "ZeroGPU worker error"  # the title of errors that say nothing to a visitor
MAX_CHARS = 300


def is_on_zerogpu() -> bool:
    """Whether this is a Space with ZeroGPU hardware. Raises AppSettingsError where ``spaces`` is
    missing there. To be asked before torch is imported, which ``spaces`` has to change."""
    if not SWITCH.get(os.environ.get(VARIABLE, "").strip().lower(), False):
        return False
    if find_spec("spaces") is None:
        raise AppSettingsError(MISSING)
    from spaces.config import Config

    return bool(Config.zero_gpu)


def zero_engines(settings: AppSettings) -> LeasedEngines:
    """Engines on devices that ZeroGPU lends. Loads checkpoints: for the main thread."""
    return LeasedEngines(settings, lend)


def lend(decode: Decode) -> Lease:
    """``decode``, run by ZeroGPU in a process of its own on a GPU; raises LeaseError."""
    import spaces

    # Processes belong to one decorated function, and are used again only for that: hence one.
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
    """Seconds that the visitor must have left of their quota."""
    return math.ceil(call.seconds)


def sentence(error: gr.Error) -> str:
    """What ZeroGPU says of quotas and waiting, as plain text; a process that was ended, in ours."""
    if getattr(error, "title", "") == WORKER_ERROR:
        return LOST
    text = re.sub(r"\[([^]]*)]\([^)]*\)", r"\1", str(error.message))
    text = " ".join(re.sub(r"<[^>]*>", " ", text).split())
    return text[:MAX_CHARS] or LOST
