"""Keeps the empty replay page where browsers find it, for runs to be saved in. Knows no run."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

from app.components.views import served_at
from app.replay.page import shell


@lru_cache(maxsize=1)
def shell_address() -> str:
    """Where this server serves the replay page without its data, written once a process."""
    folder = Path(tempfile.mkdtemp(prefix="mars-live-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "replay.html"
    path.write_text(shell(), encoding="utf-8")
    return served_at(path)
