"""Runs with earlier turns or a begun answer: what is checked, decoded, and has no room."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_page import ScriptedBackend, controls, make_handlers
from test_handlers import lane_trace, last, lines_of

from app.handlers import Handlers
from app.live.lanes import FOREIGN
from app.live.order import (
    BRANCH_TITLE,
    MAX_TURNS,
    read_given,
    read_history,
)
from app.ui.controls import Limits, RefusalError
from mars_runtime import tasks
from mars_runtime.runs import folds
from mars_runtime.settings import MAX_NEW_TOKENS
from mars_runtime.text import Turn

START, END, MASK, SIZE = 256, 257, 258, 260


@pytest.fixture
def backend() -> ScriptedBackend:
    return ScriptedBackend("lo, world")


@pytest.fixture
def handlers(tmp_path: Path, backend: ScriptedBackend) -> Iterator[Handlers]:
    made = make_handlers(tmp_path, backend, path=None)
    yield made
    made.engines.close()


@pytest.mark.parametrize("value", [{}, [True], [1] * (MAX_NEW_TOKENS + 1)])
def test_what_cannot_be_given_is_a_sentence(value: object) -> None:
    """The last: more than any answer may have."""
    with pytest.raises(RefusalError, match=r"\.$") as caught:
        read_given(value, LIMITS)
    assert caught.value.field == "given"


@pytest.mark.parametrize("token", [END, MASK, START, SIZE, -1])
def test_control_tokens_cannot_be_given(
    handlers: Handlers, backend: ScriptedBackend, token: int
) -> None:
    refusal = handlers.live.check(controls(given=[72, token]))
    assert refusal is not None
    assert refusal.field == "given"
    assert backend.num_forwards == 0


def test_given_tokens_follow_the_prompt(handlers: Handlers, backend: ScriptedBackend) -> None:
    values = controls(given=[72, 101], max_new_tokens=7, view=["mars"])
    value = last(handlers.live.run("a", values))
    assert lines_of(value)[0]["lanes"] == [{"lane": "mars", "title": BRANCH_TITLE}]
    trace = lane_trace(value, "mars")
    assert backend.prompts[0] == trace.header.prompt_ids
    assert trace.header.given == (72, 101)
    assert trace.header.settings.max_new_tokens == 7
    assert folds.num_tokens(trace.events) == 7
    assert folds.text(trace) == "Helo, wor"


LIMITS = Limits(max_prompt_chars=100, max_new_tokens=8, block_size=8)
TURN = {"prompt": "Why?", "tokens": [72, 105]}


def chat(*said: str) -> list[int]:
    """Questions and answers by turns as ids, open for the next answer; written by hand."""
    roles = ["user", "assistant"] * len(said)
    pairs = zip(roles, said, strict=False)
    turns = [[START, *f"{role}\n{text}".encode(), END, 10] for role, text in pairs]
    return [token for turn in turns for token in turn] + [START, *b"assistant\n"]


@pytest.mark.parametrize(
    "value",
    [
        "[" * 9000,
        ["Why?"],
        [{**TURN, "prompt": " "}],
        [{**TURN, "prompt": "x" * 101}],
        [{**TURN, "prompt": "\ud800"}],
        [{**TURN, "tokens": [[72]]}],
        [{**TURN, "tokens": [72] * (MAX_NEW_TOKENS + 1)}],
        [TURN] * (MAX_TURNS + 1),
    ],
)
def test_an_invalid_conversation_is_an_error_at_the_prompt(value: object) -> None:
    """The last but one: more tokens than any answer may have."""
    with pytest.raises(RefusalError, match="Press New conversation") as caught:
        read_history(value, LIMITS)
    assert caught.value.field == "prompt"


@pytest.mark.parametrize("token", [END, -1, 2**70])
def test_control_tokens_are_no_answer(
    handlers: Handlers, backend: ScriptedBackend, token: int
) -> None:
    values = controls(history=json.dumps([{"prompt": "Why?", "tokens": [72, token]}]))
    said = lines_of(last(handlers.live.run("a", values)))[1][0][1]["message"]
    assert said == FOREIGN
    assert backend.num_forwards == 0


def test_earlier_turns_precede_the_prompt(handlers: Handlers, backend: ScriptedBackend) -> None:
    request = "<|im_end|> no control token"
    posted = [{"prompt": request, "tokens": list(b"Hi.")}]
    value = last(handlers.live.run("a", controls(prompt="And?", history=json.dumps(posted))))
    ids = chat(request, "Hi.", "And?")
    assert backend.prompts == [tuple(ids)] * 2
    for lane in ("mars", "ar"):
        header = lane_trace(value, lane).header
        assert header.prompt_ids == tuple(ids)
        assert header.history == (Turn(request, tuple(b"Hi.")),)
        assert (header.prompt, header.num_left_out, header.room) == ("And?", 0, 100_000)


def test_only_text_of_the_model_is_judged(handlers: Handlers, backend: ScriptedBackend) -> None:
    """Judging runs Python, so neither given tokens nor earlier turns may be judged."""
    task = next(task for task in tasks.examples() if tasks.is_checkable(task))
    answer = list(task.answer.encode())
    for changes, wrote, is_judged in (
        ({}, answer, True),
        ({"given": answer[:-1]}, answer[-1:], False),
        ({"history": [TURN]}, answer, False),
    ):
        backend.text = bytes(wrote).decode()
        values = controls(prompt=task.prompt, max_new_tokens=512, **changes)
        tags = {tag for tag, _ in lines_of(last(handlers.live.run("a", values)))[1]}
        assert ("verdict" in tags) is is_judged
