"""Processes that end, or fork, while threads of an engine work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mars_runtime.engine.engine import FORKED

ROOT = Path(__file__).parents[2]
DELAYS = (0.0, 0.2)

ENDING = """
import os, sys, time
import mars_runtime.api, mars_runtime.engine.costs

for delay in map(float, sys.argv[1:]):
    if os.fork() == 0:
        kept = mars_runtime.api.load("mars-tiny")
        time.sleep(delay)
        sys.exit(7)
    print(delay, os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_process_ends_during_the_warm_up() -> None:
    """A daemon thread that Python ends inside PyTorch would abort the process."""
    command = [sys.executable, "-c", ENDING, *map(str, DELAYS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert (done.stdout.splitlines(), done.stderr) == ([f"{delay} 7" for delay in DELAYS], "")


FORKING = """
import os, sys, time
import mars_runtime.api
from mars_runtime.errors import MarsError

model = mars_runtime.api.load("mars-tiny")
for delay in sys.argv[1:]:
    if delay == "after":
        model.generate("Hello", max_new_tokens=1)
    else:
        time.sleep(float(delay))
    if os.fork() == 0:
        for call in (lambda: model.generate("Hello"), lambda: model.compare("Hello")):
            try:
                call()
            except MarsError as error:
                print(error)
        model.close()
        sys.exit(7)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
print(model.generate("Hello", max_new_tokens=1).finish_reason)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_an_engine_refuses_to_run_in_a_forked_process() -> None:
    """Its worker is missing there; the forks are in the warm-up and after it."""
    command = [sys.executable, "-W", "ignore", "-c", FORKING, "0", "after"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == [*[FORKED, FORKED, "7"] * 2, "limit"], done.stderr
