"""Start ``python app.py`` as users do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import httpx
import pytest
from environments import free_port, wait_until_it_serves
from scripted_page import eventually

from app.settings import AppSettings, AppSettingsError

ROOT = Path(__file__).parents[2]
NO_HOME = """
import pwd

def getpwuid(number):
    raise KeyError(f"getpwuid(): uid not found: {number}")

pwd.getpwuid = getpwuid
"""
"""Read at the start of Python: this user is not listed in passwd, as an arbitrary one is not."""


def test_it_serves_ipv6_without_a_home(tmp_path: Path) -> None:
    """As in a company's container. It decodes, and prints its address."""
    (tmp_path / "sitecustomize.py").write_text(NO_HOME)
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY"), "http://127.0.0.1:9")
    empty = ("HOME", "MARS_CACHE", "XDG_CACHE_HOME", "no_proxy", "NO_PROXY")
    environment = {name: value for name, value in os.environ.items() if name not in empty}
    environment |= {**proxies, "PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path)}
    environment["MARS_DTYPE"] = "fp32"  # for which nothing is compiled into an empty cache
    port, log = free_port(), tmp_path / "log"
    host, name = ("::", "[::1]") if socket.has_ipv6 else ("127.0.0.1", "127.0.0.1")
    address = f"http://{name}:{port}"
    folder = str(ROOT / "checkpoints" / "mars-tiny")
    command = [sys.executable, "app.py", "--port", str(port), "--checkpoint", folder]
    command += ["--host", host]
    with (
        log.open("wb") as out,
        httpx.Client(base_url=address, timeout=60, trust_env=False) as client,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out) as process,
    ):
        try:
            wait_until_it_serves(client, process, log)
            assert "gradio_config" in client.get("/").text
            body = {"model": folder, "prompt": "Once", "max_tokens": 4}
            answer = client.post("/v1/completions", json=body)
            assert answer.json()["usage"]["completion_tokens"] >= 1, answer.text
            assert eventually(lambda: address in log.read_text())
        finally:
            process.kill()
    assert "Traceback" not in log.read_text()


@pytest.fixture
def start() -> ModuleType:
    """The module app.py, which the package app hides."""
    spec = spec_from_file_location("start", ROOT / "app.py")
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_what_keeps_it_from_starting(start: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        monkeypatch.setattr(sys, "argv", ["app.py", "--port", port])
        with pytest.raises(SystemExit, match=f"127.0.0.1:{port}.*--port"):
            start.main()
    monkeypatch.setenv("MARS_MAX_RUNS", "many")
    with pytest.raises(SystemExit, match=r"MARS_MAX_RUNS.*'many'"):
        start.main()


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


def test_it_ends_although_its_signal_handler_is_ignored() -> None:
    command = [sys.executable, "-c", DEAF, "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "serving\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 128 + signal.SIGTERM
            assert process.stdout.read() == "cleared up\n"
        finally:
            process.kill()


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
