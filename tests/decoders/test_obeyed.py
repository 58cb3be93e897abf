"""Every setting changes what a ``CursorBatch`` decodes."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from helpers import Ids, ScriptedModel, foresight_script

from mars_runtime.decoders.cursor import CursorBatch, decode_on
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.runs.events import RowStep, Step
from mars_runtime.settings import METRICS, SETTINGS, TAU_POLICIES, DecodeSettings

COSTS = ForwardCosts(8, {1: (1.0, 1.1, 1.2, 1.3)})
BASES = (
    DecodeSettings(tau=0.3, block_size=6, max_new_tokens=20),
    DecodeSettings(tau=0.0, block_size=5, lossless=True, max_new_tokens=20),
    DecodeSettings(tau=0.3, block_size=4, max_new_tokens=20, temperature=1.5, seed=3),
    DecodeSettings(tau=0.5, block_size=6, max_new_tokens=20, tau_policy="agreement"),
    DecodeSettings(tau=0.3, block_size=4, max_new_tokens=20, lossless=True, lookup=True),
)
VALUES: dict[str, tuple[object, ...]] = {
    "method": ("ar", "jacobi"),
    "tau": (0.0, 0.95),
    "block_size": (1, 3, 16, "auto"),
    "metric": METRICS,
    "lossless": (True, False),
    "max_new_tokens": (3, 11),
    "temperature": (0.0, 2.0),
    "top_p": (0.05, 0.5),
    "seed": (1, 2),
    "mask_layout": ("every",),
    "lookup": (True,),
    "tau_policy": TAU_POLICIES,
    "agreement_target": (0.5, 0.99),
    "repetition_penalty": (1.3, 2.0),
    "presence_penalty": (2.0,),
    "frequency_penalty": (2.0,),
    "logit_bias": (((5, 30.0),),),
    "top_k": (1, 3),
    "min_p": (0.05, 0.5),
    "min_tokens": (20,),
    "ignore_eos": (True,),
}
ELSEWHERE = {"draft", "masked", "stop_loops"}
"""Settings tested where their situation is: the first two in tests/decoders/test_speculative.py,
which has a draft model, ``stop_loops`` in test_repeats.py."""


def decoded(settings: DecodeSettings) -> list[RowStep]:
    batch = CursorBatch(ScriptedModel(foresight_script(1)), Ids(), 1, 64, COSTS)
    events = decode_on(batch, [[3, 4, 5, 3, 4, 5, 3, 4]], lambda: settings)
    rows = [row for event in events if isinstance(event, Step) for row in event.rows]
    assert {replace(row.settings, block_size=1) for row in rows} == {
        replace(settings, block_size=1)
    }
    return [replace(row, settings=BASES[0]) for row in rows]


def test_every_setting_is_covered() -> None:
    assert {*VALUES, *ELSEWHERE} == SETTINGS.keys()


@pytest.mark.parametrize("name", VALUES)
def test_a_setting_changes_the_decoding(name: str) -> None:
    pairs = product(BASES, VALUES[name])
    assert any(decoded(replace(base, **{name: value})) != decoded(base) for base, value in pairs)
