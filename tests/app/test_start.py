"""``python app.py`` in the environments that people start it in: behind a company's proxy, on IPv6,
in a container whose user has no home."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from test_launch import ROOT, free_port

NO_HOME = """
import pwd

def getpwuid(number):
    raise KeyError(f"getpwuid(): uid not found: {number}")

pwd.getpwuid = getpwuid
"""
"""Read at the start of Python: this user is not listed in passwd, as an arbitrary one is not."""

has_ipv6 = pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")


@contextmanager
def started(
    folder: Path, log: Path, *flags: str, at: str = "http://127.0.0.1", **variables: str
) -> Iterator[httpx.Client]:
    """The page with these flags and variables; a client of it, once it answers. A variable that
    is empty is left out."""
    port = free_port()
    command = [sys.executable, "app.py", "--port", str(port), "--checkpoint", str(folder), *flags]
    environment = {**os.environ, **variables}
    given = {name: value for name, value in environment.items() if value}
    with (
        log.open("wb") as out,
        httpx.Client(base_url=f"{at}:{port}", timeout=60, trust_env=False) as client,
        subprocess.Popen(command, cwd=ROOT, env=given, stdout=out, stderr=out) as process,
    ):
        try:
            until = time.monotonic() + 120
            while not answers(client):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.1)
            yield client
            assert process.poll() is None, log.read_text()
            assert "Traceback" not in log.read_text()
        finally:
            process.kill()


def answers(client: httpx.Client) -> bool:
    """Whether the checkpoint is loaded."""
    try:
        return client.get("/health").is_success
    except httpx.TransportError:
        return False


def assert_serves(client: httpx.Client, folder: Path) -> None:
    """The page is there, and decodes."""
    assert "gradio_config" in client.get("/").text
    asked = {"model": str(folder), "prompt": "Once", "max_tokens": 4}
    answer = client.post("/v1/completions", json=asked)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] >= 1


def test_it_starts_behind_a_proxy_that_cannot_reach_it(random_folder: Path, tmp_path: Path) -> None:
    """With a certificate file that is gone, and a proxy of a kind that needs another package."""
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY"), "http://127.0.0.1:9")
    with started(
        random_folder,
        tmp_path / "log",
        **proxies,
        all_proxy="socks5://127.0.0.1:9",
        no_proxy="[::1]",
        NO_PROXY="",
        SSL_CERT_FILE="/nonexistent/ca.pem",
    ) as client:
        assert_serves(client, random_folder)
    log = (tmp_path / "log").read_text()
    assert "SSL_CERT_FILE is ignored" in log


def test_commands_that_import_gradio_start_too() -> None:
    broken = {"SSL_CERT_FILE": "/nonexistent/ca.pem", "all_proxy": "socks4://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-m", "tools.measure_examples", "--help"],
        cwd=ROOT,
        env={**os.environ, **broken},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert [line.split(" is ")[0] for line in done.stderr.splitlines()] == list(broken)


@has_ipv6
@pytest.mark.parametrize("host", ["::1", "::", pytest.param("[::1]", marks=pytest.mark.slow)])
def test_it_serves_at_an_ipv6_address(host: str, random_folder: Path, tmp_path: Path) -> None:
    """A proxy in the environment keeps nobody from it."""
    with started(
        random_folder,
        tmp_path / "log",
        *("--host", host),
        at="http://[::1]",
        http_proxy="http://127.0.0.1:9",
        no_proxy="",
        NO_PROXY="",
    ) as client:
        assert_serves(client, random_folder)
        address, until = f"http://[::1]:{client.base_url.port}", time.monotonic() + 60
        while address not in (tmp_path / "log").read_text() and time.monotonic() < until:
            time.sleep(0.05)  # it is printed once the page answers
    assert address in (tmp_path / "log").read_text()


@pytest.mark.parametrize("home", ["", pytest.param("/proc/nowhere", marks=pytest.mark.slow)])
def test_it_starts_for_a_user_without_a_home(
    home: str, random_folder: Path, tmp_path: Path
) -> None:
    """Or with one that cannot be written to."""
    (tmp_path / "sitecustomize.py").write_text(NO_HOME)
    with started(
        random_folder,
        tmp_path / "log",
        PYTHONPATH=str(tmp_path),
        TMPDIR=str(tmp_path),
        HOME=home,
        MARS_CACHE="",
        XDG_CACHE_HOME="",
    ) as client:
        assert_serves(client, random_folder)
