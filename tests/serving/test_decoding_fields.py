"""``top_k``, ``min_p``, ``min_tokens`` and ``ignore_eos`` by OpenAI's own client, over the real
decoder and a scripted model."""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from helpers import ScriptedModel
from scripted_server import NAME, Place, serving

from mars_runtime.events import Event, Step
from mars_runtime.settings import SETTINGS
from tests.engine.test_company import ModelBackend
from tests.scripted_text import write_tokenizer

SIZE, EOS = 260, 257
PATHS = ["chat/completions", "completions", "responses"]
WAYS: list[dict[str, Any]] = [
    {"method": "ar"},
    {"method": "jacobi", "block_size": 4},
    {"block_size": 4, "tau": 0.0},
    {"block_size": 4, "tau": 0.3, "groups": "every", "lookup": True},
]
"""Each writes the text of AR."""
HOT = {"temperature": 1.0, "ignore_eos": True}


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
    with serving(tmp_path_factory.mktemp("server"), backend) as found:
        yield found


def ask(
    place: Place, path: str, limit: int = 40, *, is_stream: bool = False, **own: Any
) -> tuple[str, int, str]:
    """Return the text, the number of tokens and why the answer ended."""
    client = place.client
    if path == "responses":
        asked: dict[str, Any] = {"model": NAME, "input": "Go", "max_output_tokens": limit}
        found: Any = client.responses.create(**asked, stream=is_stream, extra_body=own)
        response = list(found)[-1].response if is_stream else found
        reason = "stop" if response.status == "completed" else "length"
        return response.output_text, response.usage.output_tokens, reason
    asked = {"model": NAME, "max_tokens": limit, "extra_body": own}
    if is_stream:
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
    if path == "completions":
        found = client.completions.create(prompt="Go!", **asked)
    else:
        found = client.chat.completions.create(
            messages=[{"role": "user", "content": "Go"}], **asked
        )
    chunks = list(found) if is_stream else [found]
    choices = [choice for chunk in chunks for choice in chunk.choices]
    shown = [getattr(each, "delta", None) or getattr(each, "message", None) for each in choices]
    texts = [
        (said.content if said is not None else choice.text) or ""
        for said, choice in zip(shown, choices, strict=True)
    ]
    return "".join(texts), chunks[-1].usage.completion_tokens, choices[-1].finish_reason


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("way", WAYS)
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


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_an_ignored_eos_counts_and_has_no_text(
    place: Place, path: str, is_stream: bool, way: dict[str, Any]
) -> None:
    text, count, reason = ask(place, path, is_stream=is_stream, ignore_eos=True, **way)
    assert (count, len(text), reason) == (40, 32, "length")
    assert set(text) <= set(string.ascii_lowercase)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("way", WAYS)
def test_filters_keep_the_best_tokens(place: Place, path: str, way: dict[str, Any]) -> None:
    best = ask(place, path, ignore_eos=True, **way)
    found = {
        name: "".join(ask(place, path, seed=seed, **HOT, **way, **own)[0] for seed in range(8))
        for name, own in {
            "all": {},
            "off": {"top_k": -1, "min_p": 0},
            "zero": {"top_k": 0},
            "two": {"top_k": 2},
            "share": {"min_p": 0.5},
            "many": {"top_k": 2**31 - 1},
        }.items()
    }
    assert any(character.isdigit() for character in found["all"])
    assert found["all"] == found["off"] == found["zero"] == found["many"]
    for name in ("two", "share"):
        assert found[name].isalpha()
        assert not found[name].islower()
    for own in ({"top_k": 1}, {"min_p": 1}, {"min_p": 0.9}):
        assert ask(place, path, seed=3, **HOT, **way, **own) == best
    assert ask(place, path, ignore_eos=True, top_k=2, min_p=0.2, **way) == best  # temperature 0


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_stops_count_behind_the_minimum(
    place: Place, path: str, is_stream: bool, way: dict[str, Any]
) -> None:
    own = {"ignore_eos": True, "min_tokens": 10, **way}
    text = ask(place, path, **own)[0]
    first, later = text[1], text[20]
    assert text.index(later) == 20
    for stop in ({"stop": [first, later]}, {"stop_token_ids": [ord(first), ord(later)]}):
        found = ask(place, path, is_stream=is_stream, **own, **stop)
        assert (found[0], found[2]) == (text[:20], "stop")


def test_they_reach_a_run_of_its_own(place: Place) -> None:
    seen: list[Event] = []
    place.model.engine.observe(lambda run, event: seen.append(event))
    own = {"top_k": 7, "min_p": 0.25, "min_tokens": 2, "ignore_eos": True, "method": "ar"}
    lane = {"prompt_ids": [104], "max_new_tokens": 1, **own}
    assert place.http.post("/v1/runs", json={"model": NAME, "lanes": [lane]}).status_code == 200
    (step,) = (event for event in seen if isinstance(event, Step))
    assert {name: getattr(step.rows[0].settings, name) for name in own} == own


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("top_k", (-2, 2**31, 1.5, "4", True)),
        ("min_p", (-0.1, 1.5, "0", True)),
        ("min_tokens", (-1, 4097, 1.5, "4", False)),
        ("ignore_eos", (0, 1, "true", [])),
    ],
)
@pytest.mark.parametrize("path", PATHS)
def test_a_wrong_value_is_refused(place: Place, path: str, name: str, values: tuple[Any]) -> None:
    for value in values:
        with pytest.raises(openai.BadRequestError) as error:
            ask(place, path, method="ar", **{name: value})
        assert error.value.param == name
        assert SETTINGS[name].refusal in str(error.value)
