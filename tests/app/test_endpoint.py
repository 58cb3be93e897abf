"""The page's OpenAI-compatible endpoint: the same engines, caps and checkpoints as the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from browser import needs_browser, shared
from environments import free_port
from scripted_page import TEXT, ScriptedBackend, make_handlers, page_served
from visitor import Visitor, assert_serves

from app.handlers import Handlers

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


def test_an_address_gets_no_more_than_its_share(
    client: openai.OpenAI, scripted_backend: ScriptedBackend, served_handlers: Handlers
) -> None:
    scripted_backend.forward_seconds = 0.05
    share = served_handlers.engines.settings.max_runs_per_address
    create = client.chat.completions.create
    streams = [create(model="scripted", messages=ASK, stream=True) for _ in range(share)]
    assert next(iter(streams[0])).choices[0].delta.role == "assistant"  # while it is written
    with pytest.raises(openai.RateLimitError, match="your requests") as refused:
        create(model="scripted", messages=ASK)
    assert refused.value.response.headers["retry-after"] == "1"
    for stream in streams:
        stream.close()


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


KEY = "a-secret-of-its-own"
CALL = """async address => {
  const options = {
    method: "POST",
    headers: {
      "content-type": "application/json", authorization: "Bearer a-secret-of-its-own",
      "x-stainless-os": "Linux",
    },
    body: JSON.stringify({
      model: "scripted", max_tokens: 8, messages: [{role: "user", content: "Say it."}],
    }),
  };
  try {
    const answer = await fetch(address, options);
    return (await answer.json()).choices[0].message.content;
  } catch (error) {
    return error.name;
  }
}"""
"""A call of the endpoint from a script, as OpenAI's client makes it."""


@needs_browser
@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_page_of_another_origin_calls_where_its_origin_is_allowed(
    tmp_path: Path, is_allowed: bool
) -> None:
    """A browser takes another name of this machine for another origin."""
    port = free_port()
    origins = f"http://localhost:{port}" if is_allowed else ""
    handlers = make_handlers(
        tmp_path, ScriptedBackend(TEXT), port=port, api_key=KEY, allowed_origins=origins
    )
    with page_served(handlers):
        page = shared().browser.new_page()
        page.goto(f"http://localhost:{port}/docs")
        response = page.evaluate(CALL, f"http://127.0.0.1:{port}/v1/chat/completions")
        page.close()
    assert response == (TEXT[:8] if is_allowed else "TypeError")
