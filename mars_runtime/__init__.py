"""The Python API: ``load`` a checkpoint, then generate, stream or compare texts.

Importing this package imports neither torch nor any other library. ``docs/api.md`` has examples.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mars_runtime.api import Comparison, Model, Result, StreamStep, TextStream, load, show
    from mars_runtime.errors import MarsError
    from mars_runtime.settings import DecodeSettings

__all__ = [
    "Comparison",
    "DecodeSettings",
    "MarsError",
    "Model",
    "Result",
    "StreamStep",
    "TextStream",
    "load",
    "show",
]
_ELSEWHERE = {"MarsError": "mars_runtime.errors", "DecodeSettings": "mars_runtime.settings"}


def __getattr__(name: str) -> Any:
    """Import and return a name of the API when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_ELSEWHERE.get(name, "mars_runtime.api")), name)


def __dir__() -> list[str]:
    return __all__
