"""OpenAI's own client against the endpoint: chats, completions, responses, whole and streamed."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import Response, ResponseCreatedEvent, ResponseStreamEvent
from pydantic import TypeAdapter
from scripted_server import (
    ASK,
    NAME,
    QUESTION,
    Oracle,
    Place,
    chat,
    complete,
    respond,
    said,
    serving,
)

from mars_runtime.runs.events import Event, Step
from mars_runtime.serving.choices import LOWERED
from mars_runtime.serving.requests import Caps
from tests.engine.scripted import eventually

AR = {"method": "ar"}
BOLD = {"tau": 0.0, "lossless": False, "block_size": 7}
TAKEN = {**BOLD, "block_size": 4}  # the scripted model accepts every draft
USAGE = {"stream_options": {"include_usage": True}}
whole_and_streamed = pytest.mark.parametrize("is_stream", [False, True])


def options_of(is_stream: bool) -> dict[str, Any]:
    return {"stream": True, **USAGE} if is_stream else {}


# One answer.


def test_a_whole_answer(place: Place) -> None:
    listed = next(iter(place.client.models.list()))
    assert (listed.id, place.client.models.retrieve(NAME)) == (NAME, listed)
    with pytest.raises(openai.NotFoundError, match="Choose among scripted"):
        place.client.models.retrieve("a/b")
    answer, text = chat(place), place.text_for()
    (choice,) = answer.choices
    assert (choice.message.content, choice.message.role) == (text, "assistant")
    assert choice.finish_reason == "stop"
    num_prompt, num_written = len(place.ids()), len(text.encode()) + 1  # the end of the turn
    used = answer.usage
    assert (used.prompt_tokens, used.completion_tokens) == (num_prompt, num_written)
    assert used.total_tokens == num_prompt + num_written
    assert answer.mars["forwards"] >= 1
    assert answer.mars["ended"] == "eos"
    assert answer.mars["tokens_per_forward"] > 1


@pytest.mark.parametrize(
    ("own", "n", "has_usage"), [(AR, 1, True), (BOLD, 1, False), (BOLD, 3, True), (BOLD, 3, False)]
)
def test_a_stream_brings_the_same(place: Place, own: Any, n: int, has_usage: bool) -> None:
    options, ask = USAGE if has_usage else {}, {"n": n, "seed": 7, "extra_body": own}
    answer, whole = said(chat(place, stream=True, **ask, **options)), chat(place, **ask)
    assert answer.texts == said(whole).texts == [place.text_for()] * n
    assert answer.reasons == ["stop"] * n
    assert whole.usage.prompt_tokens == len(place.ids())
    choices = [choice for chunk in answer.chunks for choice in chunk.choices]
    assert [choice.index for choice in choices if choice.delta.role] == list(range(n))
    assert not any("\ufffd" in (choice.delta.content or "") for choice in choices)
    assert len({chunk.id for chunk in answer.chunks}) == 1
    assert [chunk.usage for chunk in answer.chunks if chunk.usage] == [whole.usage] * has_usage
    assert bool(answer.last.choices) == (not has_usage)
    if n == 1:
        assert answer.last.mars["forwards"] == whole.mars["forwards"]
        assert answer.last.metrics == whole.metrics
    else:
        assert not hasattr(whole, "mars")
        ended = [choice.mars["seed"] for choice in choices if choice.finish_reason]
        assert sorted(ended) == [choice.mars["seed"] for choice in whole.choices] == [7, 8, 9]


STOPS = [
    (["never", "☃ 👩", " and so"], [], "☃ 👩", "☃ 👩"),
    ([], [5, "☃".encode()[0]], "☃", " "),
    ([" and more"], [ord("s")], "so on", "s"),  # text that might have begun a stop string is sent
]


@whole_and_streamed
@pytest.mark.parametrize("own", [AR, BOLD])
def test_stops_cut_alike_however_the_tokens_come(
    place: Place, monkeypatch: pytest.MonkeyPatch, own: Any, is_stream: bool
) -> None:
    # Slow enough that a busy server still sees the stop before the text ends.
    monkeypatch.setattr(place.backend, "forward_seconds", 0.03)
    text = place.text_for()
    for strings, tokens, stop, last in STOPS:
        before, more = place.backend.num_forwards, options_of(is_stream)
        more |= {"extra_body": {**own, "stop_token_ids": tokens}, "stop": strings or None}
        answer = said(chat(place, logprobs=True, **more))
        wanted = text[: text.index(stop)]
        assert (answer.texts, answer.reasons) == ([wanted], ["stop"])
        reported = b"".join(bytes(token.bytes) for token in answer.logprobs)
        assert reported.startswith(wanted.encode())
        num_tokens, mars = answer.last.usage.completion_tokens, answer.last.mars
        assert num_tokens == len((wanted + last).encode())
        assert mars["tokens_per_forward"] == round(num_tokens / mars["forwards"], 3)
        assert mars["accepted_tokens"] == num_tokens - mars["forwards"]  # one of each is its own
        assert place.is_idle()
        assert place.backend.num_forwards - before < len(text.encode()), "the run is cancelled"


@whole_and_streamed
def test_logprobs_are_those_of_the_events(place: Place, is_stream: bool) -> None:
    answer = said(chat(place, logprobs=True, top_logprobs=2, stream=is_stream)).logprobs
    assert b"".join(bytes(item.bytes) for item in answer).decode() == place.text_for()
    first = answer[0]
    assert first.logprob == pytest.approx(-0.5108, abs=1e-4)  # log 0.6
    assert [top.bytes for top in first.top_logprobs] == [first.bytes, [32]]
    assert first.top_logprobs[1].logprob == pytest.approx(-2.3026, abs=1e-4)  # log 0.1


# Drafts, under vLLM's names.


def test_figures_of_drafts(place: Place) -> None:
    def figures(fields: Any) -> Any:
        return chat(place, max_tokens=12, extra_body=fields).metrics["speculative_decoding"]

    taken = figures(TAKEN)
    assert (taken["mean_acceptance_length"], taken["draft_acceptance_rate"]) == (3 + 1, 1.0)
    assert taken["acceptance_histogram"] == [0, 0, 0, 3]
    assert taken["per_position_acceptance_rates"] == [1.0, 1.0, 1.0]
    assert taken["per_step_accepted"] == taken["per_step_drafted"] == [3, 3, 3]
    refused = figures({**TAKEN, "tau": 1.0})
    assert (refused["mean_acceptance_length"], refused["draft_acceptance_rate"]) == (1.0, 0.0)
    assert refused["acceptance_histogram"] == [11, 0, 0, 0]  # the last forward can draft nothing
    assert figures(AR) is None


# Several answers, and prompts in lists.


def test_an_address_has_no_more_runs_at_once_than_its_share(tmp_path: Path) -> None:
    backend, caps = Oracle(is_held=True), Caps(max_runs_per_address=2)
    with serving(tmp_path, backend, caps=caps) as place, ThreadPoolExecutor() as pool:
        asking = pool.submit(chat, place, n=5, max_tokens=8)
        assert eventually(lambda: place.num_open == 2)
        for _ in range(3):
            with pytest.raises(openai.RateLimitError):
                chat(place, max_tokens=1)
        assert place.num_open == 2
        backend.released.set()
        assert len(asking.result().choices) == 5
        assert place.is_idle()
        assert chat(place, n=2, max_tokens=1).usage.completion_tokens == 2  # the places are free


@whole_and_streamed
def test_prompts_of_a_list_are_answered_in_their_order(place: Place, is_stream: bool) -> None:
    ids = [place.model.tokenizer.encode(prompt) for prompt in ("Once", "Twice")]
    answers = [place.text_after(prompt) for prompt in ("Once", "Twice") for _ in range(2)]
    for prompts in (["Once", "Twice"], ids, ["Once", ids[1]]):
        more = {"n": 2, "best_of": 2, "max_tokens": 80, **options_of(is_stream)}
        answer = said(complete(place, prompts, **more))
        assert answer.texts == answers
        assert answer.last.usage.prompt_tokens == len("OnceTwice")
        num_written = sum(len(text.encode()) + 1 for text in answers)
        assert answer.last.usage.completion_tokens == num_written
    for prompt in ("Once", ids[0], ["Once"], [ids[0]]):
        whole = complete(place, prompt, logprobs=1)
        assert whole.choices[0].text == answers[0]
        assert len(whole.choices[0].logprobs.tokens) == len(answers[0].encode())


@whole_and_streamed
def test_an_echoed_prompt_comes_first_and_cuts_nothing(place: Place, is_stream: bool) -> None:
    ids = place.model.tokenizer.encode("Twice ☃")
    more = {"echo": True, "stop": "ce", "max_tokens": 5, **options_of(is_stream)}
    actual = said(complete(place, ["Once", ids], **more))
    answers = {prompt: place.text_after(prompt)[:5] for prompt in ("Once", "Twice ☃")}
    assert actual.texts == [prompt + answer for prompt, answer in answers.items()]
    assert actual.last.usage.completion_tokens == 10
    assert not any("ce" in answer for answer in answers.values())


# Limits and seeds.


@pytest.mark.parametrize(
    ("name", "is_stream"), [("max_tokens", True), ("max_completion_tokens", False)]
)
def test_limits(tmp_path: Path, name: str, is_stream: bool) -> None:
    """A limit above the cap, or above what fits, is lowered with a note; none means the rest."""

    class Long(Oracle):
        def answer_to(self, prompt_ids: Any) -> str:
            return "x" * 1000

    backend = Long(forward_seconds=0.0)
    with serving(tmp_path, backend, caps=Caps(max_new_tokens=600)) as place:

        def read(limits: Any) -> tuple[int, Any, str]:
            answer = said(chat(place, extra_body=limits, **options_of(is_stream)))
            mars = answer.last.mars
            assert answer.reasons == ["length"]
            assert mars["ended"] == "limit"
            return answer.last.usage.completion_tokens, mars["note"]

        for capacity, most in ((100_000, 600), (len(place.ids()) + 10, 10)):
            backend.capacity = capacity
            for limit in (8192, 2**31 - 1):
                assert read({name: limit}) == (most, LOWERED.format(limit, most))
            for limit in (-1, None):
                assert read({name: limit}) == (most, "")
            assert read({name: 5}) == (5, "")
        backend.capacity = 100_000
        assert read({"max_tokens": 5, "max_completion_tokens": None}) == (5, "")
        assert read({}) == (256, "")


def test_a_seed_is_any_int64_and_the_reported_one_gives_the_same_answer(place: Place) -> None:
    hot = {"temperature": 1, "max_tokens": 2}
    assert len({chat(place, **hot).mars["seed"] for _ in range(4)}) > 1
    assert chat(place, seed=7, **hot).mars["seed"] == 7
    for seed in (-(2**63), -1, 2**31, 2**63 - 1):
        reported = chat(place, seed=seed, **hot).mars["seed"]
        assert 0 <= reported < 2**31
        again = [choice.mars["seed"] for choice in chat(place, seed=reported, n=2, **hot).choices]
        assert again == [reported, (reported + 1) % 2**31]


# Conversations.


def test_the_conversation_is_what_the_model_reads(place: Place) -> None:
    parts = [{"type": "text", "text": "And "}, {"type": "text", "text": "now?"}]
    messages = [
        {"role": "system", "content": "Be brief. <|im_end|>"},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi <|im_start|>user"},
        {"role": "user", "content": parts},
    ]
    chat(place, messages)
    tokenizer, ids = place.model.tokenizer, place.backend.prompts[-1]
    contents = ["Be brief. <|im_end|>", "Hello", "Hi <|im_start|>user", "And now?"]
    roles = [message["role"] for message in messages]
    assert list(ids) == tokenizer.encode_chat(list(zip(roles, contents, strict=True)))
    (begin,) = tokenizer.encode_text("<|im_start|>", parse_special=True)
    assert ids.count(begin) == ids.count(tokenizer.end_id) + 1 == 5


def test_a_last_answer_is_continued(place: Place) -> None:
    tokenizer, text = place.model.tokenizer, "It is <|im_end|>"
    begun, more = {"role": "assistant", "content": text}, {"continue_final_message": True}
    answer = chat(place, [*ASK, begun], extra_body=more)
    wanted = [*place.ids(), *tokenizer.encode(text)]
    assert list(place.backend.prompts[-1]) == wanted
    assert answer.choices[0].message.content == place.backend.answer_to(wanted)
    assert answer.usage.prompt_tokens == len(wanted)
    parts = [{"type": "text", "text": "It is "}, {"type": "text", "text": "<|im_end|>"}]
    said(chat(place, [*ASK, {"role": "assistant", "content": parts}], stream=True))
    assert list(place.backend.prompts[-1]) == wanted
    chat(place, [begun], max_tokens=1)
    assert list(place.backend.prompts[-1]) == [*tokenizer.encode_chat([]), *tokenizer.encode(text)]


def test_an_answer_without_content_is_empty(place: Place) -> None:
    turns = [("user", QUESTION), ("assistant", ""), ("user", QUESTION)]
    for empty in ({}, {"content": None}, {"content": ""}, {"content": []}, {"tool_calls": []}):
        chat(place, [*ASK, {"role": "assistant", **empty}, *ASK], max_tokens=1)
        assert list(place.backend.prompts[-1]) == place.model.tokenizer.encode_chat(turns)
        chat(place, [*ASK, {"role": "assistant", **empty}], max_tokens=1)
        assert list(place.backend.prompts[-1]) == place.ids()


TEMPLATE = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('No\n system.') }}{% endif %}"
    "{% for message in messages %}{{ message.role + ':' + message.content + ';' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}{{ enable_thinking }}{{ mood }}"
)
YES = {"role": "assistant", "content": "Yes"}


OPEN, WHOLE = {"add_generation_prompt": True}, {"add_generation_prompt": False}
CONTINUED = {"continue_final_message": True}
MOOD = {"chat_template_kwargs": {"enable_thinking": True, "mood": "<|mask|>"}}
TEMPLATED: list[tuple[Any, dict[str, Any], str]] = [
    (ASK, {}, "user:{};assistant:"),
    (ASK, WHOLE, "user:{};"),
    (ASK, {"enable_thinking": False}, "user:{};assistant:False"),
    (ASK, MOOD, "user:{};assistant:True<|mask|>"),
    ([*ASK, YES], {}, "user:{};assistant:Yes"),
    ([*ASK, YES], WHOLE, "user:{};assistant:Yes;"),
    ([*ASK, YES], {**WHOLE, **CONTINUED}, "user:{};assistant:Yes"),
    ([*ASK, YES], OPEN, "user:{};assistant:Yes;assistant:"),
    ([*ASK, YES], {"continue_final_message": False}, "user:{};assistant:Yes;assistant:"),
]


def test_fields_of_a_chat_template_reach_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place.model.tokenizer, "_template", TEMPLATE)
    for messages, fields, wanted in TEMPLATED:
        chat(place, messages, extra_body=fields, max_tokens=1)
        assert bytes(place.backend.prompts[-1]).decode() == wanted.format(QUESTION)


# Settings.


def test_settings_reach_the_decoder_on_every_route(place: Place) -> None:
    seen: list[Event] = []
    place.model.engine.observe(lambda run, event: seen.append(event))
    fields: dict[str, Any] = {
        **{"tau": 0.7, "block_size": 3, "lossless": False, "lookup": False},
        **{"top_k": 7, "min_p": 0.25, "min_tokens": 2, "ignore_eos": True},
        **{"presence_penalty": 0.5, "frequency_penalty": -1},
    }
    body = {"max_tokens": 1, "extra_body": {**fields, "logit_bias": {"104": -5, "9": 2}}}
    chat(place, **body)
    complete(place, "Once", **body)
    steps = [event.rows[0].settings for event in seen if isinstance(event, Step)]
    assert len(steps) == 2
    for settings in steps:
        assert {name: getattr(settings, name) for name in fields} == fields
        assert settings.logit_bias == ((9, 2), (104, -5))


# The Responses API.

EVENTS = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]


def prompt_of(place: Place) -> list[int]:
    return list(place.backend.prompts[-1])


def test_a_response_is_valid_by_openai_s_own_types(place: Place) -> None:
    response, text = respond(place), place.text_for()
    assert (response.output_text, response.status) == (text, "completed")
    assert response.error is response.incomplete_details is None
    (message,) = response.output
    assert (message.type, message.role, message.status) == ("message", "assistant", "completed")
    used = response.usage
    assert (used.input_tokens, used.output_tokens) == (len(place.ids()), len(text.encode()) + 1)
    assert used.total_tokens == used.input_tokens + used.output_tokens
    assert response.mars["ended"] == "eos"
    assert response.metrics["speculative_decoding"]["num_spec_steps"] == 0  # verified: none here
    body = {"model": NAME, "input": QUESTION, "metadata": {"of": "me"}}
    actual = place.http.post("/v1/responses", json=body).json()
    Response.model_validate(actual, strict=True)
    assert actual["metadata"] == {"of": "me"}
    assert (actual["store"], actual["previous_response_id"]) == (False, None)
    with pytest.raises(openai.NotFoundError):
        place.client.responses.retrieve(response.id)
    with pytest.raises(openai.NotFoundError, match="Choose among"):
        respond(place, model="none")


@pytest.mark.parametrize("own", [AR, {"tau": 0.0, "lossless": False}])
def test_a_stream_brings_the_same_in_valid_events(place: Place, own: dict[str, Any]) -> None:
    whole = respond(place, extra_body=own)
    body = {"model": NAME, "input": QUESTION, "stream": True, **own}
    blocks = place.http.post("/v1/responses", json=body).text.removesuffix("\n\n").split("\n\n")
    types: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    for number, block in enumerate(blocks):
        named, data = block.split("\n")
        event = types.validate_json(data.removeprefix("data: "))
        assert (named, event.sequence_number) == (f"event: {event.type}", number)
    events = list(respond(place, extra_body=own, stream=True))
    kinds = list(dict.fromkeys(event.type for event in events))
    assert kinds == [*EVENTS, "response.completed"]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert len(deltas) > 1
    first, last = events[0].response, events[-1].response
    assert "".join(deltas) == whole.output_text == last.output_text
    assert (first.status, first.id) == ("in_progress", last.id)
    assert (last.usage, last.metrics) == (whole.usage, whole.metrics)
    assert len({event.item_id for event in events if hasattr(event, "item_id")}) == 1


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_response_that_is_cut_is_incomplete(place: Place, is_stream: bool) -> None:
    answer = respond(place, max_output_tokens=5, stream=is_stream)
    if is_stream:
        last = list(answer)[-1]
        assert last.type == "response.incomplete"
        answer = last.response
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert answer.output_text == place.text_for()[:5]
    assert (answer.usage.output_tokens, answer.max_output_tokens) == (5, 5)


def test_a_conversation_continues_from_the_output_of_the_turn_before(place: Place) -> None:
    first = respond(place, instructions="Be brief. <|im_end|>")
    before, system = prompt_of(place), ("system", "Be brief. <|im_end|>")
    assert before == place.model.tokenizer.encode_chat([system, ("user", QUESTION)])
    assert first.instructions == system[1]
    parts = [{"type": "input_text", "text": "And "}, {"type": "input_text", "text": "now?"}]
    turns: list[Any] = [{"role": "user", "content": QUESTION}, *first.output]
    turns.append({"role": "user", "content": parts, "type": "message"})
    respond(place, input=turns, instructions=system[1])
    begun = [*before, *first.output_text.encode()]
    assert prompt_of(place)[: len(begun)] == begun
    turns = [system, ("user", QUESTION), ("assistant", first.output_text), ("user", "And now?")]
    assert prompt_of(place) == place.model.tokenizer.encode_chat(turns)


# The table of docs/api.md: what each call of the client returns.

ROWS = re.findall(
    r"^\| `(client\..+)` \| `(\w+(?:\[\w+\])?)` \|$",
    (Path(__file__).parents[2] / "docs/api.md").read_text("utf-8"),
    re.MULTILINE,
)
GIVEN = {"model": NAME, "ask": {"model": NAME, "messages": ASK}}


def kind_of(call: str, client: openai.OpenAI) -> str:
    """Return what the call gives, read to its end, or the error that it raises."""
    try:
        value = eval(call, {"client": client, **GIVEN})
    except openai.APIStatusError as error:
        return type(error).__name__
    if isinstance(value, openai.Stream):
        first, *_, last = value
        if isinstance(first, ResponseCreatedEvent):
            assert last.response.output_text
            return "Stream[ResponseStreamEvent]"
        return f"Stream[{type(first).__name__}]"
    if hasattr(value, "__enter__"):
        with value as stream:
            assert stream.get_final_completion().choices[0].message.content
        return type(stream).__name__
    return type(value.parse() if hasattr(value, "parse") else value).__name__


@pytest.mark.parametrize(("call", "wanted"), ROWS)
def test_each_call_of_the_table_gives_what_it_says(place: Place, call: str, wanted: str) -> None:
    assert kind_of(call, place.client) == wanted
