"""What attacks share: clients of other addresses, memory, and processes with little of it."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx

ROOT = Path(__file__).parents[2]
JSON = {"content-type": "application/json"}
ATTACKER, OTHER = "127.0.0.2", "127.0.0.9"
Place = tuple[str, int]
LIMITED = """
import resource, sys
memory = int(sys.argv.pop())
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
"""


def place_of(url: str) -> Place:
    at = urlsplit(url)
    return str(at.hostname), int(at.port or 0)


def connection(place: Place, address: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(place, 30, (address, 0))


def client_of(url: str, address: str = ATTACKER) -> httpx.Client:
    transport = httpx.HTTPTransport(local_address=address)
    return httpx.Client(base_url=url, transport=transport, timeout=120)


def resident(process: int | str = "self") -> int:
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


def printed(program: str, *words: object) -> str:
    """Return what a program prints in a process of its own, which ends without a traceback."""
    command = [sys.executable, "-c", program, *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    return done.stdout
