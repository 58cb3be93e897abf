"""A page's limit of a prompt's length holds in every entry of its endpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.app.scripted_page import ScriptedBackend, make_handlers, page_served

SHORT = "x" * 100


def said(*texts: str) -> list[dict[str, str]]:
    """A conversation that begins with the user."""
    return [{"role": ("user", "assistant")[n % 2], "content": it} for n, it in enumerate(texts)]


def entries(text: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("chat/completions", {"messages": said(text)}),
        ("chat/completions", {"messages": said(text, "Yes.", SHORT)}),
        ("chat/completions", {"messages": said(SHORT, text)}),
        ("completions", {"prompt": text}),
        ("completions", {"prompt": ["one", text]}),
        ("completions", {"prompt": list(text.encode())}),
        ("responses", {"input": text}),
        ("responses", {"input": SHORT, "instructions": text}),
    ]


def test_the_endpoint_of_a_page_takes_no_longer_prompt(tmp_path: Path) -> None:
    backend = ScriptedBackend("word", forward_seconds=0.0)
    handlers = make_handlers(tmp_path, backend, port=0, max_prompt_chars=len(SHORT))
    with page_served(handlers) as url, httpx.Client(base_url=f"{url}v1/", timeout=60) as client:
        for text, status in ((SHORT, 200), (SHORT + "x", 400)):
            for path, body in entries(text):
                answer = client.post(path, json={"model": "scripted", **body})
                assert answer.status_code == status, (path, body, answer.text)
