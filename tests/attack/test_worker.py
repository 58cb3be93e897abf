"""A worker that dies or hangs: every reader gets an error, none gets a success, and it is
detected.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mars_runtime.engine import Engine, EngineError, Run
from mars_runtime.runs.events import End
from tests.engine.scripted import FOREVER, Script, last, request, steps

ROOT = Path(__file__).parents[2]


def assert_error(run: Run) -> None:
    end = last(run)
    assert isinstance(end, End)
    assert (end.reason, end.message[-1]) == ("error", ".")


def test_a_forward_that_hangs_ends_its_runs_and_those_that_wait() -> None:
    gate = threading.Event()
    engine = Engine(Script(gate=gate), max_runs=1, max_turn_seconds=0.1)
    runs = [engine.submit(request(token, FOREVER)) for token in (1, 2)]
    for run in runs:
        assert run.wait(10)
        assert_error(run)
    assert not engine.is_alive
    with pytest.raises(EngineError, match="again"):
        engine.submit(request())
    num_events = len(runs[0].events_since(0))
    gate.set()  # the worker wakes up after all: nothing follows the end
    engine.close()
    assert len(runs[0].events_since(0)) == num_events


def test_the_log_of_a_fault_holds_no_word_of_the_prompt(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), Engine(Script(fails_at={1: 2})) as engine:
        run = engine.submit(request())
        assert run.wait(60)
        assert len(steps(run)) == 2
    assert "RuntimeError" in caplog.text
    assert "scripted.py" in caplog.text
    assert "secret" not in caplog.text


PAUSED = """
import sys, threading
from mars_runtime.engine import Engine
from tests.engine.scripted import Script, eventually, last, prefilled, request

gate = threading.Event()
engine = Engine(Script(gate=gate), max_turn_seconds=2.0)
run = engine.submit(request(1, 3))
assert eventually(lambda: prefilled(run))
print("in a forward", flush=True)
sys.stdin.readline()
print(engine.is_alive, flush=True)
gate.set()
assert run.wait(60)
print(last(run).reason, engine.is_alive, flush=True)
engine.close()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no process can be paused here")
def test_a_pause_of_the_process_is_no_hang() -> None:
    """A container that was paused for longer than a forward may take serves on."""
    command = [sys.executable, "-c", PAUSED]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "in a forward\n"
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(3.0)  # longer than a forward may take
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(1.2)  # the watcher looks once a second
        assert process.communicate("\n", 60)[0] == "True\nlimit True\n"
        assert process.returncode == 0
