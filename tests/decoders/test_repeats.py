"""A run ends where its text begins to repeat itself, in every exact method at the same token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from helpers import Ids, ScriptedModel, peaked, steps_of, tokens_of
from law_checkpoints import models_of

from mars_runtime.decoders import diffusion
from mars_runtime.decoders.cursor import CursorBatch, decode, decode_on
from mars_runtime.decoders.draft_model import DraftModel
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.runs.events import Event
from mars_runtime.runs.loops import MIN_REPEATED, find_loop
from mars_runtime.settings import MASK_LAYOUTS, DecodeSettings

IDS = Ids()
COSTS = ForwardCosts(8, {1: (1.0, 1.05, 1.1, 1.2), 4: (1.0, 1.05, 1.1, 1.2)})
ON = DecodeSettings("ar", max_new_tokens=90, stop_loops=True)
PERIOD = 5
PROMPT = [4, 9]
Script = Callable[[tuple[int, ...]], Sequence[float]]


def circling(prefix: tuple[int, ...]) -> list[float]:
    """A text that cycles through five tokens from its tenth on, as masks predict."""
    at = len(prefix) - len(PROMPT)
    return peaked(3 + at if at < 10 else 3 + at % PERIOD)


def run(script: Script, settings: DecodeSettings, prompt: Sequence[int] = PROMPT) -> list[Event]:
    draft = models_of(DraftModel(ScriptedModel(circling), IDS, 4))
    return list(
        decode(ScriptedModel(script), IDS, [prompt], lambda: settings, COSTS, draft_models=draft)
    )


WHOLE = tokens_of(run(circling, replace(ON, stop_loops=False)))[0]
assert len(WHOLE) == 90, "without the setting nothing ends early"
END = find_loop(WHOLE)
assert END is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "ar"},
        {"method": "jacobi", "block_size": 7},
        {"method": "speculative", "block_size": 6},
        *[
            {"method": "mars", "tau": 0.0, "block_size": size, "lossless": True,
             "mask_layout": mask_layout, "lookup": lookup}
            for size in (2, 7, "auto") for mask_layout in MASK_LAYOUTS for lookup in (False, True)
        ],
    ],
)  # fmt: skip
def test_every_exact_way_stops_with_the_same_token(changes: dict[str, Any]) -> None:
    settings = replace(ON, **changes)
    events = run(circling, settings)
    assert tokens_of(events) == [WHOLE[: END.end]]
    steps = steps_of(events)
    assert [step.stop for step in steps].index("repeats") == len(steps) - 1
    assert steps[-1].drafts == ()
    if settings.method != "ar":
        assert max(len(step.accepted) for step in steps) > 1


def test_rows_of_a_batch_stop_each_for_itself() -> None:
    """A prompt of another length reaches the loop earlier; the batch continues without it."""
    settings = replace(ON, method="mars", tau=0.0, block_size=4, lossless=True)
    batch = CursorBatch(ScriptedModel(circling), IDS, 2, 120)
    prompts = [PROMPT, [*PROMPT, 3, 4, 5]]
    events = list(decode_on(batch, prompts, lambda: settings))
    for row, prompt in enumerate(prompts):
        assert tokens_of(events, 2)[row] == tokens_of(run(circling, ON, prompt))[0]
        assert steps_of(events, row)[-1].stop == "repeats"


def test_the_limit_and_the_end_of_the_text_come_first_where_they_do() -> None:
    for limit, stop in ((END.end - 1, "limit"), (END.end, "repeats")):
        steps = steps_of(run(circling, replace(ON, max_new_tokens=limit)))
        assert steps[-1].stop == stop

    def ending(prefix: tuple[int, ...]) -> list[float]:
        at = len(prefix) - len(PROMPT)
        return peaked(2) if at == END.end - 2 else circling(prefix)

    assert steps_of(run(ending, ON))[-1].stop == "eos"


def test_blocks_that_are_filled_in_any_order_stop_too() -> None:
    """Every position predicts 7: the text loops from its first token on."""
    settings = replace(ON, method="block_diffusion", tau=0.5, block_size=8)
    model = ScriptedModel(lambda prefix: peaked(7))
    events = list(diffusion.decode(model, IDS, PROMPT, lambda: settings, 8))
    assert tokens_of(events) == [[7] * (MIN_REPEATED + 1)]
    assert steps_of(events)[-1].stop == "repeats"
