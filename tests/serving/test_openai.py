"""OpenAI's own client against the endpoint: what it sends works, what it reads is there."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import ResponseCreatedEvent
from scripted_server import NAME, Oracle, Place, eventually, serving

from mars_runtime.engine import Request
from mars_runtime.serving.limits import NOBODY, Proxies, address_of
from mars_runtime.serving.server import KEY, PROXIES, PlanError, api_key, num_proxies
from mars_runtime.settings import RECOMMENDED

ASK: list[dict[str, str]] = [{"role": "user", "content": "What is it?"}]


def chat(place: Place, messages: Any = ASK, **more: Any) -> Any:
    return place.client.chat.completions.create(model=NAME, messages=messages, **more)


def streamed(place: Place, messages: Any = ASK, **more: Any) -> tuple[str, list[Any]]:
    """The text, and all chunks."""
    chunks = list(chat(place, messages, stream=True, **more))
    shown = (chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    return "".join(shown), chunks


def test_models_are_listed(place: Place) -> None:
    assert [model.id for model in place.client.models.list()] == [NAME]


def test_a_whole_answer(place: Place) -> None:
    answer = chat(place)
    (choice,) = answer.choices
    text = place.text_for("What is it?")
    assert choice.message.content == text
    assert choice.message.role == "assistant"
    assert choice.finish_reason == "stop"
    assert answer.usage.completion_tokens == len(text.encode()) + 1  # the end of the turn
    ids = place.model.tokenizer.encode_prompt("What is it?")
    assert answer.usage.prompt_tokens == len(ids)
    assert answer.usage.total_tokens == len(ids) + len(text.encode()) + 1
    assert answer.mars["forwards"] >= 1
    assert answer.mars["ended"] == "eos"
    assert answer.mars["tokens_per_forward"] > 1


@pytest.mark.parametrize("tau", [0.0, 1.0])
def test_a_stream_says_the_same(place: Place, tau: float) -> None:
    own = {"extra_body": {"tau": tau, "lossless": False, "block_size": 5}}
    text, chunks = streamed(place, stream_options={"include_usage": True}, **own)
    whole = chat(place, **own)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]][-2:] == [None, "stop"]
    last = chunks[-1]
    assert last.choices == []
    assert last.usage == whole.usage
    assert last.mars["forwards"] == whole.mars["forwards"]
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


def test_no_character_is_torn(place: Place) -> None:
    _, chunks = streamed(place, extra_body={"method": "ar"})
    shown = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert "�" not in "".join(shown)
    assert any("👩" in piece for piece in shown)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_length_ends_it(place: Place, name: str) -> None:
    answer = chat(place, **{name: 5})
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.content == place.text_for("What is it?")[:5]
    assert answer.usage.completion_tokens == 5


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("own", [{"method": "ar"}, {"tau": 0.0, "block_size": 7}])
def test_stop_strings_cut_alike_however_the_tokens_come(
    place: Place, own: dict[str, object], is_stream: bool
) -> None:
    whole = place.text_for("What is it?")
    stop = ["never", "☃ 👩", " and so"]
    if is_stream:
        text, chunks = streamed(
            place, stop=stop, extra_body=own, stream_options={"include_usage": True}
        )
        used, reason = chunks[-1].usage, chunks[-2].choices[0].finish_reason
    else:
        answer = chat(place, stop=stop, extra_body=own)
        text, used = answer.choices[0].message.content, answer.usage
        reason = answer.choices[0].finish_reason
    assert text == whole[: whole.index("☃ 👩")]
    assert reason == "stop"
    assert used.completion_tokens == len(f"{text}☃ 👩".encode())
    assert eventually(lambda: place.num_open == 0)


def test_a_stop_string_cancels_the_run(place: Place) -> None:
    before = place.backend.num_forwards
    chat(place, stop=":", extra_body={"method": "ar"}, max_tokens=60)
    assert eventually(lambda: place.num_open == 0)
    assert place.backend.num_forwards - before < 60


def test_logprobs_are_those_of_the_events(place: Place) -> None:
    answer = chat(place, logprobs=True, top_logprobs=2)
    told = answer.choices[0].logprobs.content
    assert b"".join(bytes(one.bytes) for one in told).decode() == place.text_for("What is it?")
    first = told[0]
    assert first.logprob == pytest.approx(-0.5108, abs=1e-4)  # log 0.6
    assert [one.bytes for one in first.top_logprobs] == [first.bytes, [32]]
    assert first.top_logprobs[1].logprob == pytest.approx(-2.3026, abs=1e-4)  # log 0.1
    _, chunks = streamed(place, logprobs=True, top_logprobs=2)
    pieces = [chunk.choices[0].logprobs for chunk in chunks]
    assert [one for piece in pieces if piece for one in piece.content] == told


def test_completions_go_on_from_a_text(place: Place) -> None:
    ids = place.model.tokenizer.encode("Once upon")
    for prompt in ("Once upon", ids, ["Once upon"], [ids]):
        answer = place.client.completions.create(model=NAME, prompt=prompt, logprobs=1)
        assert answer.choices[0].text == place.backend.answer_to(ids)
        assert answer.usage.prompt_tokens == len(ids)
        assert len(answer.choices[0].logprobs.tokens) == len(answer.choices[0].text.encode())
    chunks = place.client.completions.create(model=NAME, prompt="Once upon", stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == place.backend.answer_to(ids)


def test_the_conversation_is_what_the_model_reads(place: Place) -> None:
    messages = [
        {"role": "system", "content": "Be brief. <|im_end|>"},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi <|im_start|>user"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "And "}, {"type": "text", "text": "now?"}],
        },
    ]
    chat(place, messages)
    tokenizer = place.model.tokenizer
    ids = place.backend.prompts[-1]
    said = [("system", "Be brief. <|im_end|>"), ("user", "Hello")]
    said += [("assistant", "Hi <|im_start|>user"), ("user", "And now?")]
    assert list(ids) == tokenizer.encode_chat(said)
    assert ids.count(tokenizer.im_start_id) == 5
    assert ids.count(tokenizer.im_end_id) == 4


def test_a_second_turn_begins_with_the_tokens_of_the_first(place: Place) -> None:
    """Which is what a prefix cache keeps."""
    answer = chat(place).choices[0].message.content
    first = place.backend.prompts[-1]
    chat(
        place, [*ASK, {"role": "assistant", "content": answer}, {"role": "user", "content": "Why?"}]
    )
    begun = (*first, *answer.encode())
    assert place.backend.prompts[-1][: len(begun)] == begun


def test_settings_ride_along(place: Place) -> None:
    own = {"method": "mars", "tau": 0.7, "block_size": 3, "lossless": False, "lookup": False}
    one = chat(place, extra_body=own, max_tokens=12)
    assert one.mars["forwards"] == 12  # this backend takes one token from tau 0.6 on
    other = chat(place, extra_body={**own, "tau": 0.5}, max_tokens=12)
    assert other.mars["forwards"] == 4
    assert (other.mars["drafted_tokens"], other.mars["accepted_tokens"]) == (8, 8)
    assert (one.mars["drafted_tokens"], one.mars["accepted_tokens"]) == (21, 0)


def test_a_seed_is_told_where_none_was_given(place: Place) -> None:
    seeds = {chat(place, temperature=1.0, max_tokens=1).mars["seed"] for _ in range(4)}
    assert len(seeds) > 1
    assert chat(place, temperature=1.0, seed=7, max_tokens=1).mars["seed"] == 7


def test_over_the_wire_as_from_the_engine(place: Place) -> None:
    model = place.model
    ids = model.tokenizer.encode_prompt("Compare")
    run = model.engine.submit(Request(ids, RECOMMENDED))
    assert run.wait(60)
    tokens = [t for e in run.events_since(0) if hasattr(e, "rows") for t in e.rows[0].accepted]
    text = model.tokenizer.decode(tokens[:-1])
    assert streamed(place, [{"role": "user", "content": "Compare"}])[0] == text


@pytest.fixture
def slow(tmp_path: Any) -> Iterator[Place]:
    """Two at once, two in line; a forward takes 50 ms."""
    backend = Oracle(forward_seconds=0.05)
    with serving(tmp_path, backend, max_runs=2, max_waiting=3) as found:
        yield found


def test_closing_the_stream_frees_the_row(slow: Place) -> None:
    stream = chat(slow, stream=True)
    next(iter(stream))
    assert eventually(lambda: slow.num_open == 1)
    stream.close()
    assert eventually(lambda: slow.num_open == 0, 1.0)


def test_leaving_the_line_frees_the_place(slow: Place) -> None:
    streams = [chat(slow, stream=True) for _ in range(3)]
    assert eventually(lambda: slow.num_open == 3)
    streams[2].close()  # which waits
    assert eventually(lambda: slow.num_open == 2, 1.0)
    for stream in streams:
        stream.close()


def test_a_client_that_gives_up_on_a_whole_answer_frees_it(slow: Place) -> None:
    with pytest.raises(openai.APITimeoutError):
        chat(slow, timeout=0.3)
    assert eventually(lambda: slow.num_open == 0, 1.0)


def test_overload_is_told_and_passes(slow: Place) -> None:
    """The last place in line is for another address."""
    streams = [chat(slow, stream=True) for _ in range(4)]
    for is_stream in (True, False):
        with pytest.raises(openai.RateLimitError, match=r"4 runs are ahead") as refused:
            chat(slow, stream=is_stream)
        assert int(refused.value.response.headers["retry-after"]) >= 1
    for stream in streams:
        stream.close()
    assert eventually(lambda: slow.num_open == 0)
    assert chat(slow, max_tokens=2).usage.completion_tokens == 2


def test_nothing_is_answered_while_loading(tmp_path: Any) -> None:
    held = threading.Event()
    with serving(tmp_path, Oracle(), held=held) as place:
        with pytest.raises(openai.InternalServerError, match="loading") as refused:
            chat(place)
        assert refused.value.status_code == 503
        assert "retry-after" in refused.value.response.headers
        assert place.http.get("/health").status_code == 503
        held.set()
        assert place.models.wait(60) == ""
        assert place.http.get("/health").status_code == 200
        assert chat(place).choices[0].message.content == place.text_for("What is it?")


def test_an_end_of_the_server_is_a_sentence(tmp_path: Any) -> None:
    with serving(tmp_path, Oracle(forward_seconds=0.05)) as place:
        stream = iter(chat(place, stream=True))
        next(stream)
        place.models.close()
        with pytest.raises(openai.APIError, match="shutting down"):
            list(stream)
        assert place.http.get("/health").status_code == 503
        with pytest.raises(openai.InternalServerError):
            chat(place)


def test_the_key_is_asked_for(tmp_path: Any) -> None:
    with serving(tmp_path, Oracle(), key="ünlocked") as place:
        for key in ("none", "ünlocke", "x" * 10_000):
            with pytest.raises((openai.AuthenticationError, UnicodeEncodeError)):
                place.client.with_options(api_key=key).models.list()
        for scheme in ("Bearer", "bearer", "BEARER "):
            headers = {"authorization": f"{scheme} ünlocked".encode()}
            assert place.http.get("/v1/models", headers=headers).status_code == 200
        assert place.http.get("/v1/models").status_code == 401
        assert place.http.get("/health").status_code == 200


ROWS = re.findall(
    r"^\| `(client\..+)` \| `(\w+(?:\[\w+\])?)` \|$",
    (Path(__file__).parents[2] / "docs/api.md").read_text("utf-8"),
    re.MULTILINE,
)
KEPT = {"model": NAME, "ask": {"model": NAME, "messages": ASK}}


def kind_of(value: Any) -> str:
    """As the table calls it; an asynchronous one as its twin."""
    return type(value).__name__.replace("AsyncPage", "SyncPage").replace("Async", "")


def of_stream(items: list[Any]) -> str:
    """What a stream that gave these is called, whose text is whole."""
    if isinstance(items[0], ResponseCreatedEvent):
        assert items[-1].response.output_text
        return "Stream[ResponseStreamEvent]"
    kind = type(items[0]).__name__
    pieces = (item.choices[0] for item in items if item.choices)
    is_chat = kind == "ChatCompletionChunk"
    text = "".join((it.delta.content or "") if is_chat else it.text for it in pieces)
    assert text.rstrip(".").split()[-1] in text.split(":")[0]  # Oracle's mark, at either end
    return f"Stream[{kind}]"


def made(call: str, client: openai.OpenAI) -> str:
    """What the call gives, used up, or the error that it raises."""
    try:
        value = eval(call, {"client": client, **KEPT})
    except openai.APIStatusError as error:
        return type(error).__name__
    if isinstance(value, openai.Stream):
        return of_stream(list(value))
    if hasattr(value, "__enter__"):
        with value as stream:
            assert stream.get_final_completion().choices[0].message.content
        return kind_of(stream)
    return kind_of(value.parse() if hasattr(value, "parse") else value)


async def made_async(call: str, address: str) -> str:
    """The same of the asynchronous client."""
    async with openai.AsyncOpenAI(base_url=address, api_key="none", max_retries=0) as client:
        try:
            value = eval(call, {"client": client, **KEPT})
            if hasattr(value, "__aenter__"):
                async with value as stream:
                    final = await stream.get_final_completion()
                    assert final.choices[0].message.content
                return kind_of(stream)
            value = await value
        except openai.APIStatusError as error:
            return type(error).__name__
        if isinstance(value, openai.AsyncStream):
            return of_stream([item async for item in value])
        return kind_of(value.parse() if hasattr(value, "parse") else value)


def test_the_table_has_all_that_is_claimed() -> None:
    assert len(ROWS) == 38
    assert {wanted for _, wanted in ROWS} >= {"SyncPage[Model]", "Response", "Stream[Completion]"}


@pytest.mark.parametrize(("call", "wanted"), ROWS)
def test_each_call_of_the_table_gives_what_it_says(place: Place, call: str, wanted: str) -> None:
    assert made(call, place.client) == wanted
    assert asyncio.run(made_async(call, f"{place.address}/v1")) == wanted


def test_past_the_limit_no_key_is_compared(tmp_path: Any) -> None:
    """Not even the right one, for that address, until the minute is over."""
    with serving(tmp_path, Oracle(), key="a key of some length") as place:
        wrong, right = ({"authorization": f"Bearer {k}"} for k in ("no", "a key of some length"))
        assert place.http.get("/v1/models", headers=right).status_code == 200
        codes = [place.http.get("/v1/models", headers=wrong).status_code for _ in range(12)]
        assert codes == [401] * 10 + [429] * 2
        refused = place.http.get("/v1/models", headers=right)
        assert refused.status_code == 429
        assert 0 < int(refused.headers["retry-after"]) <= 60


def test_the_key_of_a_server_has_no_line_break_and_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "a key of some length\n")
    assert api_key() == "a key of some length"
    monkeypatch.setenv(KEY, "short")
    with pytest.raises(PlanError, match="MARS_API_KEY must have at least 16 characters, got 5"):
        api_key()


def test_a_model_is_told_of_loaded_or_not(place: Place) -> None:
    listed = next(iter(place.client.models.list()))
    assert place.client.models.retrieve(NAME) == listed
    with pytest.raises(openai.NotFoundError, match="choose among scripted"):
        place.client.models.retrieve("a/b")


@pytest.mark.parametrize(
    ("number", "headers", "wanted"),
    [
        (0, [b"1.1.1.1"], "127.0.0.1"),
        (1, [], "127.0.0.1"),
        (1, [b"6.6.6.6, 1.1.1.1"], "1.1.1.1"),
        (1, [b"6.6.6.6", b"::1"], "::/64"),
        (1, [b"1.1.1.1:4711"], "1.1.1.1"),
        (1, [b"[2001:db8:1:2:3::4]:4711"], "2001:db8:1:2::/64"),
        (1, [b"2001:db8:1:2:ffff::9"], "2001:db8:1:2::/64"),
        (1, [b"::ffff:1.1.1.1"], "1.1.1.1"),
        (2, [b"6.6.6.6, 1.1.1.1 ,2.2.2.2"], "1.1.1.1"),
        (2, [b"1.1.1.1"], "127.0.0.1"),
        (1, [b"1.1.1.1,"], "127.0.0.1"),
    ],
)
def test_whose_a_request_is_behind_so_many_proxies(
    number: int, headers: list[bytes], wanted: str
) -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(address_of(scope["client"]))

    named = [(b"x-forwarded-for", value) for value in headers]
    scope = {"type": "http", "headers": named, "client": ("127.0.0.1", 5)}
    asyncio.run(Proxies(app, number)(scope, None, None))  # type: ignore[arg-type]
    assert seen == [wanted]
    assert address_of(None) == NOBODY


def test_no_header_makes_another_of_a_client_of_this_machine(slow: Place) -> None:
    for n in range(3):
        headers = {"x-forwarded-for": f"10.0.0.{n}"}
        stream = iter(chat(slow, stream=True, extra_headers=headers))
        next(stream)
    owners = {job.owner for job in slow.model.engine._scheduler._jobs()}
    assert owners == {"127.0.0.1"}


def test_the_number_of_proxies_is_a_whole_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, wanted in (("", 0), (" 2 ", 2)):
        monkeypatch.setenv(PROXIES, text)
        assert num_proxies() == wanted
    monkeypatch.setenv(PROXIES, "-1")
    with pytest.raises(PlanError, match="must be a whole number"):
        num_proxies()
