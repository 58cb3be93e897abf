"""Ends as ``app.py`` does, while a thread is in the middle of a forward; run by test_native."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

import torch  # noqa: E402
from native_models import native_model  # noqa: E402

IDS = torch.full((1, 64), 7)


def work() -> None:
    """Forward after forward."""
    model = native_model("llama")
    while True:
        model.forward(IDS, model.new_cache(1, 128), slice(None))


threading.Thread(target=work, daemon=True).start()
time.sleep(1.0)
atexit._run_exitfuncs()
time.sleep(0.2)  # forwards go on meanwhile
os._exit(0)
