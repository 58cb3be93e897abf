"""Python environments of their own, for tests that install what this project does not require."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def make_environment(folder: Path, *requirements: str, at: Path | None = None) -> Path:
    """Install these arguments of pip into a new environment in ``folder``, and return its Python.
    ``at``: where relative paths among the requirements begin."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "-q", "--retries", "0", *requirements]
    subprocess.run(install, cwd=at, check=True)
    return python
