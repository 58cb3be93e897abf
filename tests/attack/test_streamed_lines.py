"""Streamed JSON stays on one line for any text of a model: many clients split at every character
that Unicode calls a line break (httpx and ``str.splitlines`` do).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai")

from tests.serving.scripted_server import NAME, Oracle, serving

WRITTEN = "next\x85line\u2028paragraph\u2029form\x0cfeed\x1cend \N{SNOWMAN} \N{GRINNING FACE}"
ASK = [{"role": "user", "content": WRITTEN}]


class LineBreaker(Oracle):
    """Writes every kind of line break."""

    def answer_to(self, prompt_ids: Sequence[int]) -> str:
        return WRITTEN


def text_of(chunk: dict[str, Any]) -> str:
    """Return what a chunk or an event adds."""
    if "choices" not in chunk:
        return str(chunk.get("delta", ""))
    (choice,) = chunk["choices"]
    return str(choice["text"] if "text" in choice else choice["delta"].get("content", ""))


REQUESTS: list[tuple[str, dict[str, Any], str]] = [
    ("chat/completions", {"messages": ASK}, WRITTEN),
    ("chat/completions", {"messages": ASK, "logprobs": True}, WRITTEN),
    ("completions", {"prompt": WRITTEN, "echo": True}, WRITTEN * 2),
    ("responses", {"input": WRITTEN, "instructions": WRITTEN, "metadata": {"a": WRITTEN}}, WRITTEN),
]


def test_a_stream_is_read_line_by_line(tmp_path: Path) -> None:
    with serving(tmp_path, LineBreaker(forward_seconds=0.0)) as place:
        for path, body, wanted in REQUESTS:
            body |= {"model": NAME, "stream": True}
            with place.http.stream("POST", f"/v1/{path}", json=body) as answer:
                lines = [line for line in answer.iter_lines() if line]
            assert all(line.isascii() for line in lines)
            assert all(line.startswith(("data: ", "event: ")) for line in lines)
            data = [line.removeprefix("data: ") for line in lines if line.startswith("data: {")]
            assert "".join(text_of(json.loads(chunk)) for chunk in data) == wanted
