"""Batches of prompts, the bookkeeping of their rows, and Jacobi decoding by hand."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest
from helpers import Ids, ScriptedModel, foresight_script, peaked, steps_of, tokens_of

from mars_runtime.decoders.cursor import decode, decode_queue
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.decoders.methods import METHODS
from mars_runtime.errors import DecodeError
from mars_runtime.runs import folds
from mars_runtime.runs.events import FINAL, Event, Prefill, Step
from mars_runtime.runs.folds import drafting
from mars_runtime.settings import DecodeSettings, MaskLayout

IDS = Ids()
SETTINGS = DecodeSettings(tau=0.6, max_new_tokens=14)
PROMPTS = [[3, 4, 5], [6], [7, 8, 9, 10, 11], [12, 3], [4, 4, 4]]


@pytest.mark.parametrize("num_rows", [1, 2, 9])
@pytest.mark.parametrize("lossless", [False, True])
def test_a_queue_keeps_its_rows_full(num_rows: int, lossless: bool) -> None:
    settings = DecodeSettings(tau=0.6, max_new_tokens=14, lossless=lossless)

    def decoded(prompts: list[list[int]], rows: int) -> list[Event]:
        model = ScriptedModel(foresight_script(5))
        return list(decode_queue(model, IDS, prompts, lambda: settings, rows))

    events = decoded(PROMPTS, num_rows)
    num_joined, ended = 0, 0
    for event in events:
        if isinstance(event, Prefill):
            num_joined += 1
        elif isinstance(event, Step):
            assert len(event.rows) == min(num_rows, num_joined - ended)
            assert num_joined == len(PROMPTS) or len(event.rows) == num_rows
            ended += sum(row.stop in FINAL for row in event.rows)
    assert num_joined == ended == len(PROMPTS)
    alone = [tokens_of(decoded([prompt], 1))[0] for prompt in PROMPTS]
    assert tokens_of(events, len(PROMPTS)) == alone
    with pytest.raises(DecodeError, match="token ids outside"):
        decode_queue(ScriptedModel(foresight_script(1)), IDS, [[99]], lambda: settings, 2)


def test_without_a_mask_token_only_ar_works() -> None:
    ids, model = Ids(mask_id=None), ScriptedModel(foresight_script(1))
    with pytest.raises(DecodeError, match="no mask token"):
        list(decode(model, ids, [[3]], lambda: SETTINGS))
    assert tokens_of(decode(model, ids, [[3]], lambda: replace(SETTINGS, method="ar")))[0]


def test_a_model_is_freed_at_once_after_its_runs() -> None:
    model = ScriptedModel(foresight_script(0))
    list(decode(model, IDS, [[3, 4]], lambda: SETTINGS))
    alive = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("more", [0.02, 0.3, 1.0])
@pytest.mark.parametrize("mask_layout", ["last", "every"])
def test_auto_in_a_batch_costs_at_most_what_ar_does(more: float, mask_layout: MaskLayout) -> None:
    """A row that drafts widens the forward of all rows. If that is expensive no row drafts alone:
    the whole batch takes little more time than AR at the given costs, probes included.
    """
    model = ScriptedModel(foresight_script(5, 0.002))
    curve = tuple(1 + more * place for place in range(32))
    costs = ForwardCosts(8, {1: curve, 8: curve})
    auto = DecodeSettings(
        tau=0.0, block_size="auto", lossless=True, mask_layout=mask_layout, max_new_tokens=150
    )
    ar = replace(auto, method="ar")
    prompts = [[3 + place] * (1 + place % 4) for place in range(8)]

    mars = folds.steps(decode(model, IDS, prompts, lambda: auto, costs))
    plain = folds.steps(decode(model, IDS, prompts, lambda: ar))
    spent = sum(curve[max(row.num_fed for row in step.rows) - 1] for step in mars)
    assert spent <= 1.05 * len(plain)


def after_two(prefix: tuple[int, ...]) -> list[float]:
    """Say 3 after two 3s, and 5 before."""
    return peaked(3 if prefix[-2:] in ((3, 3), (5, 3)) else 5 if prefix[-1] == 3 else 3)


def test_guesses_of_jacobi_behind_the_answers_say_the_last_token_again() -> None:
    first_guesses = METHODS["jacobi"].guesses
    assert first_guesses(7, [], 3, frozenset({0})) == [7, 7, 7]
    assert first_guesses(7, [8, 9], 3, frozenset({0})) == [9]
    assert first_guesses(7, [8, 9], 2, frozenset({0})) == []
    assert first_guesses(7, [8, 0], 5, frozenset({0})) == []


def test_jacobi_by_hand() -> None:
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
