"""When a page is terminated, streams of API clients end with an error message, however
busy it is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx

from mars_runtime.serving.choices import SHUTTING_DOWN
from tests.attack.attacked import ROOT

PAGE = """
import importlib.util, pathlib, sys, time
from tests.app.scripted_page import ReadyEngines, ScriptedBackend, make_served
from app.settings import AppSettings
from mars_runtime.model.registry import Entry
from mars_runtime.serving import choices

spec = importlib.util.spec_from_file_location("start", "app.py")
start = importlib.util.module_from_spec(spec)
spec.loader.exec_module(start)
settings = AppSettings(checkpoint="scripted", port=0)
entry = Entry("scripted", 8, path="scripted", licence="Apache-2.0")
backend = ScriptedBackend("word " * 2000, forward_seconds=0.01)
served = make_served(pathlib.Path(sys.argv[1]), entry, backend, settings)
start.make_engines = lambda settings: ReadyEngines(settings, served)
start.read_settings = lambda arguments: settings
start.check_address = lambda settings: None
choices.POLL_SECONDS = 0.7  # a busy machine
start.main()
"""


def test_streams_end_with_a_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PAGE, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    body = {"model": "scripted", "prompt": "x", "stream": True, "max_tokens": 500}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = next(line for line in process.stdout if "MARS live" in line).split()[-1]
            with httpx.stream("POST", f"{address}/v1/completions", json=body, timeout=60) as stream:
                lines = stream.iter_lines()
                next(lines)
                process.send_signal(signal.SIGTERM)
                *_, event, end = [line for line in lines if line]
            assert SHUTTING_DOWN in event
            assert end == "data: [DONE]"
            assert process.wait(30) == 128 + signal.SIGTERM
        finally:
            process.kill()
