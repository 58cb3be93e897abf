"""Two processes that train together save when they are interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.training.tiny_base import write_answers, write_base


@pytest.mark.slow
def test_two_processes_stop_together_and_save(tmp_path: Path) -> None:
    base, answers = tmp_path / "base", tmp_path / "answers"
    write_base(base)
    answers.mkdir()
    write_answers(answers)
    out = tmp_path / "out"
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    train = ["-m", "mars_runtime", "train", "--stage", "adapter", "--threads", "1"]
    where = ["--from", str(base), "--data", str(answers), "--out", str(out)]
    many = ["--steps", "1000000", "--measure-steps", "1000000", "--batch-tokens", "256"]
    eager = {**os.environ, "TORCHDYNAMO_DISABLE": "1"}  # compiling takes longer than the test
    process = subprocess.Popen([*run, *train, *where, *many], env=eager)
    try:
        until = time.monotonic() + 90
        while not (out / "log.jsonl").exists() and time.monotonic() < until:
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        process.wait(60)
    finally:
        process.terminate()  # it ends its workers, which a kill would leave behind
        process.wait()
    saved = torch.load(out / "resume.pt", weights_only=True)
    assert saved["progress"]["step"] >= 10
