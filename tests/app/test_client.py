"""The typed endpoint as a program uses it, over the real engine and a scripted backend."""

from __future__ import annotations

import pytest
from scripted_page import ScriptedBackend

gradio_client = pytest.importorskip("gradio_client")


@pytest.fixture(scope="module")
def client(address: str) -> gradio_client.Client:
    return gradio_client.Client(address, verbose=False)


def test_generate_streams_text_and_figures(client, scripted_backend: ScriptedBackend) -> None:
    scripted_backend.forward_seconds = 0.02
    job = client.submit(prompt="Say it.", tau=0.5, max_new_tokens=160, api_name="/generate")
    last = job.result(timeout=60)
    items = job.outputs()
    assert len(items) > 1
    assert all(last["text"].startswith(item["text"]) for item in items)
    assert last["ended"] == "limit"
    assert last["text"].encode() == scripted_backend.text.encode()[:160]
    assert last["num_tokens"] == 160
    assert last["tokens_per_forward"] == 4.0
    assert last["tokens_per_second"] == pytest.approx(160 / last["seconds"], rel=0.01)


def test_methods(client, scripted_backend: ScriptedBackend) -> None:
    scripted_backend.forward_seconds = 0.0
    item = client.predict(prompt="Say it.", method="ar", max_new_tokens=9, api_name="/generate")
    assert item["num_forwards"] == 9


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"prompt": " "}, "Type a prompt"),
        ({"prompt": "x" * 8001}, "Shorten the prompt"),
        ({"tau": 2}, "threshold"),
        ({"tau": "high"}, "threshold"),
        ({"block_size": 3.7}, "whole number"),
        ({"method": "magic"}, "Choose what to run"),
        ({"max_new_tokens": 10**9}, "tokens to generate"),
    ],
)
def test_refusals_are_sentences(client, change: dict[str, object], sentence: str) -> None:
    with pytest.raises(gradio_client.exceptions.AppError, match=sentence):
        client.predict(**{"prompt": "Say it.", **change}, api_name="/generate")


def test_only_generate_is_offered(client) -> None:
    named = client.view_api(return_format="dict", print_info=False)["named_endpoints"]
    assert list(named) == ["/generate"]
    parameters = {
        p["parameter_name"]: p["python_type"]["type"] for p in named["/generate"]["parameters"]
    }
    assert parameters["tau"] == "float"
    assert parameters["block_size"] == "int"
