"""A page for the Load lab tab: the scripted backend, which writes a letter per forward."""

from __future__ import annotations

from pathlib import Path

from scripted_page import ScriptedBackend, make_handlers

from app.handlers import Handlers


def make_page(folder: Path, **caps: object) -> tuple[Handlers, ScriptedBackend]:
    """Handlers over the backend; close them with ``handlers.engines.close()``."""
    backend = ScriptedBackend("Say hello. " * 20, forward_seconds=0.001)
    return make_handlers(folder, backend, **caps), backend


def controls(**changes: object) -> dict[str, object]:
    """What the tab sends for a run, with changes: few requests, soon over."""
    return {
        "question": "compare",
        "kind": "poisson",
        "recorded": "",
        "rate": 20,
        "seconds": 1,
        "mix": "short",
        "ways": ["ar", "follow"],
        "high": 0.9,
        "low": 0.4,
        "budget": 3,
        "max_new_tokens": 8,
        "checkpoint": "scripted",
        **changes,
    }
