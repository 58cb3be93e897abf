"""What ``serve --ray`` is asked for, without Ray: refusals, and what Ray would be told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import scripted_replicas
from scripted_server import NAME

from mars_runtime.__main__ import main
from mars_runtime.model.config import CheckpointError
from mars_runtime.serving import replicas
from mars_runtime.serving.replicas import Replica, ReplicaError
from mars_runtime.serving.server import KEY, PlanError, ServePlan

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "wrong", [{"max_runs": 0}, {"max_waiting": -1}, {"threads": 0}, {"min_replicas": 3}]
)
def test_a_plan_that_makes_no_sense_is_a_sentence(wrong: dict[str, int]) -> None:
    with pytest.raises(PlanError, match=r"\.$"):
        ServePlan("mars-tiny", **wrong)


def test_without_ray_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replicas, "is_there", lambda: False)
    monkeypatch.setattr(replicas, "is_there", lambda: False)
    assert main(["serve", "--ray", "--checkpoint", "mars-tiny"]) == 2
    assert main(["scale", "--checkpoint", "mars-tiny"]) == 2
    (told, again) = capsys.readouterr().err.splitlines()
    assert told == again == replicas.NO_RAY
    assert "pip install -r requirements-serve.txt" in told
    assert "ray[serve]>=2.60" in (ROOT / "requirements-serve.txt").read_text(encoding="utf-8")


def test_a_checkpoint_that_is_not_there_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replicas, "is_there", lambda: True)
    assert main(["serve", "--ray", "--checkpoint", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_a_replica_is_given_its_cores_its_line_and_time_to_finish() -> None:
    told = replicas.options(ServePlan("x", max_runs=3, max_waiting=5, threads=2, max_replicas=4))
    assert told["ray_actor_options"] == {"num_cpus": 2}
    assert told["autoscaling_config"]["min_replicas"] == 1
    assert told["autoscaling_config"]["max_replicas"] == 4
    assert told["autoscaling_config"]["target_ongoing_requests"] == 3
    assert told["max_ongoing_requests"] > 8  # settings find room beside what is served
    assert told["backpressure_config"]["status_code"] == 429
    assert told["graceful_shutdown_timeout_s"] > 300
    fixed = replicas.options(ServePlan("x", min_replicas=2, max_replicas=2))
    assert fixed["num_replicas"] == 2
    assert "autoscaling_config" not in fixed


def test_why_replicas_did_not_start_is_found_in_what_ray_tells() -> None:
    told = "Traceback\nRayTaskError\n  mars_runtime.x.ReplicaError: The file is damaged.\n  at x"
    assert replicas.sentence_in(told) == "The replicas did not start: The file is damaged."
    assert replicas.sentence_in("?") == "The replicas did not start: see the logs of Ray."


def test_a_replica_without_the_key_of_the_others_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(KEY, raising=False)
    with pytest.raises(ReplicaError, match=KEY):
        Replica(ServePlan("x"), lambda plan: pytest.fail("loaded"), has_key=True)


def test_a_replica_whose_model_fails_to_load_says_why() -> None:
    def bring(plan: ServePlan) -> Any:
        raise CheckpointError("The file is damaged.")

    with pytest.raises(ReplicaError, match="damaged"):
        Replica(ServePlan("x"), bring, has_key=False)


def test_a_replica_whose_engine_is_gone_is_not_healthy() -> None:
    replica = Replica(ServePlan(NAME), scripted_replicas.bring, has_key=False)
    replica.check_health()
    replica.leave()
    with pytest.raises(ReplicaError, match=r"\.$"):
        replica.check_health()
