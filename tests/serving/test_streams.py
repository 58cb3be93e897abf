"""Streams without text, with line breaks of every kind, and with tokens that are no valid text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted_server import ASK, NAME, Oracle, complete, said, serving

from mars_runtime.engine import Request
from mars_runtime.runs.events import Event, Step
from mars_runtime.serving.requests import DEFAULT_CAPS, Caps
from mars_runtime.settings import DecodeSettings
from tests.engine.scripted import eventually

# No proxy closes a stream that is queued or in prefill: it sends comments.

BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": ASK, "max_tokens": 4},
    "responses": {"input": "Once", "max_output_tokens": 4},
}


def test_streams_without_text_send_comments(tmp_path: Path) -> None:
    """nginx waits 60 s by default, and some proxies only 4 s."""
    assert DEFAULT_CAPS.keep_alive_seconds < 4
    backend, caps = Oracle(is_held=True), Caps(keep_alive_seconds=0.05)
    with serving(tmp_path, backend, max_runs=1, caps=caps) as place, ThreadPoolExecutor() as pool:

        def read(path: str) -> str:
            body, text = {"model": NAME, "stream": True, **BODIES[path]}, ""
            with place.http.stream("POST", f"/v1/{path}", json=body) as stream:
                for part in stream.iter_text():
                    text += part
                    heard[path] = text.count(": keep-alive\n\n")
            return text

        heard = dict.fromkeys(BODIES, 0)
        streams = [pool.submit(read, path) for path in BODIES]
        assert eventually(lambda: min(heard.values()) >= 3)
        backend.released.set()
        chat, response = (stream.result() for stream in streams)
    assert chat.endswith("data: [DONE]\n\n")
    assert "response.incomplete" in response


# JSON stays on one line for any text of a model: many clients split at every character that Unicode
# calls a line break (httpx and ``str.splitlines`` do).

WRITTEN = "next\x85line\u2028paragraph\u2029form\x0cfeed\x1cend \N{SNOWMAN} \N{GRINNING FACE}"
SAY = [{"role": "user", "content": WRITTEN}]


class LineBreaker(Oracle):
    def answer_to(self, prompt_ids: Sequence[int]) -> str:
        return WRITTEN


def text_of(chunk: dict[str, Any]) -> str:
    if "choices" not in chunk:
        return str(chunk.get("delta", ""))
    (choice,) = chunk["choices"]
    return str(choice["text"] if "text" in choice else choice["delta"].get("content", ""))


REQUESTS: list[tuple[str, dict[str, Any], str]] = [
    ("chat/completions", {"messages": SAY}, WRITTEN),
    ("chat/completions", {"messages": SAY, "logprobs": True}, WRITTEN),
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


# Log probabilities of parts of characters: no two runners-up look alike.

RIVALS = ((0xE2, 0.2), (0x80, 0.1), (0x99, 0.05))  # each of which reads U+FFFD by itself


class Fragments(Oracle):
    """Its runners-up are parts of characters; the first is likelier than what is written."""

    def decode(self, request: Request, settings: Callable[[], DecodeSettings]) -> Iterator[Event]:
        for event in super().decode(request, settings):
            if isinstance(event, Step):
                (row,) = event.rows
                slots = tuple(
                    slot._replace(
                        confidence=0.15, runners_up=tuple(r for r in RIVALS if r[0] != slot.token)
                    )
                    for slot in row.proposals
                )
                event = replace(event, rows=(replace(row, proposals=slots),))
            yield event


@pytest.mark.parametrize("is_stream", [False, True])
def test_the_sampled_token_is_among_the_top_ones(tmp_path: Path, is_stream: bool) -> None:
    backend = Fragments(forward_seconds=0.0)
    with serving(tmp_path, backend) as place:
        for number in range(4):
            answer = said(complete(place, "Once", logprobs=number, stream=is_stream))
            given = [c.logprobs for chunk in answer.chunks for c in chunk.choices if c.logprobs]
            rivals = [r"bytes:\xe2", r"bytes:\x80"][: (0, 1, 1, 2)[number]]
            top = [*rivals[:1], given[0].tokens[0], *rivals[1:]]
            assert list(given[0].top_logprobs[0]) == top
            tokens = [token for logprobs in given for token in logprobs.tokens]
            assert r"bytes:\xf0" in tokens  # the beginning of an emoji
            assert not any("\ufffd" in token for token in tokens)
            for logprobs in given:
                shares = zip(
                    logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True
                )
                assert all(top[token] == share for token, share, top in shares)
