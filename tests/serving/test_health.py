"""Requests when clients leave, the line is full, the model is loading, or the worker dies or hangs;
and the bundled checkpoint behind the endpoint, compared with its engine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from scripted_server import Oracle, Place, chat, eventually, respond, said, serving

from mars_runtime.__main__ import main
from mars_runtime.engine import Engine, Request
from mars_runtime.model.load import load_checkpoint
from mars_runtime.runs import folds
from mars_runtime.runs.events import Event
from mars_runtime.serving.choices import SHUTTING_DOWN
from mars_runtime.serving.server import ORIGINS
from mars_runtime.settings import DecodeSettings


@pytest.mark.parametrize("ask", [chat, respond])
def test_clients_that_leave_free_their_rows(slow: Place, ask: Any) -> None:
    """Those that run, that wait, and that give up on a whole answer."""
    streams = [ask(slow, stream=True) for _ in range(3)]
    assert eventually(lambda: slow.num_open == 3)
    streams[2].close()  # which waits
    assert eventually(lambda: slow.num_open == 2, 1.0)
    for stream in streams:
        stream.close()
    assert slow.is_idle(1.0)
    with pytest.raises(openai.APITimeoutError):
        ask(slow, timeout=0.3, **({"n": 6} if ask is chat else {}))
    assert slow.is_idle(1.0)
    before = slow.backend.num_forwards
    assert not eventually(lambda: slow.backend.num_forwards > before, 0.2), "the rest do not begin"


def test_overload_is_reported_and_passes(slow: Place) -> None:
    """The last place in line is for another address."""
    streams = [chat(slow, stream=True) for _ in range(4)]
    for is_stream in (True, False):
        with pytest.raises(openai.RateLimitError, match=r"4 runs are active or queued") as refused:
            chat(slow, stream=is_stream)
        assert int(refused.value.response.headers["retry-after"]) >= 1
    for stream in streams:
        stream.close()
    assert slow.is_idle()
    assert chat(slow, max_tokens=2).usage.completion_tokens == 2


def assert_unavailable(place: Place, sentence: str) -> None:
    answer = place.http.get("/health")
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    with pytest.raises(openai.InternalServerError, match=sentence) as refused:
        chat(place)
    assert refused.value.status_code == 503
    assert "retry-after" in refused.value.response.headers


def test_nothing_is_answered_while_loading(tmp_path: Path) -> None:
    held = threading.Event()
    with serving(tmp_path, Oracle(), held=held) as place:
        assert_unavailable(place, "loading")
        held.set()
        assert place.models.wait(60) == ""
        assert place.http.get("/health").status_code == 200
        assert said(chat(place)).texts == [place.text_for()]


def test_an_end_of_the_server_is_a_sentence(slow: Place) -> None:
    chats, responses = iter(chat(slow, stream=True)), iter(respond(slow, stream=True))
    next(chats), next(responses)
    slow.models.close()
    with pytest.raises(openai.APIError, match="shutting down"):
        list(chats)
    last = list(responses)[-1]
    assert (last.type, last.response.status) == ("response.failed", "failed")
    error = last.response.error
    assert (error.code, error.message) == ("server_error", SHUTTING_DOWN)
    assert_unavailable(slow, r"\.")


class Mortal(Oracle):
    """Its forwards end the worker if it ``is_ill``, or hang until ``gate`` is set."""

    is_ill = False
    gate: threading.Event | None = None

    def decode(self, request: Request, settings: Callable[[], DecodeSettings]) -> Iterator[Event]:
        if self.is_ill:
            raise SystemExit
        if self.gate is not None:
            self.gate.wait(60)
        yield from super().decode(request, settings)


@pytest.mark.parametrize(("hangs", "is_stream"), [(False, True), (True, False)])
def test_a_worker_that_dies_or_hangs(tmp_path: Path, hangs: bool, is_stream: bool) -> None:
    backend, gate = Mortal(), threading.Event()
    with serving(tmp_path, backend, max_turn_seconds=0.3 if hangs else 60.0) as place:
        assert place.http.get("/health").status_code == 200
        backend.is_ill, backend.gate = not hangs, gate if hangs else None
        with pytest.raises(openai.APIError, match="stopped unexpectedly"):
            said(chat(place, stream=is_stream))
        assert eventually(lambda: place.http.get("/health").status_code == 503)
        assert_unavailable(place, "stopped unexpectedly")
        gate.set()


@pytest.mark.parametrize(
    ("given", "code", "sentence"),
    [
        (["--max-runs", "0"], 2, "--max-runs must be greater"),
        (["--busy-tau", "2"], 2, "--busy-tau"),
        (["--host", "203.0.113.7"], 2, "The address 203.0.113.7"),
        (["--port", "99999"], 2, "The address 127.0.0.1:99999"),
        (["--checkpoint", "nowhere"], 1, "nowhere"),
    ],
)
def test_mistakes_are_one_sentence(
    given: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--port", "0", *given]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert sentence in line


# The bundled checkpoint.

NAME = "mars-tiny"
ASKED: dict[str, Any] = {
    "model": NAME,
    "messages": [{"role": "user", "content": "Sort these numbers: 7, 3, 5"}],
    "max_tokens": 30,
}


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``python -m mars_runtime serve`` and its address."""
    command = [sys.executable, "-m", "mars_runtime", "serve", "--checkpoint", NAME, "--port", "0"]
    environment = {**os.environ, ORIGINS: "*"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    yield process, process.stdout.readline().split()[-1]
    process.kill()
    process.wait()


def test_greedy_text_is_the_engine_s_own(server: tuple[subprocess.Popen[str], str]) -> None:
    client = openai.OpenAI(base_url=server[1], api_key="none", max_retries=0)
    headers = {"origin": "https://app.example", "access-control-request-method": "POST"}
    answer = httpx.options(f"{server[1]}/chat/completions", headers=headers)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "*")
    checkpoint = load_checkpoint(NAME)
    tokenizer, prompt = checkpoint.tokenizer, ASKED["messages"][0]["content"]
    unverified = {"lossless": False, "tau": 0.8, "block_size": 4, "mask_layout": "last"}
    with Engine(checkpoint) as engine:
        for fields in ({"method": "ar"}, unverified):
            settings = DecodeSettings(max_new_tokens=30, **fields)
            run = engine.submit(Request(tokenizer.encode_prompt(prompt), settings))
            assert run.wait(120)
            tokens = folds.accepted_tokens(run.events_since(0))
            text = tokenizer.decode(token for token in tokens if token not in tokenizer.eos_ids)
            for is_stream in (False, True):
                create = client.chat.completions.create
                assert said(create(**ASKED, extra_body=fields, stream=is_stream)).texts == [text]


def test_a_signal_ends_streams_with_a_sentence(
    server: tuple[subprocess.Popen[str], str],
) -> None:
    process, address = server
    tale = [{"role": "user", "content": "Tell me a long tale of a cat."}]
    body = {"model": NAME, "messages": tale, "stream": True, "max_tokens": 400, "method": "ar"}
    body |= {"temperature": 2.0, "seed": 10}  # or the tale ends before the signal
    with httpx.stream("POST", f"{address}/chat/completions", json=body, timeout=60) as stream:
        lines = stream.iter_lines()
        next(lines)
        process.send_signal(signal.SIGTERM)
        actual = [line for line in lines if line]
    assert "shutting down" in actual[-2]
    assert actual[-1] == "data: [DONE]"
    assert process.wait(30) == -signal.SIGTERM  # uvicorn ends by the signal that ended it
