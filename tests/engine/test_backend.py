"""The engine on a real (random) checkpoint: the decoders' own output, timed, on one thread."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mars_runtime import folds
from mars_runtime.cache import BlockKVCache
from mars_runtime.decoders import decode
from mars_runtime.engine import Engine, Request, RequestError, backend
from mars_runtime.engine.backend import CheckpointBackend, as_backend, num_threads, sentence
from mars_runtime.engine.costs import MANY, _rising
from mars_runtime.engine.header import make_header
from mars_runtime.engine.memory import Room, room_for
from mars_runtime.events import End, Event, Prefill
from mars_runtime.machine import device_name, versions
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.settings import MAX_FED, DecodeSettings
from tests.native_models import native_model
from tests.tiny_checkpoint import write_checkpoint

AR = DecodeSettings(method="ar", max_new_tokens=40)
MARS = DecodeSettings(tau=0.02, block_size=4, max_new_tokens=40)
LOSSLESS = replace(MARS, lossless=True, tau=0.0)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    torch.set_num_threads(1)
    folder: Path = write_checkpoint(tmp_path_factory.mktemp("random"))
    return load_checkpoint(str(folder), device="cpu")


def prompt(checkpoint: Checkpoint, text: str = "Count 12 foxes") -> list[int]:
    return checkpoint.tokenizer.encode_prompt(text)


def without_seconds(events: tuple[Event, ...] | list[Event]) -> list[Event]:
    """Nor bytes: keys and values of a run may be a part of what many share."""
    kept = [event for event in events if not isinstance(event, End)]
    own = [replace(e, cache_bytes=0) if isinstance(e, Prefill) else e for e in kept]
    return [replace(event, seconds=0.0) for event in own]


def outlines(events: tuple[Event, ...] | list[Event]) -> list[tuple[object, ...]]:
    """What each step decided, apart from how it was fed: company may ask for more masks."""
    return [
        (step.start, [slot.token for slot in step.proposals], step.accepted, step.stop)
        for step, _ in folds.row_steps(events)
    ]


def test_a_run_in_company_equals_the_run_alone(checkpoint: Checkpoint) -> None:
    asked = [(prompt(checkpoint, text), s) for text in ("Hello", "345 <") for s in (AR, MARS)]
    with Engine(checkpoint, max_runs=4) as engine:
        runs = [engine.submit(Request(ids, settings)) for ids, settings in asked]
        assert all(run.wait(120) for run in runs)
    for (ids, settings), run in zip(asked, runs, strict=True):
        alone = list(
            decode(checkpoint.model, checkpoint.tokenizer, [ids], lambda now=settings: now)
        )
        assert without_seconds(run.events_since(0)[:1]) == without_seconds(alone[:1])
        assert outlines(run.events_since(0)) == outlines(alone)
        assert folds.decode_seconds(run.events_since(0)) > 0


def test_one_run_by_itself_is_the_decoder_to_the_last_bit(checkpoint: Checkpoint) -> None:
    ids = prompt(checkpoint)
    with Engine(checkpoint) as engine:
        for settings in (AR, MARS, LOSSLESS):
            found = list(engine.submit(Request(ids, settings)))
            alone = decode(checkpoint.model, checkpoint.tokenizer, [ids], lambda now=settings: now)
            assert without_seconds(found) == without_seconds(list(alone))


def test_a_race_of_lossless_and_ar_ends_in_the_same_tokens(checkpoint: Checkpoint) -> None:
    ids = prompt(checkpoint)
    with Engine(checkpoint) as engine:
        lossless, ar = engine.race([Request(ids, LOSSLESS), Request(ids, AR)])
        assert lossless.wait(120)
        assert ar.wait(120)
    assert folds.first_divergence(lossless.events_since(0), ar.events_since(0)) is None
    assert folds.accepted_tokens(ar.events_since(0)) == folds.accepted_tokens(
        lossless.events_since(0)
    )


def test_settings_and_method_may_change_in_mid_run(checkpoint: Checkpoint) -> None:
    """Law 5 on the engine: earlier steps are those of the first settings alone."""
    ids = prompt(checkpoint)
    with Engine(checkpoint) as engine:
        run = engine.submit(Request(ids, MARS), pace=20.0)
        alone = engine.submit(Request(ids, MARS))
        for settings in (LOSSLESS, AR, replace(MARS, tau=1.0, block_size=8)):
            seen = len(run.events_since(0))
            while len(run.events_since(0)) < seen + 3 and not run.is_finished:
                run.wait(0.002)
            run.settings = settings
        run.pace = 0
        assert run.wait(120)
        assert alone.wait(120)
    steps = [step for step, _ in folds.row_steps(run.events_since(0))]
    count = sum(step.settings == MARS for step in steps)
    assert count
    assert {step.settings for step in steps[:count]} == {MARS}
    assert outlines(run.events_since(0))[:count] == outlines(alone.events_since(0))[:count]
    assert folds.end(run.events_since(0)) in (End("limit"), End("eos"))


def test_what_does_not_fit_is_refused_at_once(checkpoint: Checkpoint) -> None:
    backend = CheckpointBackend(checkpoint)
    room = checkpoint.model.config.max_positions
    for ids in ([checkpoint.model.config.vocab_size], [1] * (room - 39), [1] * 2 * room):
        with pytest.raises(RequestError, match=r"\.$"):
            backend.check(Request(ids, AR))
    backend.check(Request([1] * (room - 40), AR))


def test_memory_is_fixed_up_front_and_what_cannot_fit_is_told_what_would(
    checkpoint: Checkpoint,
) -> None:
    model = checkpoint.model
    a_token = BlockKVCache.bytes_needed(model.config.cache_shape(1, 1), model.dtype)
    whole = model.config.max_positions
    assert room_for(model, 8, 2**40) == Room(8, whole)
    assert room_for(model, 8, 3 * (whole + MAX_FED) * a_token) == Room(3, whole)
    assert room_for(model, 8, (100 + MAX_FED) * a_token) == Room(1, 100)
    assert room_for(model, 8, 0) == Room(1, 1)
    with Engine(CheckpointBackend(checkpoint, (100 + MAX_FED) * a_token), max_runs=8) as engine:
        with pytest.raises(RequestError, match="memory for 100 together: ask for at most 30"):
            engine.submit(Request([1] * 70, AR))
        with pytest.raises(RequestError, match="memory for 100 together: shorten the prompt"):
            engine.submit(Request([1] * 100, AR))
        runs = [engine.submit(Request([1] * 60, AR)) for _ in range(2)]
        assert runs[1].place == 1
        assert all(folds.end(list(run)) in (End("limit"), End("eos")) for run in runs)


def test_a_small_models_one_thread_is_not_another_models(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page opens on mars-tiny while the chat model, loaded beside it later, is fetched."""
    torch.set_num_threads(2)
    monkeypatch.setattr(backend, "_default_threads", cache(backend._default_threads.__wrapped__))
    with Engine(checkpoint) as engine:
        assert engine.submit(Request(prompt(checkpoint), AR)).wait(120)
        monkeypatch.setattr(backend, "SMALL_PARAMETERS", 0)
        torch.set_num_threads(1)  # its last step may have had two, where they were quicker
        with ThreadPoolExecutor(1) as other:
            found = other.submit(lambda: (num_threads(checkpoint), torch.get_num_threads()))
            assert found.result() == (2, 1)
    torch.set_num_threads(1)


def test_prepare_sets_one_thread_for_a_small_model(checkpoint: Checkpoint) -> None:
    assert num_threads(checkpoint) == 1
    with Engine(checkpoint) as engine:
        run = engine.submit(Request(prompt(checkpoint), AR))
        assert run.wait(120)
    assert isinstance(as_backend(checkpoint), CheckpointBackend)


def test_the_engine_measures_what_forwards_cost_and_chooses_b_by_it(checkpoint: Checkpoint) -> None:
    auto = replace(MARS, block_size="auto")
    with Engine(checkpoint) as engine:
        costs = engine.costs()
        request = Request(prompt(checkpoint), auto)
        run = engine.submit(request)
        assert run.wait(120)
    assert costs is not None
    curve = costs.rho[1]
    assert len(curve) == max(2 * checkpoint.block_size - 1, MANY[-1])
    assert curve[0] == 1.0
    assert list(curve) == sorted(curve)
    assert run.events_since(0)[-1].reason in ("eos", "limit")
    header = make_header(checkpoint, "x", request, costs=costs)
    assert header.rho == costs.rho


def test_lengths_between_those_that_were_timed_lie_on_a_line() -> None:
    assert _rising({1: 1.0, 2: 1.5, 5: 3.0, 7: 2.0}) == (1.0, 1.5, 2.0, 2.5, 3.0, 3.0, 3.0)


def test_cycles_of_submit_and_cancel_leave_no_tensors_behind(checkpoint: Checkpoint) -> None:
    long = replace(MARS, max_new_tokens=400)
    ids = prompt(checkpoint)

    def num_tensors() -> int:
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    with Engine(checkpoint) as engine:
        runs = []
        for cycle in range(30):
            run = engine.submit(Request(ids, long), pace=float(cycle % 3))
            run.wait(0.001 * (cycle % 5))
            run.cancel()
            assert run.wait(120)
            runs.append(run)
            if cycle == 5:
                tensors, threads = num_tensors(), threading.active_count()
        assert num_tensors() <= tensors + 8  # a model may keep a few; a leak would be a cache a run
        assert threading.active_count() == threads
        assert all(isinstance(run.events_since(0)[-1], End) for run in runs)


def test_header_says_on_what_the_figures_were_measured(checkpoint: Checkpoint) -> None:
    request = Request(prompt(checkpoint), MARS)
    header = make_header(checkpoint, "Count 12 foxes", request, task={"kind": "x"}, name="a")
    assert (header.dtype, header.threads, header.name) == ("float32", 1, "a")
    assert 7 * header.slot_bytes == checkpoint.model.new_cache(1, 7).num_bytes
    assert header.prompt_ids == request.prompt_ids
    assert header.date.endswith("+00:00")
    assert "core" in device_name(torch.device("cpu"))
    assert versions()["torch"] == torch.__version__
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'version = "{versions()["mars-live"]}"' in project


def test_sentences() -> None:
    assert sentence(RequestError("Shorten it.")) == "Shorten it."
    assert "secret" not in sentence(ValueError("secret"))
    assert sentence(torch.OutOfMemoryError("x")).startswith("The device ran out of memory")


def test_a_solo_run_decodes_any_batch_on_the_model_of_the_engine(checkpoint: Checkpoint) -> None:
    prompts = [prompt(checkpoint), prompt(checkpoint, "Hello")]
    with Engine(checkpoint) as engine:
        run = engine.solo(lambda *parts: decode(*parts[:2], prompts, parts[2]), MARS)
        assert run.wait(120)
    alone = list(decode(checkpoint.model, checkpoint.tokenizer, prompts, lambda: MARS))
    assert without_seconds(run.events_since(0)) == without_seconds(alone)


def test_a_native_model_has_all_threads_and_pytorch_beside_it_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backend, "_default_threads", lambda: 2)
    model = native_model("large")
    found = CheckpointBackend(
        SimpleNamespace(name="large", model=model, block_size=4), 2**24, keeps=False
    )  # type: ignore[arg-type]
    monkeypatch.setattr(backend, "SMALL_PARAMETERS", 0)
    with ThreadPoolExecutor(1) as worker:
        worker.submit(found._set_threads).result()
        assert worker.submit(torch.get_num_threads).result() == 1
    assert model.most_threads == 2
    model.ceiling = None
