"""Health: red before a checkpoint answers, when its worker is dead, and when it hangs. The bundled
checkpoint behind the endpoint: over the wire comes what its engine writes.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from scripted_server import Oracle, Place, eventually, serving
from test_openai import chat

from mars_runtime.__main__ import main
from mars_runtime.engine import Engine, Request
from mars_runtime.events import Event
from mars_runtime.model.load import load_checkpoint
from mars_runtime.serving.addresses import ORIGINS
from mars_runtime.serving.server import bound
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


def test_a_small_answer_does_not_wait_to_be_sent() -> None:
    with (
        bound("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


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
def test_mistakes_are_one_sentence(
    given: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--port", "0", *given]) == code
    (told,) = capsys.readouterr().err.splitlines()
    assert sentence in told


NAME = "mars-tiny"
QUESTION = "Sort these numbers: 7, 3, 5"


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


def test_the_command_reads_the_allowed_origins(server: tuple[subprocess.Popen[str], str]) -> None:
    headers = {"origin": "https://app.example", "access-control-request-method": "POST"}
    answer = httpx.options(f"{server[1]}/chat/completions", headers=headers)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "*")


def test_greedy_text_is_the_engine_s_own(server: tuple[subprocess.Popen[str], str]) -> None:
    client = openai.OpenAI(base_url=server[1], api_key="none", max_retries=0)
    checkpoint = load_checkpoint(NAME)
    kinds = [
        {"method": "ar"},
        {"method": "mars", "lossless": False, "tau": 0.8, "block_size": 4, "groups": "one"},
    ]
    with Engine(checkpoint) as engine:
        for own in kinds:
            settings = DecodeSettings(max_new_tokens=30, **own)  # type: ignore[arg-type]
            run = engine.submit(Request(checkpoint.tokenizer.encode_prompt(QUESTION), settings))
            assert run.wait(120)
            tokens = [
                t for e in run.events_since(0) if hasattr(e, "rows") for t in e.rows[0].accepted
            ]
            text = checkpoint.tokenizer.decode(
                token for token in tokens if token not in checkpoint.tokenizer.eos_ids
            )
            for is_stream in (False, True):
                assert asked(client, is_stream, own) == text
            if own["method"] == "ar":  # lossless writes the same
                assert asked(client, True, {}) == text


@pytest.mark.parametrize("own", [{}, {"method": "ar"}])
def test_logprobs_of_a_stream_are_those_of_a_whole_answer(
    server: tuple[subprocess.Popen[str], str], own: dict[str, object]
) -> None:
    """The same tokens and runners-up; numbers but for rounding, which differs with the width of a
    forward, and not at all where every forward is of one token."""
    client = openai.OpenAI(base_url=server[1], api_key="none", max_retries=0)
    ask: dict[str, object] = {"messages": [{"role": "user", "content": QUESTION}], "model": NAME}
    ask |= {"logprobs": True, "top_logprobs": 3, "max_tokens": 30, "extra_body": own}
    whole = client.chat.completions.create(**ask).choices[0].logprobs.content  # type: ignore[call-overload]
    for _ in range(3):
        chunks = client.chat.completions.create(**ask, stream=True)  # type: ignore[call-overload]
        pieces = [chunk.choices[0].logprobs for chunk in chunks if chunk.choices]
        told = [each for piece in pieces if piece for each in piece.content]
        assert [tops(each) for each in told] == [tops(each) for each in whole]
        numbers = [one.logprob for each in told for one in each.top_logprobs]
        wanted = [one.logprob for each in whole for one in each.top_logprobs]
        assert numbers == (wanted if own else pytest.approx(wanted, abs=1e-4))


def tops(each: Any) -> tuple[str, list[str]]:
    return each.token, [one.token for one in each.top_logprobs]


def test_told_to_end_it_ends_streams_with_a_sentence(
    server: tuple[subprocess.Popen[str], str],
) -> None:
    process, address = server
    tale = [{"role": "user", "content": "Tell me a long tale of a cat."}]
    body = {"model": NAME, "messages": tale, "stream": True, "max_tokens": 400, "method": "ar"}
    body |= {"temperature": 2.0, "seed": 10}  # or the tale ends before it is told to
    with httpx.stream("POST", f"{address}/chat/completions", json=body, timeout=60) as stream:
        lines = stream.iter_lines()
        next(lines)
        process.send_signal(signal.SIGTERM)
        told = [line for line in lines if line]
    assert "shutting down" in told[-2]
    assert told[-1] == "data: [DONE]"
    assert process.wait(30) == -signal.SIGTERM  # uvicorn ends by what ended it


def asked(client: openai.OpenAI, is_stream: bool, own: dict[str, object]) -> str:
    """The text."""
    messages = [{"role": "user", "content": QUESTION}]
    create = client.chat.completions.create
    if not is_stream:
        whole = create(model=NAME, messages=messages, max_tokens=30, extra_body=own)  # type: ignore[call-overload]
        return str(whole.choices[0].message.content)
    chunks = create(model=NAME, messages=messages, max_tokens=30, stream=True, extra_body=own)  # type: ignore[call-overload]
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
