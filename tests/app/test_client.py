"""The typed endpoints as a program uses them, over the real engine and a scripted model."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from batch_page import ROW_BYTES, TEXT, BatchBackend
from gradio.utils import get_function_description

from app.page import build
from mars_runtime.runs.loops import find_loop
from mars_runtime.runs.trace import read_trace
from tests.engine.scripted import eventually

gradio_client = pytest.importorskip("gradio_client")
ROOT = Path(__file__).resolve().parents[2]
ENDPOINTS = ["/generate", "/compare", "/batch", "/traces"]


@pytest.fixture
def backend(scripted_backend: BatchBackend) -> BatchBackend:
    scripted_backend.forward_seconds = 0.0
    return scripted_backend


@pytest.fixture(scope="module")
def client(address: str) -> gradio_client.Client:
    return gradio_client.Client(address, verbose=False)


def test_generate_streams_text_and_figures(client, backend: BatchBackend) -> None:
    backend.forward_seconds = 0.02
    given = {"prompt": "Say it.", "system": "Be brief.", "tau": 0.5, "max_new_tokens": 160}
    job = client.submit(**given, api_name="/generate")
    last = job.result(timeout=60)
    items = job.outputs()
    assert len(items) > 1
    assert b"Be brief." in bytes(token for token in backend.prompts[-1] if token < 256)
    assert all(last["text"].startswith(item["text"]) for item in items)
    assert last["ended"] == "limit"
    assert last["text"].encode() == backend.text.encode()[:160]
    assert last["num_tokens"] == 160
    # Four of each forward, up to where the text begins to repeat itself.
    end_of_text = find_loop(list(backend.text.encode()[:160]))
    assert last["tokens_per_forward"] == end_of_text.kept / -(-end_of_text.kept // 4)


def test_compare_says_both_texts_and_where_they_part(client, backend: BatchBackend) -> None:
    backend.forward_seconds = 0.01
    job = client.submit(prompt="Say it.", tau=0.5, max_new_tokens=40, api_name="/compare")
    last = job.result(timeout=60)
    assert len(job.outputs()) > 1
    assert last["mars"]["text"] == last["ar"]["text"] == TEXT[:40]
    assert last["mars"]["tokens_per_forward"] == 4.0
    assert last["ar"]["tokens_per_forward"] == 1.0
    # Its passes take as long as AR's and write four tokens: above four the machine was busy.
    assert last["speedup_note"] if last["speedup"] is None else last["speedup"] <= 4
    assert (last["first_divergence"], last["is_same_text"]) == (None, True)
    assert [item["is_same_text"] for item in job.outputs()[:-1]].count(True) == 0


def test_batch_gives_a_result_a_prompt_and_totals(client, backend: BatchBackend) -> None:
    prompts = ["One.", "Two ⏎ with\na line break."]
    last = client.predict(prompts=prompts, batch_size=1, max_new_tokens=60, api_name="/batch")
    assert last["ended"] == "eos"
    assert [result["ended"] for result in last["results"]] == ["eos", "eos"]
    for result in last["results"]:
        assert result["text"] == TEXT[: len(result["text"])]
        assert ROW_BYTES - 7 < len(result["text"].encode()) <= ROW_BYTES
    totals = last["totals"]
    assert totals["num_tokens"] == sum(result["num_tokens"] for result in last["results"])
    assert totals["tokens_per_second"] > 0


@pytest.mark.parametrize(
    ("endpoint", "change", "sentence"),
    [
        ("/generate", {"prompt": " "}, "Type a prompt"),
        ("/compare", {"prompt": "x" * 8001}, "Shorten the prompt"),
        ("/traces", {"prompt": "x", "tau": 2}, "must be less"),
        ("/generate", {"prompt": "x", "method": ["mars"]}, "method must be"),
        ("/traces", {"prompt": "x", "method": "race"}, "method must be"),
        ("/batch", {"prompts": ["x", 5]}, "Prompt 2: The prompt must be text"),
        ("/batch", {"prompts": ["x"], "method": "block"}, "method must be"),
    ],
)
def test_each_endpoint_refuses_what_is_its_own(client, endpoint, change, sentence) -> None:
    with pytest.raises(gradio_client.exceptions.AppError, match=sentence):
        client.predict(**change, api_name=endpoint)


def test_a_cancelled_job_ends_its_run(client, served_handlers, backend: BatchBackend) -> None:
    backend.forward_seconds, backend.num_forwards = 0.05, 0
    job = client.submit(prompt="Say it.", max_new_tokens=400, api_name="/compare")
    assert eventually(lambda: bool(job.outputs()))
    job.cancel()
    engine = served_handlers.engines.get("scripted").engine
    assert eventually(lambda: engine.num_running == 0)
    assert backend.num_forwards < 250  # of 500


def test_every_endpoint_and_parameter_is_described(address, served_handlers) -> None:
    info = httpx.get(f"{address}gradio_api/info").json()["named_endpoints"]
    types = {
        parameter["parameter_name"]: parameter["python_type"]["type"]
        for parameter in info["/generate"]["parameters"]
    }
    assert (types["tau"], types["block_size"]) == ("float", "int | str")
    assert list(info) == ENDPOINTS
    for fn in build(served_handlers).fns.values():
        if f"/{fn.api_name}" in ENDPOINTS:
            description, parameters, _ = get_function_description(fn.fn)
            del parameters["request"]  # gradio's own
            assert description == info[f"/{fn.api_name}"]["description"] != ""
            assert all(parameters.values())


def test_the_example_runs(address, backend, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/api.md").read_text("utf-8")
    match = re.search(r"^# API\n.*?```python\n(.*?)```", text, re.S | re.M)
    assert match
    example = match.group(1)
    assert "http://127.0.0.1:7860" in example
    for endpoint in ENDPOINTS:
        assert f'api_name="{endpoint}"' in example
    exec(compile(example.replace("http://127.0.0.1:7860", address), "api.md", "exec"), {})
    assert "tokens per forward" in capsys.readouterr().out
    read_trace((tmp_path / "run.jsonl").read_text("utf-8").splitlines())
