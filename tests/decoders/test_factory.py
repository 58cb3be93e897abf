"""Which batch decodes where, and what is kept for the next run."""

from __future__ import annotations

import gc
import math
import weakref

import pytest
from helpers import Ids, foresight_script, peaked, tokens_of
from static_scripted import StaticScriptedModel

from mars_runtime.acceptance import DecodeError
from mars_runtime.decoders import CursorBatch, decode, new_batch
from mars_runtime.decoders.factory import MAX_KEPT
from mars_runtime.decoders.forced import ForcedAcceptance
from mars_runtime.decoders.static.batch import StaticBatch
from mars_runtime.settings import DecodeSettings

IDS = Ids()
ONE_EACH = ForcedAcceptance((1.0,))
SHORT = DecodeSettings(max_new_tokens=8)


def kept(model: StaticScriptedModel) -> list[StaticBatch]:
    return [batch for _, batch in model.kept.get("idle batches", [])]


def forced_run(model: StaticScriptedModel, num_rows: int, limit: int = 8, **options: int) -> list:
    """Forced acceptance asks for static steps on a CPU as well."""
    settings = DecodeSettings(max_new_tokens=limit)
    prompts = [[3, 4 + row] for row in range(num_rows)]
    return list(decode(model, IDS, prompts, lambda: settings, forced=ONE_EACH, **options))


def test_a_cpu_gets_exact_steps_unless_acceptance_is_forced() -> None:
    model = StaticScriptedModel(foresight_script(0))
    assert isinstance(new_batch(model, IDS, 1, 64), CursorBatch)
    list(decode(model, IDS, [[3]], lambda: SHORT))
    assert not kept(model)
    forced_run(model, 1)
    assert [type(batch) for batch in kept(model)] == [StaticBatch]


def test_a_batch_is_used_again_where_it_fits() -> None:
    model = StaticScriptedModel(foresight_script(0), max_positions=4096)
    first = forced_run(model, 3)
    (batch,) = kept(model)
    assert forced_run(model, 3) == first
    forced_run(model, 4)  # three rows were rounded up to four
    assert kept(model) == [batch]
    forced_run(model, 5)
    forced_run(model, 2, limit=700)
    assert len(kept(model)) == MAX_KEPT
    assert batch not in kept(model)  # the oldest makes room


def test_two_runs_at_a_time_have_a_batch_each() -> None:
    model = StaticScriptedModel(foresight_script(0))
    runs = [decode(model, IDS, [[3, 4]], lambda: SHORT, forced=ONE_EACH) for _ in range(2)]
    for left, right in zip(*runs, strict=True):
        assert left == right
    assert len({id(batch) for batch in kept(model)}) == 2


def test_an_aborted_run_gives_its_batch_back_empty() -> None:
    model = StaticScriptedModel(foresight_script(0))
    run = decode(model, IDS, [[3], [4]], lambda: SHORT, forced=ONE_EACH, steps_per_read=4)
    next(run), next(run)
    run.close()
    assert [batch.rows for batch in kept(model)] == [()]
    assert tokens_of(forced_run(model, 2, steps_per_read=4), 2) == tokens_of(
        forced_run(StaticScriptedModel(foresight_script(0)), 2), 2
    )


def test_a_model_that_nobody_holds_is_gone_with_what_it_kept() -> None:
    model = StaticScriptedModel(foresight_script(0))
    forced_run(model, 1)
    alive = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert alive() is None
    finally:
        gc.enable()


def test_a_batch_that_failed_is_not_kept() -> None:
    model = StaticScriptedModel(lambda prefix: [math.nan] * 18)
    with pytest.raises(DecodeError, match="not a number"):
        forced_run(model, 1)
    assert not kept(model)


def test_what_cannot_fit_is_told_at_once() -> None:
    model = StaticScriptedModel(peaked)
    with pytest.raises(DecodeError, match="at least one prompt"):
        decode(model, IDS, [], lambda: SHORT, forced=ONE_EACH)
    with pytest.raises(DecodeError, match="this model holds"):
        decode(model, IDS, [[3] * 600], lambda: SHORT, forced=ONE_EACH)
