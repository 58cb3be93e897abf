"""Runs whose output is given a beginning: what is checked, what is decoded, what is not judged."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import ScriptedModel, peaked
from scripted_page import ScriptedBackend, controls, make_handlers
from test_handlers import lane_trace, last, lines_of

from app.controls import RefusalError
from app.handlers import Handlers
from app.live.order import read_given
from mars_runtime import folds, tasks
from mars_runtime.settings import DecodeSettings
from tests.engine.test_company import ModelBackend

EOS, MASK, SIZE = 257, 258, 260
SETTINGS = DecodeSettings(max_new_tokens=4)


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


@pytest.mark.parametrize("nothing", [None, "", []])
def test_nothing_given_is_a_plain_run(nothing: object) -> None:
    assert read_given(nothing, SETTINGS) == ()


@pytest.mark.parametrize("value", [3, "[1]", {}, [1.0], ["1"], [None], [True], [[1]], [1] * 4])
def test_what_cannot_be_given_is_a_sentence(value: object) -> None:
    """The last: as many as may be written in all."""
    with pytest.raises(RefusalError, match=r"\.$") as caught:
        read_given(value, SETTINGS)
    assert caught.value.field == "given"


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        (EOS, "This token ends the text"),
        (MASK, "control token"),
        (256, "control token"),
        (SIZE, "not of this checkpoint"),
        (-1, "not of this checkpoint"),
    ],
)
def test_tokens_that_are_no_text_of_the_checkpoint_are_refused(
    handlers: Handlers, backend: ScriptedBackend, token: int, sentence: str
) -> None:
    values = controls(given=[72, token])
    refusal = handlers.live.check(values)
    assert refusal is not None
    assert sentence in str(refusal)
    assert sentence in lines_of(last(handlers.live.run("a", values)))[1][0][1]["message"]
    found = list(handlers.live.run_from_view("a", asked(given=[72, token]), controls()))
    assert [(value, sentence in said) for value, said in found] == [(None, True)]
    assert backend.num_forwards == 0


@pytest.mark.parametrize("value", ["", "{", "[]", "3", None, 7, "[" * 9000])
def test_what_was_asked_and_cannot_be_read_begins_nothing(
    handlers: Handlers, value: object
) -> None:
    ((began, sentence),) = handlers.live.run_from_view("a", value, controls())
    assert began is None
    assert sentence.endswith("press Run instead.")


def test_given_tokens_follow_the_prompt_and_count_among_the_limit(
    handlers: Handlers, backend: ScriptedBackend
) -> None:
    values = controls(prompt="typed since", max_new_tokens=7, view="mars")
    found = list(handlers.live.run_from_view("a", asked(), values))
    assert {sentence for _, sentence in found} == {""}
    trace = lane_trace(found[-1][0], "mars")
    assert trace.header.prompt == "Say hello."
    assert backend.prompts[0] == trace.header.prompt_ids
    assert trace.header.given == (72, 101)
    assert trace.header.settings.max_new_tokens == 5
    assert folds.num_tokens(trace.events) == 5
    assert folds.text(trace) == "Helo, w"


def test_what_a_visitor_gave_is_never_judged(
    handlers: Handlers, backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Judging runs Python: nobody but the model may have written it."""
    judged: list[str] = []

    def check(task: tasks.Task, text: str) -> bool:
        judged.append(text)
        return True

    monkeypatch.setattr(tasks, "check", check)
    task = next(task for task in tasks.examples() if tasks.is_checkable(task))
    prompt = handlers.book.prompt(task.family, 0)
    task = handlers.book.task(prompt)
    whole = list(task.answer.encode())
    backend.text = bytes(whole[-1:]).decode()
    values = controls(prompt=prompt, max_new_tokens=512, given=whole[:-1])
    lines = lines_of(last(handlers.live.run("a", values)))[1]
    assert (judged, "verdict" in dict(lines)) == ([], False)
    lines = lines_of(last(handlers.live.run("a", {**values, "given": []})))[1]
    assert judged == [backend.text] * 2
    assert [data["right"] for tag, data in lines if tag == "verdict"] == [True, True]


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


def test_lossless_from_a_branch_equals_ar_from_the_same_branch(tmp_path: Path) -> None:
    backend = ModelBackend(ScriptedModel(foreseen, vocab_size=SIZE), Vocabulary(), 200)
    handlers = make_handlers(tmp_path, backend)  # type: ignore[arg-type]
    bold = controls(lossless=True, tau=0.0, max_new_tokens=40)
    first = lane_trace(last(handlers.live.run("a", bold)), "mars")
    tokens = folds.accepted_tokens(first.events)
    texts = {folds.text(first)}
    for place in (0, 7, 30):
        given = [*tokens[:place], 97 if tokens[place] != 97 else 98]
        value = last(handlers.live.run("a", {**bold, "given": given}))
        lanes = [lane_trace(value, lane) for lane in ("mars", "ar")]
        found = [folds.accepted_tokens(lane.events) for lane in lanes]
        assert found[0] == found[1]
        assert len(found[0]) == 40 - len(given)
        assert folds.num_forwards(lanes[0].events) < folds.num_forwards(lanes[1].events)
        assert folds.text(lanes[0]) == bytes([*given, *found[0]]).decode()
        texts.add(folds.text(lanes[0]))
    assert len(texts) == 4
    handlers.engines.close()
