"""The class that lm-eval sees, with a scripted answer and with small weights."""

from __future__ import annotations

import gzip
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scripted_text import ScriptedBackend, write_tokenizer

from mars_runtime.lab.verification.laws import runtime_logits
from mars_runtime.model.load import Checkpoint, load_checkpoint

pytest.importorskip("lm_eval", reason="pip install -r requirements-lm-eval.txt")
if TYPE_CHECKING:
    from mars_runtime.lab.harness.model import MarsLM

BOLD = {"tau": 0.0, "block_size": 4}


@dataclass
class Asked:
    """What the class reads of an instance of lm-eval."""

    args: tuple[Any, ...]
    task_name: str = "task"
    doc_id: int = 0


@pytest.fixture(scope="module")
def checkpoint(random_folder: Path) -> Checkpoint:
    return load_checkpoint(str(random_folder), device="cpu")


@pytest.fixture
def model(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., MarsLM]:
    """Makes a model that gives a scripted answer to everything."""
    from mars_runtime.lab.harness import model as under_test

    changed = replace(checkpoint, tokenizer=write_tokenizer(tmp_path))
    monkeypatch.setattr(under_test, "load_checkpoint", lambda *args, **kwargs: changed)

    def new(text: str, **settings: Any) -> MarsLM:
        backend = ScriptedBackend(text, forward_seconds=0.0)
        monkeypatch.setattr(under_test, "CheckpointBackend", lambda *args, **kwargs: backend)
        answers = str(tmp_path / "answers.jsonl")
        return under_test.MarsLM(batch_size=2, answers=answers, **{**BOLD, **settings})

    return new


def test_it_is_registered() -> None:
    from lm_eval.api.registry import get_model

    from mars_runtime.lab.harness import documents
    from mars_runtime.lab.harness.model import MarsLM

    assert get_model(documents.NAME) is MarsLM


def test_answers_in_order_with_stops_limits_and_counts(model: Callable[..., MarsLM]) -> None:
    mars = model("one two three")
    requests = [
        Asked(("a", {"until": ["two"], "max_gen_toks": 64})),
        Asked(("b", {"until": [], "max_gen_toks": 5, "do_sample": False}), "other"),
    ]
    assert mars.generate_until(requests, disable_tqdm=True) == ["one ", "one t"]
    info = mars.get_model_info()["mars"]
    assert info["way"] == "MARS τ=0 B=4"
    assert info["tasks"]["task"]["by_answer"] == [[0, 8, 2, 8, 2]]
    assert info["tasks"]["other"]["by_answer"] == [[0, 5, 2, 5, 2]]
    assert info["tasks"]["other"]["ended"] == 0.0


def test_finished_answers_are_not_written_again(model: Callable[..., MarsLM]) -> None:
    requests = [Asked(("a", {"until": [], "max_gen_toks": 64}))]
    first = model("first").generate_until(requests, disable_tqdm=True)
    again = model("again")
    assert again.generate_until(requests, disable_tqdm=True) == first == ["first"]
    assert again.get_model_info()["mars"]["tasks"]["task"]["tokens"] == 6
    bolder = model("again", block_size=2)
    assert bolder.generate_until(requests, disable_tqdm=True) == ["again"]


def test_likelihoods_agree_with_each_other(checkpoint: Checkpoint, random_folder: Path) -> None:
    from mars_runtime.lab.harness.model import MarsLM

    mars = MarsLM(str(random_folder), batch_size=3, device="cpu")
    tokenizer, net = checkpoint.tokenizer, checkpoint.model
    ids = [tokenizer.im_end_id, *tokenizer.encode("ab cd")]
    steps = runtime_logits(net, ids, 0)[:-1].log_softmax(-1)
    log_likelihoods = [float(row[token]) for row, token in zip(steps, ids[1:], strict=True)]
    whole, is_greedy = mars.loglikelihood([Asked(("", "ab cd"))])[0]
    assert whole == pytest.approx(sum(log_likelihoods), abs=1e-3)
    assert is_greedy == (steps.argmax(-1).tolist() == ids[1:])
    (rolling,) = mars.loglikelihood_rolling([Asked(("ab cd",))])
    assert rolling == pytest.approx(whole, abs=1e-3)
    assert math.isfinite(rolling)
    assert rolling < 0


def test_a_text_longer_than_the_model_is_read_in_windows(random_folder: Path) -> None:
    from mars_runtime.lab.harness.model import MarsLM

    mars = MarsLM(str(random_folder), device="cpu")
    long = "word " * 400
    (rolling,) = mars.loglikelihood_rolling([Asked((long,))])
    assert math.isfinite(rolling)
    ((score, _),) = mars.loglikelihood([Asked((long, " end"))])
    assert math.isfinite(score)


@pytest.mark.slow
def test_the_released_command_runs_a_task_file(tmp_path: Path) -> None:
    """Nothing of ours is called: lm-eval finds the model by the task file."""
    root = Path(__file__).parents[2]
    rows = [{"task": f"t{n}", "input": f"{n} + 1 =", "target": str(n + 1)} for n in range(3)]
    benchmarks = tmp_path / "benchmarks"
    benchmarks.mkdir()
    with gzip.open(benchmarks / "bbh.jsonl.gz", "wt") as file:
        file.write("\n".join(map(json.dumps, rows)))
    task = "mars_runtime/lab/harness/tasks/bbh_local.yaml"
    given = ["--model", "mars", "--model_args", "checkpoint=mars-tiny,tau=0.95,lossless=true"]
    arguments = ["--tasks", task, "--limit", "2", "--apply_chat_template", "--output_path"]
    done = subprocess.run(
        [sys.executable, "-m", "lm_eval", *given, *arguments, str(tmp_path / "out")],
        cwd=root,
        env={**os.environ, "MARS_BENCHMARKS": str(benchmarks), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (path,) = (tmp_path / "out").rglob("results_*.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["config"]["mars"]["tasks"]["bbh_local"]["answers"] == 2
    assert document["config"]["mars"]["settings"]["lossless"] is True
