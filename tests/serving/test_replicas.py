"""Replicas: what ``serve --ray`` rejects, and two replicas by Ray Serve (needs ray[serve])."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from scripted_server import NAME, Oracle, said

from mars_runtime.__main__ import main
from mars_runtime.engine import Engine
from mars_runtime.model.config import CheckpointError
from mars_runtime.serving import replicas
from mars_runtime.serving.models import EngineModel
from mars_runtime.serving.replicas import Replica, ReplicaError
from mars_runtime.serving.server import KEY, ServePlan
from tests.engine.scripted import eventually
from tests.scripted_text import write_tokenizer

SECONDS = 300.0


def bring(plan: ServePlan) -> EngineModel:
    engine = Engine(Oracle(forward_seconds=0.01), plan.max_runs, plan.max_waiting)
    return EngineModel(NAME, write_tokenizer(Path(tempfile.mkdtemp())), 8, engine)


def test_what_the_command_refuses_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replicas, "has_ray", lambda: False)
    assert main(["serve", "--ray", "--checkpoint", "mars-tiny"]) == 2
    assert capsys.readouterr().err == f"{replicas.NO_RAY}\n"
    monkeypatch.setattr(replicas, "has_ray", lambda: True)
    assert main(["serve", "--ray", "--checkpoint", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_a_replica_that_cannot_serve_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the key of the others, with a model that fails to load, without its engine."""

    def damaged(plan: ServePlan) -> Any:
        raise CheckpointError("The file is damaged.")

    monkeypatch.delenv(KEY, raising=False)
    with pytest.raises(ReplicaError, match=KEY):
        Replica(ServePlan("x"), lambda plan: pytest.fail("loaded"), (), has_key=True)
    with pytest.raises(ReplicaError, match="damaged"):
        Replica(ServePlan("x"), damaged, (), has_key=False)
    replica = Replica(ServePlan(NAME), bring, (), has_key=False)
    replica.check_health()
    replica._models.close()
    with pytest.raises(ReplicaError, match=r"\.$"):
        replica.check_health()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_replicas_answer_as_one_server_does(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray.serve", reason="pip install -r requirements-serve.txt")
    here = Path(__file__).parent
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (here, here.parent))))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert replicas.begin("127.0.0.1", port)
    try:
        replicas.deploy(ServePlan(NAME, max_runs=2, min_replicas=2, max_replicas=2), bring)
        address = f"http://127.0.0.1:{port}"
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", timeout=SECONDS)
        assert httpx.get(f"{address}/health", timeout=SECONDS).json() == {"status": "ok"}
        ask: dict[str, Any] = {"model": NAME, "messages": [{"role": "user", "content": "Hi"}]}
        whole = client.chat.completions.create(**ask)
        streamed = said(client.chat.completions.create(**ask, stream=True))
        assert streamed.texts == [whole.choices[0].message.content]
        assert len(streamed.chunks) > 5
        with pytest.raises(openai.NotFoundError, match="Choose among"):
            client.chat.completions.create(**{**ask, "model": "x"})
        streams = [client.chat.completions.create(**ask, stream=True) for _ in range(4)]
        for stream in streams:
            stream.close()
        assert eventually(lambda: bool(client.chat.completions.create(**ask)), SECONDS)
    finally:
        replicas.end()
