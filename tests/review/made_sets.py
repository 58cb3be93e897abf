"""Sets made by the command, killed on the way, and compared except for times."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
WAYS = ["ar", "tau=0.5,B=8", "lossless"]
CHECKPOINT, DTYPE, NAME, MOST = "mars-tiny", "int8", "same", 64
"""In int8 a forward is bitwise, so that prompts share forwards and an engine keeps what it read."""
TIMES = re.compile(r'"(seconds|date|spread)": ?("[^"]*"|[-+.0-9e]+)')


def timeless(folder: Path) -> dict[str, str]:
    """Return the files of a set, byte for byte except for times."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    texts = [(path, path.read_bytes().decode()) for path in files]
    return {str(path.relative_to(folder)): TIMES.sub(r'"\1":', text) for path, text in texts}


def words(prompts: str, out: Path) -> list[str]:
    """The command that makes a set there."""
    lines = [
        "review",
        "make",
        prompts,
        "--ways",
        *WAYS,
        "--checkpoint",
        CHECKPOINT,
        "--dtype",
        DTYPE,
    ]
    return [*lines, "--name", NAME, "--max-new-tokens", str(MOST), "--out", str(out)]


def killed_at(num_answers: int, words: list[str], out: Path) -> int:
    """Run the command in a process of its own, and kill it once so many answers are there; how many
    there are then."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([sys.executable, "-m", "mars_runtime", *words], cwd=ROOT, **quiet)  # type: ignore[call-overload]
    while len(list(out.glob("answers/*.jsonl"))) < num_answers and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return len(list(out.glob("answers/*.jsonl")))
