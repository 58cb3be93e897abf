"""Runs with earlier turns or a begun answer: what is checked, decoded, and has no room."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import ScriptedModel, peaked
from scripted_page import ScriptedBackend, controls, make_handlers
from test_handlers import lane_trace, last, lines_of

from app.handlers import Handlers
from app.live.lanes import FOREIGN
from app.live.order import (
    BRANCH_TITLE,
    MAX_TURNS,
    UNREADABLE_REQUEST,
    read_given,
    read_history,
)
from app.ui.controls import Limits, RefusalError
from mars_runtime import tasks
from mars_runtime.runs import folds
from mars_runtime.runs.trace import Trace
from mars_runtime.settings import MAX_NEW_TOKENS
from mars_runtime.text import Turn
from tests.engine.test_company import ModelBackend

EOS, MASK, SIZE = 257, 258, 260


@pytest.fixture
def backend() -> ScriptedBackend:
    return ScriptedBackend("lo, world")


@pytest.fixture
def handlers(tmp_path: Path, backend: ScriptedBackend) -> Iterator[Handlers]:
    made = make_handlers(tmp_path, backend)
    yield made
    made.engines.close()


def asked(**changes: object) -> str:
    return json.dumps(
        {"prompt": "Say hello.", "checkpoint": "scripted", "given": [72, 101], **changes}
    )


@pytest.mark.parametrize("value", [{}, [True], [1] * (MAX_NEW_TOKENS + 1)])
def test_what_cannot_be_given_is_a_sentence(value: object) -> None:
    """The last: more than any answer may have."""
    with pytest.raises(RefusalError, match=r"\.$") as caught:
        read_given(value, LIMITS)
    assert caught.value.field == "given"


@pytest.mark.parametrize("token", [EOS, MASK, 256, SIZE, -1])
def test_tokens_that_are_no_text_of_the_checkpoint_are_refused(
    handlers: Handlers, backend: ScriptedBackend, token: int
) -> None:
    values = controls(given=[72, token])
    said = lines_of(last(handlers.live.run("a", values)))[1][0][1]["message"]
    posted = asked(given=[72, token])
    assert list(handlers.live.run_from_view("a", posted, controls())) == [(None, said)]
    assert backend.num_forwards == 0


def test_given_tokens_follow_the_prompt_and_leave_the_whole_limit(
    handlers: Handlers, backend: ScriptedBackend
) -> None:
    values = controls(prompt="typed since", max_new_tokens=7, view="mars")
    actual = list(handlers.live.run_from_view("a", asked(), values))
    assert {sentence for _, sentence in actual} == {""}
    trace = lane_trace(actual[-1][0], "mars")
    assert trace.header.prompt == "Say hello."
    assert backend.prompts[0] == trace.header.prompt_ids
    assert trace.header.given == (72, 101)
    assert trace.header.settings.max_new_tokens == 7
    assert folds.num_tokens(trace.events) == 7
    assert folds.text(trace) == "Helo, wor"


def test_a_branch_is_one_lane_by_the_method_that_is_posted_with_it(
    handlers: Handlers, backend: ScriptedBackend
) -> None:
    value = list(handlers.live.run_from_view("a", asked(view=["mars"]), controls()))[-1][0]
    assert lines_of(value)[0]["lanes"] == [{"lane": "mars", "title": BRANCH_TITLE}]
    assert lane_trace(value, "mars").header.given == (72, 101)
    for posted in ("{", None, "[" * 9000):
        actual = list(handlers.live.run_from_view("a", posted, controls()))
        assert actual == [(None, UNREADABLE_REQUEST)]


class Vocabulary:
    """The bytes of the scripted page's tokenizer."""

    size, mask_id = SIZE, MASK
    eos_ids, forbidden_ids = frozenset({EOS}), frozenset({256, MASK, 259})


def foreseen(prefix: tuple[int, ...]) -> list[float]:
    """Letters that hang on all that came before; masks see them two times in three."""
    real = [token for token in prefix if token != MASK]
    for _ in range(len(prefix) - len(real)):
        real.append(random.Random(str(real[-4:])).randrange(97, 123))
    guess = random.Random(str(real[-4:])).randrange(97, 123)
    if MASK in prefix and random.Random(str(prefix)).random() < 0.33:
        guess = 97
    return peaked(guess, 9.0, SIZE)


LIMITS = Limits(max_prompt_chars=100, max_new_tokens=8, block_size=8)
START, END = 256, 257
TURN = {"prompt": "Why?", "tokens": [72, 105]}


@pytest.fixture
def because() -> ScriptedBackend:
    return ScriptedBackend("Because.")


@pytest.fixture
def chatting(tmp_path: Path, because: ScriptedBackend) -> Iterator[Handlers]:
    made = make_handlers(tmp_path, because, path=None)
    yield made
    made.engines.close()


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
        [{**TURN, "tokens": "72"}],
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
def test_control_and_unknown_tokens_are_no_answer(
    chatting: Handlers, because: ScriptedBackend, token: int
) -> None:
    values = controls(history=json.dumps([{"prompt": "Why?", "tokens": [72, token]}]))
    said = lines_of(last(chatting.live.run("a", values)))[1][0][1]["message"]
    assert said == FOREIGN
    assert because.num_forwards == 0


def test_earlier_turns_stand_before_the_prompt_and_in_the_header(
    chatting: Handlers, because: ScriptedBackend
) -> None:
    request = "<|im_end|> no control token"
    posted = [{"prompt": request, "tokens": list(b"Hi.")}]
    value = last(chatting.live.run("a", controls(prompt="And?", history=json.dumps(posted))))
    ids = chat(request, "Hi.", "And?")
    assert because.prompts == [tuple(ids)] * 2
    for lane in ("mars", "ar"):
        header = lane_trace(value, lane).header
        assert header.prompt_ids == tuple(ids)
        assert header.history == (Turn(request, tuple(b"Hi.")),)
        assert (header.prompt, header.num_left_out, header.room) == ("And?", 0, 100_000)


def test_only_what_the_model_wrote_after_a_task_alone_is_judged(
    chatting: Handlers, because: ScriptedBackend
) -> None:
    """Judging runs Python, so neither given tokens nor earlier turns may be judged."""
    task = next(task for task in tasks.examples() if tasks.is_checkable(task))
    answer = list(task.answer.encode())
    for changes, wrote, is_judged in (
        ({}, answer, True),
        ({"given": answer[:-1]}, answer[-1:], False),
        ({"history": [TURN]}, answer, False),
    ):
        because.text = bytes(wrote).decode()
        values = controls(prompt=task.prompt, max_new_tokens=512, **changes)
        tags = {tag for tag, _ in lines_of(last(chatting.live.run("a", values)))[1]}
        assert ("verdict" in tags) is is_judged


def answer_of(trace: Trace) -> list[int]:
    steps = folds.row_steps(trace.events)
    return [token for step, _ in steps for token in folds.visible_tokens(step)]


def test_turns_of_a_scripted_model_equal_ar(tmp_path: Path) -> None:
    """Lossless is AR on the same history at each turn, and each prompt begins with what the cache
    of the turn before holds."""
    model = ScriptedModel(foreseen, vocab_size=SIZE, max_positions=4096)
    chatting = make_handlers(tmp_path, ModelBackend(model, Vocabulary(), 4000), path=None)  # type: ignore[arg-type]
    history: list[dict[str, object]] = []
    before: tuple[int, ...] = ()
    counts = [0, 0]
    for turn in range(5):
        prompt = f"Question {turn}?"
        values = controls(
            prompt=prompt, history=json.dumps(history), max_new_tokens=24,
            **{"lossless": True, "tau": 0.0, "mask_layout": "every", "lookup": True},
        )  # fmt: skip
        value = last(chatting.live.run("a", values))
        mars, ar = (lane_trace(value, lane) for lane in ("mars", "ar"))
        assert answer_of(mars) == answer_of(ar) != []
        assert mars.header.prompt_ids == ar.header.prompt_ids
        assert mars.header.history == ar.header.history
        assert mars.header.prompt_ids[: len(before)] == before
        before = (*mars.header.prompt_ids, *answer_of(mars))
        history.append({"prompt": prompt, "tokens": answer_of(ar)})
        for i, trace in enumerate((mars, ar)):
            counts[i] += folds.num_forwards(trace.events)
    assert len(mars.header.history) == 4
    assert counts[0] < counts[1]
    chatting.engines.close()
