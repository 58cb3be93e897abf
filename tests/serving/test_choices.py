"""Several answers to a request, prompts in lists, echoed prompts, and answers that are continued,
by OpenAI's own client."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from scripted_server import NAME, Oracle, Place, eventually, serving

from mars_runtime.events import Event, Step
from mars_runtime.serving.answer import LOWERED
from mars_runtime.serving.requests import Caps

ASK: list[Any] = [{"role": "user", "content": "What is it?"}]
BOLD = {"tau": 0.0, "lossless": False, "block_size": 7}


def chat(place: Place, messages: Any = ASK, **more: Any) -> Any:
    return place.client.chat.completions.create(model=NAME, messages=messages, **more)


def complete(place: Place, prompt: Any, **more: Any) -> Any:
    return place.client.completions.create(model=NAME, prompt=prompt, **more)


def text_of(place: Place, prompt: str) -> str:
    """What the backend writes behind a plain text."""
    return place.backend.answer_to(place.model.tokenizer.encode(prompt))


def texts_by_index(chunks: list[Any]) -> dict[int, str]:
    """The streamed text of each choice."""
    found: dict[int, str] = defaultdict(str)
    for chunk in chunks:
        for choice in chunk.choices:
            delta = getattr(choice, "delta", None)
            found[choice.index] += (delta.content or "") if delta else choice.text
    return found


# n.


def test_answers_to_one_prompt_have_seeds_that_rise(place: Place) -> None:
    answer = chat(place, n=3, temperature=1, seed=7, max_tokens=6)
    text = place.text_for("What is it?")
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert [choice.message.content for choice in answer.choices] == [text[:6]] * 3
    assert [choice.finish_reason for choice in answer.choices] == ["length"] * 3
    assert [choice.mars["seed"] for choice in answer.choices] == [7, 8, 9]
    assert not hasattr(answer, "mars")
    num_prompt = len(place.model.tokenizer.encode_prompt("What is it?"))
    assert answer.usage.prompt_tokens == num_prompt
    assert answer.usage.completion_tokens == 18
    assert answer.usage.total_tokens == num_prompt + 18


@pytest.mark.parametrize("has_usage", [False, True])
def test_streamed_answers_carry_their_index(place: Place, has_usage: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if has_usage else {}
    chunks = list(chat(place, n=3, seed=1, stream=True, extra_body=BOLD, **options))
    text = place.text_for("What is it?")
    assert texts_by_index(chunks) == {0: text, 1: text, 2: text}
    ended = [choice for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert sorted(choice.index for choice in ended) == [0, 1, 2]
    assert sorted(choice.mars["seed"] for choice in ended) == [1, 2, 3]
    roles = [c.index for chunk in chunks for c in chunk.choices if c.delta.role == "assistant"]
    assert roles == [0, 1, 2]
    assert len({chunk.id for chunk in chunks}) == 1
    whole = chat(place, n=3, seed=1, extra_body=BOLD)
    usages = [chunk.usage for chunk in chunks if chunk.usage]
    assert usages == ([whole.usage] if has_usage else [])
    assert not chunks[-1].choices if has_usage else chunks[-1].choices


def test_each_answer_is_cut_at_its_own_stop(place: Place) -> None:
    text = place.text_for("What is it?")
    answer = chat(place, n=4, stop="☃", extra_body=BOLD)
    assert {choice.message.content for choice in answer.choices} == {text[: text.index("☃")]}
    assert answer.usage.completion_tokens == 4 * len(text[: text.index("☃") + 1].encode())
    assert eventually(lambda: place.num_open == 0)


def test_best_of_may_say_the_same_as_n(place: Place) -> None:
    assert len(complete(place, "Once", n=2, best_of=2, max_tokens=2).choices) == 2


def test_more_answers_than_the_engine_holds_wait_for_each_other(tmp_path: Path) -> None:
    with serving(tmp_path, Oracle(forward_seconds=0.001), max_runs=2, max_waiting=2) as place:
        answer = complete(place, ["a", "b", "c"], n=5, max_tokens=5)
        wanted = [text_of(place, prompt)[:5] for prompt in "abc" for _ in range(5)]
        assert [choice.text for choice in answer.choices] == wanted
        assert eventually(lambda: place.num_open == 0)


@pytest.fixture
def few(tmp_path: Path) -> Iterator[Place]:
    """Two runs of an address at once; a forward takes 20 ms."""
    backend, caps = Oracle(forward_seconds=0.02), Caps(max_runs_per_address=2)
    with serving(tmp_path, backend, caps=caps) as found:
        yield found


def test_an_address_has_no_more_runs_at_once_than_its_share(few: Place) -> None:
    found: list[Any] = []
    asking = threading.Thread(target=lambda: found.append(chat(few, n=5, max_tokens=8)))
    asking.start()
    most, num_refused = 0, 0
    while asking.is_alive():
        most = max(most, few.num_open)
        if few.num_open == 2:
            with pytest.raises(openai.RateLimitError):
                chat(few, max_tokens=1)
            num_refused += 1
        time.sleep(0.01)
    assert len(found[0].choices) == 5
    assert most == 2
    assert num_refused
    assert eventually(lambda: few.num_open == 0)
    assert chat(few, n=2, max_tokens=1).usage.completion_tokens == 2  # the places are free again


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_client_that_leaves_ends_all_answers(few: Place, is_stream: bool) -> None:
    if is_stream:
        stream = chat(few, n=6, stream=True)
        next(iter(stream))
        assert eventually(lambda: few.num_open == 2)
        stream.close()
    else:
        with pytest.raises(openai.APITimeoutError):
            chat(few, n=6, timeout=0.3)
    assert eventually(lambda: few.num_open == 0, 1.0)
    before = few.backend.num_forwards
    time.sleep(0.2)
    assert few.backend.num_forwards == before, "those that waited do not begin"


# Lists of prompts, and echo.


def test_prompts_of_a_list_are_answered_in_their_order(place: Place) -> None:
    ids = place.model.tokenizer.encode("Twice")
    for prompts in (["Once", "Twice"], [place.model.tokenizer.encode("Once"), ids], ["Once", ids]):
        answer = complete(place, prompts)
        assert [choice.index for choice in answer.choices] == [0, 1]
        assert [each.text for each in answer.choices] == [
            text_of(place, p) for p in ("Once", "Twice")
        ]
        assert answer.usage.prompt_tokens == len("OnceTwice")
        num_written = sum(len(text_of(place, p).encode()) + 1 for p in ("Once", "Twice"))
        assert answer.usage.completion_tokens == num_written
        chunks = list(complete(place, prompts, stream=True))
        assert texts_by_index(chunks) == {0: text_of(place, "Once"), 1: text_of(place, "Twice")}


def test_answers_to_a_prompt_stand_together(place: Place) -> None:
    answer = complete(place, ["Once", "Twice"], n=2, max_tokens=3, logprobs=1)
    first, second = text_of(place, "Once")[:3], text_of(place, "Twice")[:3]
    assert [choice.text for choice in answer.choices] == [first, first, second, second]
    assert all(len(choice.logprobs.tokens) == 3 for choice in answer.choices)
    assert answer.usage.prompt_tokens == len("OnceTwice")


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_echoed_prompt_comes_first_and_cuts_nothing(place: Place, is_stream: bool) -> None:
    ids = place.model.tokenizer.encode("Twice ☃")
    asked: dict[str, Any] = {"prompt": ["Once", ids], "echo": True, "stop": "ce", "max_tokens": 5}
    found = place.client.completions.create(model=NAME, stream=is_stream, **asked)
    if is_stream:
        texts = list(texts_by_index(list(found)).values())
    else:
        texts = [choice.text for choice in found.choices]
        assert found.usage.completion_tokens == 10
    wanted = [prompt + text_of(place, prompt)[:5] for prompt in ("Once", "Twice ☃")]
    assert texts == wanted
    assert not any("ce" in text_of(place, prompt)[:5] for prompt in ("Once", "Twice ☃"))


# Limits.


@pytest.mark.parametrize("limit", [-1, None])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_no_limit_is_as_many_as_fit(tmp_path: Path, name: str, limit: int | None) -> None:
    class Long(Oracle):
        def answer_to(self, prompt_ids: Any) -> str:
            return "x" * 1000

    backend = Long(forward_seconds=0.0)
    with serving(tmp_path, backend, caps=Caps(max_new_tokens=600)) as place:
        for capacity, wanted in ((100_000, 600), (400, 400)):
            backend.capacity = capacity
            num_prompt = len(place.model.tokenizer.encode_prompt("What is it?"))
            body = {"model": NAME, "messages": ASK, name: limit}
            used = place.http.post("/v1/chat/completions", json=body).json()["usage"]
            room = capacity - num_prompt
            assert used["completion_tokens"] == min(wanted, room)
        backend.capacity = 100_000
        both = {"max_tokens": 5, "max_completion_tokens": None}
        assert chat(place, extra_body=both).usage.completion_tokens == 5
        assert chat(place).usage.completion_tokens == 256, "where nothing is said"


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_limit_above_the_cap_is_lowered_with_a_note(
    tmp_path: Path, name: str, is_stream: bool
) -> None:
    """Clients send their own defaults; what also fits counts."""
    backend = Oracle(forward_seconds=0.0)
    with serving(tmp_path, backend, caps=Caps(max_new_tokens=20)) as place:

        def mars_of(limit: int) -> Any:
            found = chat(place, extra_body={name: limit}, stream=is_stream)
            return (list(found)[-1] if is_stream else found).mars

        num_prompt = len(place.model.tokenizer.encode_prompt("What is it?"))
        for capacity, most in ((100_000, 20), (num_prompt + 10, 10)):
            backend.capacity = capacity
            for limit in (8192, 2**31 - 1):
                mars = mars_of(limit)
                assert mars["note"] == LOWERED.format(limit, most)
                assert mars["ended"] == "limit"
        assert mars_of(10)["note"] == ""


@pytest.mark.parametrize("seed", [-(2**63), -1, 2**31, 2**63 - 1])
def test_a_seed_is_any_int64(place: Place, seed: int) -> None:
    """The one that is reported gives the same answer."""
    reported = chat(place, seed=seed, temperature=1, max_tokens=2).mars["seed"]
    assert 0 <= reported < 2**31
    again = chat(place, seed=reported, temperature=1, max_tokens=2, n=2)
    assert [each.mars["seed"] for each in again.choices] == [reported, (reported + 1) % 2**31]


REFUSED = {
    "guided_json": {"type": "object"},
    "guided_regex": "a+",
    "guided_choice": ["yes", "no"],
    "guided_grammar": "root ::= x",
    "structured_outputs": {"choice": ["yes"]},
    "grammar": "root ::= x",
    "json_schema": {"type": "object"},
    "regex": "a+",
    "ebnf": "root ::= x",
    "tool_choice": "required",
    "function_call": {"name": "f"},
    "allowed_token_ids": [1],
    "bad_words": ["no"],
    "use_beam_search": True,
    "chat_template": "{{ messages }}",
    "typical_p": 0.5,
    "mirostat": 2,
}
"""Fields of other servers that would change the answer."""


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses"])
def test_what_would_change_the_answer_is_refused_by_name(
    place: Place, name: str, path: str
) -> None:
    asked = {"chat/completions": {"messages": ASK}, "responses": {"input": "x"}}
    body = {"model": NAME, **asked.get(path, {"prompt": "x"}), name: REFUSED[name]}
    answer = place.http.post(f"/v1/{path}", json=body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    sentence = f"{name} is not supported here: leave it out."
    assert (error["param"], error["message"]) == (name, sentence)


def test_defaults_of_other_servers_change_nothing(place: Place) -> None:
    own = {
        "tool_choice": "auto", "guided_json": None, "top_k": -1, "min_p": 0.0, "min_tokens": 0,
        "ignore_eos": False, "stop_token_ids": [], "length_penalty": 1.0, "typical_p": 1.0,
        "skip_special_tokens": True, "use_beam_search": False, "mirostat": 0,
    }  # fmt: skip
    text = chat(place, extra_body=own).choices[0].message.content
    assert text == place.text_for("What is it?")


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("own", [{"method": "ar"}, BOLD])
def test_a_stop_token_ends_the_answer(place: Place, own: dict[str, Any], is_stream: bool) -> None:
    """However many tokens a forward takes; tokens are bytes here, the answer goes on behind it."""
    text = place.text_for("What is it?")
    before = text[: text.index("☃")]
    first_of_snowman = "☃".encode()[0]
    more = {"extra_body": {**own, "stop_token_ids": [5, first_of_snowman]}, "logprobs": True}
    found = chat(place, stream=is_stream, **more)
    chunks = list(found) if is_stream else [found]
    kept = [(it.delta if is_stream else it.message, it) for one in chunks for it in one.choices]
    assert "".join(shown.content or "" for shown, _ in kept) == before
    tokens = [token for _, it in kept if it.logprobs for token in it.logprobs.content]
    assert b"".join(bytes(token.bytes) for token in tokens) == before.encode()
    assert kept[-1][1].finish_reason == "stop"
    forwards = chunks[-1].mars["forwards"]
    assert forwards <= len(before.encode()) + 1
    if not is_stream:
        assert found.usage.completion_tokens == len(before.encode()) + 1
    assert eventually(lambda: place.num_open == 0)


def test_a_stop_token_ends_a_response_and_each_choice(place: Place) -> None:
    text = place.text_for("What is it?")
    own = {"extra_body": {"stop_token_ids": [ord(":")]}}
    response = place.client.responses.create(model=NAME, input="What is it?", **own)
    assert (response.output_text, response.status) == (text[: text.index(":")], "completed")
    answers = complete(place, ["one", "two"], n=2, **own).choices
    for choice, prompt in zip(answers, ("one", "one", "two", "two"), strict=True):
        assert choice.text == text_of(place, prompt).partition(":")[0]


def test_a_stop_token_releases_text_that_might_have_begun_a_stop_string(place: Place) -> None:
    text = place.text_for("What is it?")
    at = text.index(" and so on")
    own = {"stop": [" and more"], "extra_body": {"stop_token_ids": [ord("s")]}}
    assert chat(place, **own).choices[0].message.content == text[: at + len(" and ")]


# Conversations.


@pytest.mark.parametrize("content", ["", " \n"])
@pytest.mark.parametrize("path", ["chat/completions", "responses"])
def test_an_empty_message_is_refused_by_the_name_of_its_field(
    place: Place, path: str, content: str
) -> None:
    messages = [{"role": "user", "content": content}]
    field = "input" if path == "responses" else "messages"
    answer = place.http.post(f"/v1/{path}", json={"model": NAME, field: messages})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


def test_a_last_answer_is_continued(place: Place) -> None:
    tokenizer = place.model.tokenizer
    begun = {"role": "assistant", "content": "It is <|im_end|>"}
    answer = chat(place, [*ASK, begun], extra_body={"continue_final_message": True})
    wanted = [*tokenizer.encode_prompt("What is it?"), *tokenizer.encode("It is <|im_end|>")]
    assert list(place.backend.prompts[-1]) == wanted
    assert answer.choices[0].message.content == place.backend.answer_to(wanted)
    assert answer.usage.prompt_tokens == len(wanted)
    parts = [{"type": "text", "text": "It is "}, {"type": "text", "text": "<|im_end|>"}]
    chat(place, [*ASK, {"role": "assistant", "content": parts}], stream=True).close()
    assert eventually(lambda: list(place.backend.prompts[-1]) == wanted)
    chat(place, [begun], max_tokens=1)
    wanted = [*tokenizer.encode_chat([]), *tokenizer.encode("It is <|im_end|>")]
    assert list(place.backend.prompts[-1]) == wanted


@pytest.mark.parametrize("empty", [{}, {"content": None}, {"content": ""}, {"tool_calls": []}])
def test_an_answer_without_content_is_empty(place: Place, empty: dict[str, Any]) -> None:
    chat(place, [*ASK, {"role": "assistant", **empty}, *ASK], max_tokens=1)
    said = [("user", "What is it?"), ("assistant", ""), ("user", "What is it?")]
    assert list(place.backend.prompts[-1]) == place.model.tokenizer.encode_chat(said)
    chat(place, [*ASK, {"role": "assistant", **empty}], max_tokens=1)
    wanted = place.model.tokenizer.encode_prompt("What is it?")
    assert list(place.backend.prompts[-1]) == wanted


# Settings and stop strings.


def test_penalties_and_bias_reach_the_decoder(place: Place) -> None:
    seen: list[Event] = []
    place.model.engine.observe(lambda run, event: seen.append(event))
    asked = {"presence_penalty": 0.5, "frequency_penalty": -1, "logit_bias": {"104": -5, "9": 2}}
    chat(place, max_tokens=1, **asked)
    complete(place, "Once", max_tokens=1, **asked)
    lane = {"prompt_ids": [104], "max_new_tokens": 1, **asked, "logit_bias": [[9, 2], [104, -5.0]]}
    assert place.http.post("/v1/runs", json={"model": NAME, "lanes": [lane]}).status_code == 200
    steps = [event.rows[0].settings for event in seen if isinstance(event, Step)]
    assert len(steps) == 3
    for settings in steps:
        assert (settings.presence_penalty, settings.frequency_penalty) == (0.5, -1)
        assert settings.logit_bias == ((9, 2), (104, -5))


@pytest.mark.parametrize("is_stream", [False, True])
def test_figures_do_not_count_what_a_stop_string_cut(place: Place, is_stream: bool) -> None:
    stops = [*(f"never {number}" for number in range(60)), " and so"]
    options = {"stream_options": {"include_usage": True}} if is_stream else {}
    bold = {**BOLD, "block_size": 8}
    found = chat(place, stop=stops, stream=is_stream, extra_body=bold, **options)
    told = list(found)[-1] if is_stream else found
    num_tokens, num_forwards = told.usage.completion_tokens, told.mars["forwards"]
    assert num_tokens % 8, "the stop string ends inside a forward"
    assert told.mars["tokens_per_forward"] == round(num_tokens / num_forwards, 3)
    assert told.mars["accepted_tokens"] == num_tokens - num_forwards  # each gives one of its own
