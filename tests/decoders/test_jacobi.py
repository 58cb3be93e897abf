"""Jacobi decoding by hand: what it guesses, feeds and accepts."""

from __future__ import annotations

from helpers import Ids, ScriptedModel, peaked, steps_of, tokens_of

from mars_runtime.decoders.cursor import decode
from mars_runtime.decoders.methods import METHODS
from mars_runtime.runs.folds import drafting
from mars_runtime.settings import DecodeSettings


def after_two(prefix: tuple[int, ...]) -> list[float]:
    """Say 3 after two 3s, and 5 before."""
    return peaked(3 if prefix[-2:] in ((3, 3), (5, 3)) else 5 if prefix[-1] == 3 else 3)


def test_guesses_behind_the_answers_say_the_last_token_again() -> None:
    first_guesses = METHODS["jacobi"].guesses
    assert first_guesses(7, [], 3, frozenset({0})) == [7, 7, 7]
    assert first_guesses(7, [8, 9], 3, frozenset({0})) == [9]
    assert first_guesses(7, [8, 9], 2, frozenset({0})) == []
    assert first_guesses(7, [8, 0], 5, frozenset({0})) == []


def test_by_hand() -> None:
    """The text is 4, then 3 5 3 3 3 ...; B = 3."""
    settings = DecodeSettings("jacobi", block_size=3, max_new_tokens=6)
    events = list(decode(ScriptedModel(after_two), Ids(mask_id=None), [[4]], lambda: settings))
    steps = steps_of(events)
    assert tokens_of(events) == [[3, 5, 3, 3, 3, 3]]
    # 4 | 4 -> 3 is no guess yet; [3 | 3 3] -> 5 3 3; [5 | 3 3] -> all are right
    assert [step.accepted for step in steps] == [(3,), (5,), (3, 3, 3), (3,)]
    assert [step.drafts for step in steps] == [(3, 3), (3, 3), (), ()]
    assert [step.guessed for step in steps] == [(3, 3), (), (), ()]
    assert [step.num_drafted for step in steps] == [0, 2, 0, 0]
    assert [step.num_pending for step in steps] == [1, 3, 3, 1]
    assert [step.num_fed for step in steps] == [1, 3, 3, 1]
    assert [step.stop for step in steps] == ["block", "mismatch", "block", "limit"]
    assert list(drafting(events)) == [(2, 0), (2, 2)]
