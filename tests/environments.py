"""Python environments of their own, and servers in processes of their own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx


def make_environment(folder: Path, *requirements: str, at: Path | None = None) -> Path:
    """Install these arguments of pip into a new environment in ``folder``, and return its Python.
    ``at``: where relative paths among the requirements begin."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "-q", "--retries", "0", *requirements]
    subprocess.run(install, cwd=at, check=True)
    return python


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_it_serves(
    client: httpx.Client, process: subprocess.Popen[bytes], log: Path, seconds: float = 120
) -> None:
    """Wait for a server that writes to ``log``; fail with the log if it ends or takes longer."""
    until = time.monotonic() + seconds
    while True:
        with suppress(httpx.TransportError):
            if client.get("/health").is_success:
                return
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.1)
