"""Start ``python app.py`` as users do, on a checkpoint folder with random weights: behind a
company's proxy, on IPv6, and in a container with a user without a home folder.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from environments import free_port, wait_until_it_serves

from app.settings import AppSettings, AppSettingsError

ROOT = Path(__file__).parents[2]


def wait_for(address: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).read()
            return
        except OSError:
            assert time.monotonic() < until, f"nothing at {address} after {seconds} s"
            time.sleep(0.1)


@contextmanager
def started(
    folder: Path, log: Path, *flags: str, at: str = "http://127.0.0.1", **variables: str
) -> Iterator[httpx.Client]:
    """The page, once its checkpoint is loaded. A variable that is empty is left out."""
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
            wait_until_it_serves(client, process, log)
            yield client
            assert process.poll() is None, log.read_text()
            assert "Traceback" not in log.read_text()
        finally:
            process.kill()


def assert_serves(client: httpx.Client, folder: Path) -> None:
    """The page is there, and decodes."""
    assert "gradio_config" in client.get("/").text
    body = {"model": str(folder), "prompt": "Once", "max_tokens": 4}
    answer = client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] >= 1


def test_it_starts_behind_a_proxy_that_cannot_reach_it(random_folder: Path, tmp_path: Path) -> None:
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY"), "http://127.0.0.1:9")
    with started(random_folder, tmp_path / "log", **proxies, no_proxy="", NO_PROXY="") as client:
        assert_serves(client, random_folder)


def test_a_certificate_file_that_is_gone_ends_the_program_with_a_message() -> None:
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env={**os.environ, "SSL_CERT_FILE": "/nonexistent/ca.pem"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert "No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
@pytest.mark.parametrize("host", ["::1", "::", pytest.param("[::1]", marks=pytest.mark.slow)])
def test_it_serves_at_an_ipv6_address(host: str, random_folder: Path, tmp_path: Path) -> None:
    """A proxy in the environment does not block the start."""
    log, proxy = tmp_path / "log", {"http_proxy": "http://127.0.0.1:9", "no_proxy": ""}
    flags = ("--host", host)
    with started(random_folder, log, *flags, at="http://[::1]", **proxy, NO_PROXY="") as client:
        assert_serves(client, random_folder)
        address, until = f"http://[::1]:{client.base_url.port}", time.monotonic() + 60
        while address not in log.read_text() and time.monotonic() < until:
            time.sleep(0.05)  # it is printed once the page answers
    assert address in log.read_text()


NO_HOME = """
import pwd

def getpwuid(number):
    raise KeyError(f"getpwuid(): uid not found: {number}")

pwd.getpwuid = getpwuid
"""
"""Read at the start of Python: this user is not listed in passwd, as an arbitrary one is not."""


@pytest.mark.parametrize("home", ["", pytest.param("/proc/nowhere", marks=pytest.mark.slow)])
def test_it_starts_for_a_user_without_a_home(
    home: str, random_folder: Path, tmp_path: Path
) -> None:
    """Or with one that cannot be written to."""
    (tmp_path / "sitecustomize.py").write_text(NO_HOME)
    environment = {"PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path), "HOME": home}
    log = tmp_path / "log"
    with started(random_folder, log, **environment, MARS_CACHE="", XDG_CACHE_HOME="") as client:
        assert_serves(client, random_folder)


NO_FILES = (
    "import runpy, sys, tempfile; tempfile.tempdir = '/proc'; sys.path.insert(0, '.');"
    "sys.argv = sys.argv[1:]; runpy.run_path('app.py', run_name='__main__')"
)
"""/proc takes no file, from no user."""


@pytest.mark.parametrize(
    ("before", "variables", "named"),
    [
        ([], {}, ["127.0.0.1:{port}", "--port"]),
        (["-c", NO_FILES], {}, ["TMPDIR"]),
        ([], {"MARS_MAX_RUNS": "many"}, ["MARS_MAX_RUNS must be a whole number, got 'many'."]),
    ],
    ids=["taken port", "no temporary files", "nonsense variable"],
)
def test_what_keeps_it_from_starting_is_one_sentence(
    random_folder: Path, before: list[str], variables: dict[str, str], named: list[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = ["app.py", "--port", port, "--checkpoint", str(random_folder)]
        done = subprocess.run(
            [sys.executable, *before, *words],
            cwd=ROOT,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode != 0
    (sentence,) = done.stderr.splitlines()
    assert all(name.format(port=port) in sentence for name in named)


DEAF = """
import atexit, importlib.util, time
spec = importlib.util.spec_from_file_location("start", "app.py")
start = importlib.util.module_from_spec(spec)
spec.loader.exec_module(start)
start.LEAVE_SECONDS = 0.2
atexit.register(print, "cleared up")

def serve(settings):
    print("serving", flush=True)
    while True:
        try:
            time.sleep(0.1)  # a signal just before a long sleep would be heard after it
        except BaseException:
            pass

start.serve = serve
start.main()
"""
"""A page with a server that catches every exception."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_although_its_signal_handler_is_ignored(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", DEAF],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        # A suite that was started in the background ignores SIGINT; its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        process.send_signal(number)
        assert process.wait(30) == 128 + number
        assert process.stdout.read() == "cleared up\n"
    finally:
        process.kill()
        process.wait()


def test_settings_come_from_the_environment() -> None:
    settings = AppSettings.from_environment({"MARS_PORT": "7000", "MARS_CHECKPOINT": "ar-tiny"})
    assert (settings.port, settings.checkpoint) == (7000, "ar-tiny")
    assert AppSettings.from_environment({"MARS_PORT": " "}) == AppSettings()
    gradio = {"GRADIO_SERVER_PORT": "7001", "GRADIO_SERVER_NAME": "0.0.0.0"}
    assert AppSettings.from_environment(gradio) == AppSettings(port=7001, host="0.0.0.0")
    assert AppSettings.from_environment({**gradio, "MARS_PORT": "7000"}).port == 7000
    for name, value in (("PORT", "70000"), ("MAX_RUNS", "0"), ("MAX_WAITING", "-1"),
                        ("MAX_SECONDS", "nan"), ("ALLOWED_ORIGINS", "app.example")):  # fmt: skip
        with pytest.raises(AppSettingsError, match=name):
            AppSettings.from_environment({f"MARS_{name}": value})
