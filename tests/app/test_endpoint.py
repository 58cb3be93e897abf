"""The page's OpenAI-compatible endpoint: the same engines, caps and checkpoints as the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from scripted_page import TEXT, ScriptedBackend, make_handlers, page_served
from visitor import Visitor, assert_serves

openai = pytest.importorskip("openai")
ASK = [{"role": "user", "content": "Say it."}]


@pytest.fixture
def client(address: str, scripted_backend: ScriptedBackend) -> Iterator[openai.OpenAI]:
    scripted_backend.forward_seconds = 0.001
    with openai.OpenAI(base_url=f"{address}v1", api_key="none", max_retries=0) as made:
        yield made


def test_an_answer_and_a_stream(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["scripted", "absent"]
    create = client.chat.completions.create
    whole = create(model="scripted", messages=ASK, max_tokens=40)
    assert whole.choices[0].message.content == TEXT[:40]
    chunks = create(model="scripted", messages=ASK, max_tokens=40, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT[:40]
    whole = client.responses.create(model="scripted", input="Say it.", max_output_tokens=40)
    assert whole.output_text == TEXT[:40]


def test_a_checkpoint_that_cannot_be_had_is_a_sentence(client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as refused:
        client.chat.completions.create(model="absent", messages=ASK)
    assert refused.value.status_code == 503
    assert refused.value.body["message"].endswith(".")


def test_health_and_metrics_see_the_runs_of_the_page(address: str, client: openai.OpenAI) -> None:
    visitor = Visitor(address)
    assert_serves(visitor)
    assert httpx.get(f"{address}health").json() == {"status": "ok"}
    lines = httpx.get(f"{address}metrics").text.splitlines()
    (reported,) = (line for line in lines if line.startswith("mars:generation_tokens_total"))
    assert 'model_name="scripted"' in reported
    assert float(reported.split()[-1]) > 0


def test_nothing_else_is_opened(address: str) -> None:
    for path in ("v1", "v1/", "v1/files", "v1/embeddings", "health/x", "metrics2"):
        assert httpx.get(address + path).status_code == 404
    assert httpx.get(f"{address}v1/models/").status_code == 200  # no redirect


@pytest.mark.parametrize("allowed", ["http://localhost:9", ""])
def test_other_origins_call_where_they_are_allowed(tmp_path: Path, allowed: str) -> None:
    handlers = make_handlers(
        tmp_path,
        ScriptedBackend(TEXT),
        port=0,
        api_key="a-secret-of-its-own",
        allowed_origins=allowed,
    )
    asked = {"origin": "http://localhost:9", "access-control-request-method": "POST"}
    with page_served(handlers) as url:
        answer = httpx.options(f"{url}v1/chat/completions", headers=asked)
        assert answer.headers.get("access-control-allow-origin", "") == allowed
        assert httpx.get(f"{url}v1/models", headers=asked).status_code == 401
