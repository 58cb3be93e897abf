"""``python app.py`` as people start it, on a checkpoint folder with random weights."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from app.settings import AppSettings, AppSettingsError

ROOT = Path(__file__).parents[2]
gradio_client = pytest.importorskip("gradio_client")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(address: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).read()
            return
        except OSError:
            assert time.monotonic() < until, f"nothing at {address} after {seconds} s"
            time.sleep(0.1)


def test_a_taken_port_is_one_sentence(random_folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "app.py", "--port", port, "--checkpoint", str(random_folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    (sentence,) = done.stderr.splitlines()
    assert f"127.0.0.1:{port}" in sentence
    assert "--port" in sentence


@pytest.mark.slow  # but as a Space, in test_deploy.py
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_decodes_and_ends_without_a_temporary_file(
    random_folder: Path, tmp_path: Path, number: signal.Signals
) -> None:
    port = free_port()
    command = [sys.executable, "app.py", "--port", str(port), "--checkpoint", str(random_folder)]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A suite that was started in the background ignores SIGINT; its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    address = f"http://127.0.0.1:{port}/"
    try:
        wait_for(address, 90)
        client = gradio_client.Client(address, verbose=False)
        item = client.predict(prompt="Once", max_new_tokens=12, api_name="/generate")
        assert 1 <= item["num_tokens"] <= 12
        assert item["ended"] in ("eos", "limit")
        process.send_signal(number)
        assert process.wait(30) in (0, 128 + number)
    finally:
        process.kill()
        process.wait()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []


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
"""The page, whatever serves it catching all that is raised."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_though_nobody_hears_it(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", DEAF],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
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


def test_a_temporary_folder_that_cannot_be_written_is_one_sentence(random_folder: Path) -> None:
    """/proc takes no file of anybody's, whoever runs the tests."""
    code = (
        "import runpy, sys, tempfile; tempfile.tempdir = '/proc'; sys.path.insert(0, '.');"
        "sys.argv = sys.argv[1:]; runpy.run_path('app.py', run_name='__main__')"
    )
    command = [sys.executable, "-c", code, "app.py", "--checkpoint", str(random_folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    (sentence,) = done.stderr.splitlines()
    assert "TMPDIR" in sentence


def test_a_nonsense_flag_or_variable_is_a_sentence(random_folder: Path) -> None:
    environment = {**os.environ, "MARS_MAX_RUNS": "many"}
    done = subprocess.run(
        [sys.executable, "app.py"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert done.stderr.strip() == "MARS_MAX_RUNS must be a whole number."


def test_settings_come_from_the_environment() -> None:
    settings = AppSettings.from_environment({"MARS_PORT": "7000", "MARS_CHECKPOINT": "ar-tiny"})
    assert (settings.port, settings.checkpoint) == (7000, "ar-tiny")
    assert AppSettings.from_environment({"MARS_PORT": " "}) == AppSettings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "70000"),
        ("MAX_RUNS", "0"),
        ("MAX_WAITING", "-1"),
        ("MAX_SECONDS", "nan"),
        ("ALLOWED_ORIGINS", "app.example"),
    ],
)
def test_settings_out_of_range_are_a_sentence(name: str, value: str) -> None:
    with pytest.raises(AppSettingsError, match=name):
        AppSettings.from_environment({f"MARS_{name}": value})
