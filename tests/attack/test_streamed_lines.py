"""Streamed JSON stays on one line for any text of a model: many clients split at every character
that Unicode calls a line break (httpx and ``str.splitlines`` do).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

pytest.importorskip("openai")

from tests.serving.scripted_server import NAME, Oracle, Place, serving

WRITTEN = "next\x85line\u2028paragraph\u2029form\x0cfeed\x1cend \N{SNOWMAN} \N{GRINNING FACE}"
ASK = [{"role": "user", "content": WRITTEN}]


class LineBreaker(Oracle):
    """Writes every kind of line break."""

    def answer_to(self, prompt_ids: Sequence[int]) -> str:
        """The same for all."""
        return WRITTEN


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    backend = LineBreaker(forward_seconds=0.0)
    with serving(tmp_path_factory.mktemp("lines"), backend) as server:
        yield server


def events(place: Place, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The data of a stream, read line by line."""
    with place.http.stream("POST", path, json={"model": NAME, **body}) as answer:
        for line in answer.iter_lines():
            field, _, value = line.partition(": ")
            assert field in ("", "data", "event"), line
            assert line.isascii()
            if field == "data" and value != "[DONE]":
                yield json.loads(value)


def text_of(chunk: dict[str, Any]) -> str:
    """Return what a chunk or an event adds."""
    if "choices" not in chunk:
        added: str = chunk.get("delta", "")
        return added
    (choice,) = chunk["choices"]
    return str(choice["text"] if "text" in choice else choice["delta"].get("content", ""))


@pytest.mark.parametrize(
    ("path", "body", "wanted"),
    [
        ("chat/completions", {"messages": ASK}, WRITTEN),
        ("chat/completions", {"messages": ASK, "logprobs": True}, WRITTEN),
        ("completions", {"prompt": WRITTEN, "echo": True}, WRITTEN * 2),
        ("responses", {"input": WRITTEN, "instructions": WRITTEN, "metadata": {"a": WRITTEN}},
         WRITTEN),
    ],
)  # fmt: skip
def test_a_stream_is_read_line_by_line(
    place: Place, path: str, body: dict[str, Any], wanted: str
) -> None:
    chunks = list(events(place, f"/v1/{path}", {**body, "stream": True}))
    assert "".join(map(text_of, chunks)) == wanted
    if path == "responses":
        assert chunks[-1]["response"]["instructions"] == WRITTEN
