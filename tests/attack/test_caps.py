"""The caps of a page hold in every entry: its endpoint for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.handlers import Handlers
from tests.app.scripted_page import ScriptedBackend, make_handlers, page_served

MOST_CHARS, MOST_TOKENS = 100, 64
SHORT, LONG = "x" * MOST_CHARS, "x" * (MOST_CHARS + 1)
MODEL = "scripted"


@pytest.fixture(scope="module")
def handlers(tmp_path_factory: pytest.TempPathFactory) -> Handlers:
    folder = tmp_path_factory.mktemp("capped")
    backend = ScriptedBackend("word " * 400, forward_seconds=0.0)
    caps = {"max_new_tokens": MOST_TOKENS, "max_prompt_chars": MOST_CHARS}
    return make_handlers(folder, backend, port=0, **caps)


@pytest.fixture(scope="module")
def http(handlers: Handlers) -> Iterator[httpx.Client]:
    with page_served(handlers) as address, httpx.Client(base_url=address, timeout=60) as client:
        yield client


def said(*texts: str) -> list[dict[str, str]]:
    """A conversation that begins with the user."""
    return [{"role": ("user", "assistant")[n % 2], "content": it} for n, it in enumerate(texts)]


ENTRIES: dict[str, Any] = {
    "chat/completions": lambda text: {"messages": said(text)},
    "chat/completions?turn": lambda text: {"messages": said(text, "Yes.", SHORT)},
    "chat/completions?answer": lambda text: {"messages": said(SHORT, text)},
    "completions": lambda text: {"prompt": text},
    "completions?second": lambda text: {"prompt": ["one", text]},
    "completions?ids": lambda text: {"prompt": list(text.encode())},
    "responses": lambda text: {"input": text},
    "responses?system": lambda text: {"input": SHORT, "instructions": text},
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_endpoint_of_a_page_takes_no_longer_prompt(http: httpx.Client, entry: str) -> None:
    fits, refused = (
        http.post(f"/v1/{entry}", json={"model": MODEL, **ENTRIES[entry](text)})
        for text in (SHORT, LONG)
    )
    assert fits.status_code == 200, fits.text
    assert refused.status_code == 400
    sentence = refused.json()["error"]["message"]
    assert sentence == "Shorten the prompt to at most 100 characters, got 101."
