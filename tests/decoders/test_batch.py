"""Batches of prompts, and the bookkeeping of their rows."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest
from helpers import Ids, ScriptedModel, foresight_script, tokens_of

from mars_runtime.decoders.cursor import decode, decode_queue
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.errors import DecodeError
from mars_runtime.runs import folds
from mars_runtime.runs.events import FINAL, Event, Prefill, Step
from mars_runtime.settings import DecodeSettings, MaskLayout

IDS = Ids()
SETTINGS = DecodeSettings(tau=0.6, max_new_tokens=14)
PROMPTS = [[3, 4, 5], [6], [7, 8, 9, 10, 11], [12, 3], [4, 4, 4]]


@pytest.mark.parametrize("num_rows", [1, 2, 9])
@pytest.mark.parametrize("lossless", [False, True])
def test_a_queue_keeps_its_rows_full_and_gives_each_prompt_its_text(
    num_rows: int, lossless: bool
) -> None:
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


def test_the_reserved_cache_is_reported() -> None:
    """The scripted cache has a byte a slot; rows have slack for 64 tokens."""
    events = decode(ScriptedModel(foresight_script(5)), IDS, [[3, 4, 5], [6]], lambda: SETTINGS)
    assert folds.peak_cache_bytes(list(events)) == 2 * 81


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
