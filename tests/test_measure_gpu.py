"""``tools/measure_gpu.py``: steps that fail, hang or can't run never stop the next one. The dry run
goes from a bare folder to a record of all steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from mars_runtime.decoders.cursor import decode
from mars_runtime.files.paths import SOURCE
from mars_runtime.model.config import ModelConfig, expected_names, expected_shape
from mars_runtime.model.transformer import Transformer
from mars_runtime.runs.events import Step
from mars_runtime.settings import DecodeSettings
from tools import measure_gpu
from tools.measure_gpu import (
    NO_CHAT,
    SHAPES,
    VOCABULARY,
    ForcedModel,
    Measurement,
    plan,
    random_weights,
    run_steps,
)

HANG = "import time; time.sleep(60)"
CHILD = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"


def run(tmp_path: Path, steps: Sequence[Measurement]) -> dict[str, dict[str, Any]]:
    actual_steps = run_steps(steps, tmp_path / "assets", tmp_path, {"PATH": ""})
    document = json.loads((tmp_path / "assets" / "results" / "gpu_run.json").read_text())
    assert document["steps"] == actual_steps
    return {step["name"]: step for step in actual_steps}


def test_no_step_stops_the_next_and_none_leaves_children(tmp_path: Path) -> None:
    start, name = time.monotonic(), str(tmp_path / "a child of a step")
    stubborn = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {CHILD}; {HANG}"
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    actual = run(
        tmp_path,
        [
            Measurement("fails", 20, ["-c", "print('why it failed'); raise SystemExit(3)"]),
            Measurement("hangs", 1, ["-c", stubborn, f"{HANG} # {name}"]),
            Measurement("is_killed", 20, ["-c", kill]),
            Measurement("chat", 20, ["-c", "raise SystemExit(4)"], NO_CHAT),
            Measurement("works", 20, ["-c", "print('yes')"]),
        ],
    )
    assert {name: item["state"] for name, item in actual.items()} == {
        "fails": "failed",
        "hangs": "stopped at its limit",
        "is_killed": "failed",
        "chat": "skipped",
        "works": "done",
    }
    assert (actual["fails"]["exit_code"], actual["fails"]["output"]) == (3, ["why it failed"])
    assert actual["chat"]["reason"] == NO_CHAT
    assert time.monotonic() - start < 60
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert name not in listed.stdout


def test_steps_come_in_order_and_each_has_what_it_needs(tmp_path: Path) -> None:
    names = [step.name for step in plan(tmp_path, has_chat=True, is_dry=False)]
    shapes = ["shape_05b_1", "shape_05b_8", "shape_7b_1", "shape_7b_8"]
    assert names == ["tests", *shapes, "tasks", "chat"]
    bare = plan(tmp_path, has_chat=False, is_dry=False)
    assert {step.name for step in bare if step.missing == NO_CHAT} == {"chat"}


@pytest.mark.parametrize(
    ("name", "published"), [("qwen2.5-0.5b", 494_032_768), ("qwen2.5-7b", 7_615_616_512)]
)
def test_shapes_have_the_published_number_of_parameters(name: str, published: int) -> None:
    config = ModelConfig.from_dict(SHAPES[name])
    shapes = [torch.Size(expected_shape(name, config)) for name in expected_names(config)]
    assert sum(shape.numel() for shape in shapes) == published


@pytest.mark.parametrize(("lossless", "num_rows"), [(False, 1), (True, 3)])
def test_the_accepted_tokens_follow_the_histogram(
    lossless: bool, num_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure_gpu, "SHARES", (0.5, 0.0, 0.25, 0.25))
    config = ModelConfig.from_dict(SHAPES["tiny"] | {"vocab_size": 151666, "hidden_size": 8})
    device = torch.device("cpu")
    model = Transformer(config, random_weights(config, device, torch.float32), device=device)
    tau = 0.0 if lossless else 1.0
    settings = DecodeSettings(tau=tau, block_size=4, lossless=lossless, max_new_tokens=200)
    prompts = [[3, 4 + row, *range(5, 5 + row)] for row in range(num_rows)]
    events = list(decode(ForcedModel(model), VOCABULARY, prompts, lambda: settings))  # type: ignore[arg-type]
    counts = Counter(
        len(row.accepted) for event in events if isinstance(event, Step) for row in event.rows
    )
    total = sum(taken * count for taken, count in counts.items())
    assert total == 200 * num_rows
    assert counts[2] <= num_rows  # the last one of a single row
    assert total / sum(counts.values()) == pytest.approx(2.25, 0.15)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_dry_run_completes_every_step_that_can_run(tmp_path: Path) -> None:
    """Without the chat model, as in a fresh clone without a network."""
    command = [sys.executable, "tools/measure_gpu.py", "--dry-run", "--out", str(tmp_path)]
    cache = str(tmp_path / "cache")
    hidden = "import sys; sys.modules['gradio'] = None"
    (tmp_path / "sitecustomize.py").write_text(hidden)
    environment = {"MARS_CACHE": cache, "PYTHONPATH": str(tmp_path), "MARS_OFFLINE": "1"}
    done = subprocess.run(
        command, cwd=SOURCE, env=dict(os.environ) | environment, capture_output=True, text=True
    )
    record = json.loads((tmp_path / "results" / "gpu_run.json").read_text())["steps"]
    assert done.returncode == 0, (
        done.stdout,
        [entry for entry in record if entry["state"] == "failed"],
    )
    states = {item["name"]: item["state"] for item in record}
    assert states.pop("chat") == "skipped"
    assert set(states.values()) == {"done"}
    rates = json.loads((tmp_path / "results" / "gpu_shape_7b_1.json").read_text())
    assert set(rates["tokens_per_second"]) >= {"AR", "MARS τ=0.95 B=4", "transformers generate"}
