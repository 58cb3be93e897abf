"""``min_tokens`` and ``ignore_eos`` by OpenAI's own client, over the real
decoder and a scripted model."""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any

import pytest
from helpers import ScriptedModel
from scripted_server import ASK, Place, chat, complete, respond, said, serving

from tests.engine.test_company import ModelBackend
from tests.scripted_text import write_tokenizer

SIZE, EOS = 260, 257
WAYS: list[dict[str, Any]] = [
    {"method": "ar"},
    {"block_size": 4, "tau": 0.3, "mask_layout": "every", "lookup": True},
]
"""Each writes the text of AR."""


def script(prefix: tuple[int, ...]) -> list[float]:
    """Return logits of one letter by position, its capital (0.5 less), a digit (2 less) and, at
    each fifth position, EOS above all."""
    logits = [-20.0] * SIZE
    letter = len(prefix) % 26
    logits[ord("a") + letter], logits[ord("A") + letter] = 6.0, 5.5
    logits[ord("0") + letter % 10] = 4.0
    if len(prefix) % 5 == 0:
        logits[EOS] = 9.0
    return logits


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Served with the scripted model."""
    tokenizer = write_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    model = ScriptedModel(script, vocab_size=SIZE, max_positions=4000)
    backend: Any = ModelBackend(model, tokenizer, 2000)
    with serving(tmp_path_factory.mktemp("server"), backend) as server:
        yield server


def ask(
    place: Place, path: str, limit: int = 40, *, is_stream: bool = False, **fields: Any
) -> tuple[str, int, str]:
    """Return the text, the number of tokens and why the answer ended."""
    options = {"stream": True, "stream_options": {"include_usage": True}} if is_stream else {}
    if path == "responses":
        actual: Any = respond(place, max_output_tokens=limit, stream=is_stream, extra_body=fields)
        response = list(actual)[-1].response if is_stream else actual
        reason = "stop" if response.status == "completed" else "length"
        return response.output_text, response.usage.output_tokens, reason
    create, request = (complete, "Go!") if path == "completions" else (chat, ASK)
    answer = said(create(place, request, max_tokens=limit, extra_body=fields, **options))
    return answer.texts[0], answer.last.usage.completion_tokens, answer.reasons[0]


every_way = pytest.mark.parametrize("way", WAYS)
every_request = pytest.mark.parametrize(
    ("path", "is_stream"), [("chat/completions", True), ("completions", False), ("responses", True)]
)


@every_request
@every_way
def test_eos_comes_only_behind_the_minimum(
    place: Place, path: str, is_stream: bool, way: dict[str, Any]
) -> None:
    """EOS would be every fifth token, so an answer ends within five tokens of the minimum."""
    _, usual, reason = ask(place, path, **way)
    assert (usual <= 5, reason) == (True, "stop")
    for number in (0, usual - 1, usual, usual + 4, usual + 5):
        text, count, reason = ask(place, path, is_stream=is_stream, min_tokens=number, **way)
        wanted = usual + 5 * (-(-(number + 1 - usual) // 5) if number >= usual else 0)
        assert (count, len(text), reason) == (wanted, wanted - 1, "stop")
    assert ask(place, path, min_tokens=100, **way)[1:] == (40, "length")


@every_request
@every_way
def test_an_ignored_eos_counts_and_has_no_text(
    place: Place, path: str, is_stream: bool, way: dict[str, Any]
) -> None:
    text, count, reason = ask(place, path, is_stream=is_stream, ignore_eos=True, **way)
    assert (count, len(text), reason) == (40, 32, "length")
    assert set(text) <= set(string.ascii_lowercase)


@every_request
@every_way
def test_stops_count_behind_the_minimum(
    place: Place, path: str, is_stream: bool, way: dict[str, Any]
) -> None:
    settings = {"ignore_eos": True, "min_tokens": 10, **way}
    text = ask(place, path, **settings)[0]
    first, later = text[1], text[20]
    assert text.index(later) == 20
    for stop in ({"stop": [first, later]}, {"stop_token_ids": [ord(first), ord(later)]}):
        actual = ask(place, path, is_stream=is_stream, **settings, **stop)
        assert (actual[0], actual[2]) == (text[:20], "stop")
