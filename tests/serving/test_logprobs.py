"""Tokens that are no valid text are spelled by their bytes, so that no two of them look alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted_server import NAME, Oracle, Place, serving

from mars_runtime.engine import Request
from mars_runtime.events import Event, Step
from mars_runtime.serving.answer import spelled
from mars_runtime.settings import DecodeSettings

RIVALS = ((0xE2, 0.2), (0x80, 0.1), (0x99, 0.05))  # which all read U+FFFD on their own


class Fragments(Oracle):
    """Its runners-up are parts of characters."""

    def decode(self, request: Request, settings: Callable[[], DecodeSettings]) -> Iterator[Event]:
        for event in super().decode(request, settings):
            if isinstance(event, Step):
                (row,) = event.rows
                told = tuple(
                    replaced._replace(runners_up=tuple(r for r in RIVALS if r[0] != replaced.token))
                    for replaced in row.proposals
                )
                event = replace(event, rows=(replace(row, proposals=told),))
            yield event


@pytest.fixture(scope="module")
def fragments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with serving(tmp_path_factory.mktemp("fragments"), Fragments(forward_seconds=0.001)) as found:
        yield found


def joined(place: Place, is_stream: bool) -> dict[str, list[Any]]:
    """The logprobs of a text completion."""
    asked: dict[str, Any] = {"model": NAME, "prompt": "Once", "logprobs": 3}
    if not is_stream:
        return place.client.completions.create(**asked).choices[0].logprobs.model_dump()
    found: dict[str, list[Any]] = {}
    for chunk in place.client.completions.create(**asked, stream=True):
        if chunk.choices and chunk.choices[0].logprobs:
            for name, values in chunk.choices[0].logprobs.model_dump().items():
                found[name] = found.get(name, []) + values
    return found


@pytest.mark.parametrize("is_stream", [False, True])
def test_no_two_tokens_of_a_text_completion_share_a_key(fragments: Place, is_stream: bool) -> None:
    found = joined(fragments, is_stream)
    assert {len(best) for best in found["top_logprobs"]} == {3}
    assert set(found["top_logprobs"][0]) == {found["tokens"][0], r"bytes:\xe2", r"bytes:\x80"}
    assert not [token for token in found["tokens"] if "\ufffd" in token]
    assert r"bytes:\xf0" in found["tokens"]  # the beginning of an emoji


@pytest.mark.parametrize("is_stream", [False, True])
def test_tokens_of_a_chat_are_told_by_their_bytes(fragments: Place, is_stream: bool) -> None:
    create = fragments.client.chat.completions.create
    messages: list[Any] = [{"role": "user", "content": "What is it?"}]
    asked: dict[str, Any] = {"model": NAME, "messages": messages}
    asked |= {"logprobs": True, "top_logprobs": 3, "stream": is_stream}
    pieces = create(**asked) if is_stream else [create(**asked)]
    told = [
        entry
        for piece in pieces
        if piece.choices and piece.choices[0].logprobs
        for entry in piece.choices[0].logprobs.content
    ]
    text = b"".join(bytes(entry.bytes) for entry in told).decode()
    assert text == fragments.text_for("What is it?")
    for entry in told:
        assert len({each.token for each in entry.top_logprobs}) == 3
        assert entry.top_logprobs[1].bytes == [0xE2] or entry.bytes == [0xE2]
        assert all(each.token == spelled(bytes(each.bytes)) for each in entry.top_logprobs)
        assert entry.token == spelled(bytes(entry.bytes))


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"Hello", "Hello"),
        ("é".encode(), "é"),
        (b"\xe2\x80", r"bytes:\xe2\x80"),
        (b" \xf0\x9f", r"bytes: \xf0\x9f"),
        (b"\\xe2", r"\xe2"),
        (b"\\\xe2", r"bytes:\x5c\xe2"),
        (b"a\n\xff", r"bytes:a\x0a\xff"),
    ],
)
def test_bytes_are_escaped_as_openai_escapes_them(raw: bytes, text: str) -> None:
    assert spelled(raw) == text


def test_every_byte_and_pair_of_bytes_is_spelled_its_own_way() -> None:
    raws = [bytes([first, *rest]) for first in range(256) for rest in [(), *zip(range(256))]]
    assert len(set(map(spelled, raws))) == len(raws)


def test_the_tokens_of_the_chat_model_are_spelled_their_own_ways(smollm2_file: Path) -> None:
    from mars_runtime.model.load import load_checkpoint

    tokenizer = load_checkpoint("mars-smollm2").tokenizer
    found = [spelled(tokenizer.token_bytes(token)) for token in range(tokenizer.size)]
    assert len(set(found)) == len(found)
