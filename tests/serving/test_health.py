"""Clients that leave, a full line, a worker that dies, metrics, and the bundled checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families as families
from scripted_server import NAME as SCRIPTED
from scripted_server import Oracle, Place, chat, respond, said, serving

from mars_runtime.__main__ import main
from mars_runtime.engine import Engine, Request
from mars_runtime.model.load import load_checkpoint
from mars_runtime.runs import folds
from mars_runtime.runs.events import Event
from mars_runtime.serving.choices import SHUTTING_DOWN
from mars_runtime.serving.metrics import Metrics
from mars_runtime.serving.server import ORIGINS
from mars_runtime.settings import DecodeSettings
from tests.engine.scripted import Script, eventually, request

AR = {"method": "ar"}


@pytest.mark.parametrize("ask", [chat, respond])
def test_clients_that_leave_free_their_rows(slow: Place, ask: Any) -> None:
    """Those that run, that wait, and that give up on a whole answer."""
    streams = [ask(slow, stream=True, extra_body=AR) for _ in range(3)]
    assert eventually(lambda: slow.num_open == 3)
    streams[2].close()  # which waits
    assert eventually(lambda: slow.num_open == 2, 20.0)
    for stream in streams:
        stream.close()
    assert slow.is_idle()
    with pytest.raises(openai.APITimeoutError):
        ask(slow, timeout=0.3, extra_body=AR | ({"n": 6} if ask is chat else {}))
    assert slow.is_idle()
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
    def decode(self, *args: Any) -> Iterator[Event]:
        raise SystemExit


@pytest.mark.parametrize(("hangs", "is_stream"), [(False, True), (True, False)])
def test_a_worker_that_dies_or_hangs(tmp_path: Path, hangs: bool, is_stream: bool) -> None:
    backend = Oracle(is_held=True) if hangs else Mortal()
    with serving(tmp_path, backend, max_turn_seconds=0.3) as place:
        assert place.http.get("/health").status_code == 200
        with pytest.raises(openai.APIError, match="stopped unexpectedly"):
            said(chat(place, stream=is_stream))
        assert eventually(lambda: place.http.get("/health").status_code == 503)
        assert_unavailable(place, "stopped unexpectedly")
        backend.released.set()


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


# The metrics count what clients requested.

Samples = Mapping[tuple[str, tuple[str, ...]], float]


def samples(text: str) -> Samples:
    """(name without the prefix, label values but the model's) -> value."""
    actual = {}
    for family in families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("model_name") == SCRIPTED
            assert labels.keys() <= {"le", "finished_reason", "position"}
            actual[sample.name.removeprefix("mars:"), tuple(labels.values())] = sample.value
    return actual


def scraped(place: Place) -> Samples:
    answer = place.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return samples(answer.text)


def test_what_was_asked_is_counted(tmp_path: Path) -> None:
    with serving(tmp_path, Oracle()) as place:
        settings = {"lossless": False, "tau": 0.0, "block_size": 4}
        used = chat(place, max_tokens=10, extra_body=settings).usage  # 4 + 4 + 2
        chat(place, max_tokens=1, extra_body={"method": "ar"})
        assert eventually(lambda: ("request_success_total", ("length",)) in scraped(place))
        metrics = scraped(place)
    assert metrics["prompt_tokens_total", ()] == 2 * used.prompt_tokens
    assert metrics["generation_tokens_total", ()] == 11
    assert metrics["request_success_total", ("length",)] == 2
    assert metrics["num_requests_running", ()] == metrics["num_requests_waiting", ()] == 0
    assert metrics["kv_cache_usage_perc", ()] == 0
    assert metrics["spec_decode_num_drafts_total", ()] == 3
    assert metrics["spec_decode_num_draft_tokens_total", ()] == 7
    assert metrics["spec_decode_num_accepted_tokens_total", ()] == 7
    by_place = [
        metrics["spec_decode_num_accepted_tokens_per_pos_total", (str(k),)] for k in range(3)
    ]
    assert by_place == [3, 2, 2]
    assert metrics["iteration_tokens_total_count", ()] == 4
    assert metrics["iteration_tokens_total_sum", ()] == 11
    for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time"):
        assert metrics[f"{name}_seconds_count", ()] == 2
    assert metrics["inter_token_latency_seconds_count", ()] == 2
    assert metrics["request_time_per_output_token_seconds_count", ()] == 1


def test_those_that_run_and_wait_are_seen(tmp_path: Path) -> None:
    backend = Oracle(forward_seconds=0.3, is_held=True)
    backend.capacity = 100
    with serving(tmp_path, backend, max_runs=2, max_waiting=2) as place:
        streams = [chat(place, stream=True) for _ in range(3)]
        used = len(place.ids()) / (2 * 100)  # by the one that has been read
        assert eventually(lambda: scraped(place)["kv_cache_usage_perc", ()] == used)
        metrics = scraped(place)
        assert metrics["num_requests_running", ()] == 2
        assert metrics["num_requests_waiting", ()] == 1
        for stream in streams:
            stream.close()
        backend.released.set()
        assert eventually(lambda: scraped(place).get(("request_success_total", ("abort",))) == 3)
        assert scraped(place)["kv_cache_usage_perc", ()] == 0


def test_a_shared_forward_is_one_iteration() -> None:
    start = threading.Event()
    metrics = Metrics()
    with Engine(Script(start=start)) as engine:
        metrics.watch(SCRIPTED, engine)
        runs = [engine.submit(request(token, 5)) for token in (1, 2, 3)]
        start.set()
        assert all(run.wait(60) for run in runs)
    actual = samples(metrics.expose().decode())
    assert actual["iteration_tokens_total_sum", ()] == 15
    assert actual["iteration_tokens_total_count", ()] < 15
    assert actual["generation_tokens_total", ()] == 15


def test_lanes_of_a_race_and_failures_are_counted() -> None:
    metrics = Metrics()
    with Engine(Script(fails_at={2: 1})) as engine:
        metrics.watch(SCRIPTED, engine)
        runs = [*engine.race([request(1), request(3)]), engine.submit(request(2))]
        assert all(run.wait(60) for run in runs)
    actual = samples(metrics.expose().decode())
    assert actual["request_success_total", ("length",)] == 2
    assert actual["request_success_total", ("error",)] == 1


def test_no_text_is_in_the_metrics(place: Place) -> None:
    secret = "grandmother"
    chat(place, [{"role": "user", "content": secret}])
    assert secret not in place.http.get("/metrics").text


# The bundled checkpoint.

NAME = "mars-tiny"
ASKED: dict[str, Any] = {
    "model": NAME,
    "messages": [{"role": "user", "content": "Sort these numbers: 7, 3, 5"}],
    "max_tokens": 30,
}


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[subprocess.Popen[str], str]]:
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


def test_a_signal_ends_streams_with_a_sentence(server: tuple[subprocess.Popen[str], str]) -> None:
    process, address = server
    tale = [{"role": "user", "content": "Tell me a long tale of a cat."}]
    body = {"model": NAME, "messages": tale, "stream": True, "max_tokens": 400, "method": "ar"}
    body |= {"ignore_eos": True, "n": 24}  # or the tale ends before the signal
    with httpx.stream("POST", f"{address}/chat/completions", json=body, timeout=60) as stream:
        lines = stream.iter_lines()
        next(lines)
        process.send_signal(signal.SIGTERM)
        actual = [line for line in lines if line]
    assert "shutting down" in actual[-2]
    assert actual[-1] == "data: [DONE]"
    assert process.wait(30) == -signal.SIGTERM  # uvicorn ends by the signal that ended it
