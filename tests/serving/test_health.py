"""Health: red before a checkpoint answers, when its worker is dead, and when it hangs."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from scripted_server import Oracle, Place, eventually, serving
from test_openai import chat

from mars_runtime.engine.request import Request
from mars_runtime.events import Event
from mars_runtime.settings import DecodeSettings


class Mortal(Oracle):
    """Its forwards end the worker where it ``is_ill``, or hang until ``gate`` is set."""

    is_ill = False
    gate: threading.Event | None = None

    def decode(self, request: Request, settings: Callable[[], DecodeSettings]) -> Iterator[Event]:
        if self.is_ill:
            raise SystemExit
        if self.gate is not None:
            self.gate.wait(60)
        yield from super().decode(request, settings)


def assert_red(place: Place) -> None:
    assert eventually(lambda: place.http.get("/health").status_code == 503)
    answer = place.http.get("/health")
    assert "stopped unexpectedly" in answer.json()["error"]["message"]
    assert int(answer.headers["retry-after"]) > 0
    with pytest.raises(openai.InternalServerError, match="stopped unexpectedly") as refused:
        chat(place)
    assert refused.value.status_code == 503


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_dead_worker(tmp_path: Path, is_stream: bool) -> None:
    backend = Mortal()
    with serving(tmp_path, backend) as place:
        assert place.http.get("/health").status_code == 200
        backend.is_ill = True
        with pytest.raises(openai.APIError, match="stopped unexpectedly"):
            list(chat(place, stream=is_stream))
        assert_red(place)


def test_a_worker_that_hangs(tmp_path: Path) -> None:
    backend = Mortal()
    backend.gate = threading.Event()
    with serving(tmp_path, backend, max_turn_seconds=0.3) as place:
        with pytest.raises(openai.APIError, match="stopped unexpectedly"):
            chat(place)
        assert_red(place)
        backend.gate.set()


@pytest.mark.parametrize(
    ("given", "code", "sentence"),
    [
        (["--max-runs", "0"], 2, "at least 1 request"),
        (["--host", "203.0.113.7"], 2, "Nothing can be served at 203.0.113.7"),
        (["--port", "99999"], 2, "Nothing can be served at"),
        (["--checkpoint", "nowhere"], 1, "nowhere"),
    ],
)
def test_mistakes_are_one_sentence(given: list[str], code: int, sentence: str) -> None:
    command = [sys.executable, "-m", "mars_runtime", "serve", "--port", "0", *given]
    done: Any = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == code
    (told,) = done.stderr.splitlines()
    assert sentence in told
