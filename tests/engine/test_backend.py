"""The engine on a real (random) checkpoint: the decoders' own output, timed, on one thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from mars_runtime.cache import BlockKVCache
from mars_runtime.decoders.cursor import decode
from mars_runtime.engine import Engine, Request, RequestError, backend
from mars_runtime.engine.backend import CheckpointBackend, num_threads
from mars_runtime.engine.header import make_header
from mars_runtime.engine.memory import Room, room_for
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.runs import folds
from mars_runtime.runs.events import End, Event, Prefill
from mars_runtime.settings import MAX_FED, DecodeSettings
from mars_runtime.system.machine import device_name, versions
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
    remaining = [event for event in events if not isinstance(event, End)]
    own_values = [replace(e, cache_bytes=0) if isinstance(e, Prefill) else e for e in remaining]
    return [replace(event, seconds=0.0) for event in own_values]


def test_one_run_by_itself_is_the_decoder_to_the_last_bit(checkpoint: Checkpoint) -> None:
    ids = prompt(checkpoint)
    with Engine(checkpoint) as engine:
        for settings in (AR, MARS, LOSSLESS):
            actual = list(engine.submit(Request(ids, settings)))
            alone = decode(
                checkpoint.model, checkpoint.tokenizer, [ids], lambda fixed=settings: fixed
            )
            assert without_seconds(actual) == without_seconds(list(alone))


def test_what_does_not_fit_is_refused_at_once(checkpoint: Checkpoint) -> None:
    backend = CheckpointBackend(checkpoint)
    room = checkpoint.model.config.max_positions
    for ids in ([checkpoint.model.config.vocab_size], [1] * (room - 39), [1] * 2 * room):
        with pytest.raises(RequestError, match=r"\.$"):
            backend.check(Request(ids, AR))
    backend.check(Request([1] * (room - 40), AR))


def test_memory_is_fixed_up_front_and_the_error_names_what_fits(checkpoint) -> None:
    model = checkpoint.model
    a_token = BlockKVCache.bytes_needed(model.config.cache_shape(1, 1), model.dtype)
    whole = model.config.max_positions
    assert room_for(model, 8, 2**40) == Room(8, whole)
    assert room_for(model, 8, 3 * (whole + MAX_FED) * a_token) == Room(3, whole)
    assert room_for(model, 8, (100 + MAX_FED) * a_token) == Room(1, 100)
    assert room_for(model, 8, 0) == Room(1, 1)
    with Engine(CheckpointBackend(checkpoint, (100 + MAX_FED) * a_token), max_runs=8) as engine:
        with pytest.raises(
            RequestError, match="memory for only 100 in total: lower the limit to 30"
        ):
            engine.submit(Request([1] * 70, AR))
        with pytest.raises(RequestError, match="lower the limit to 39"):
            engine.submit(Request([1] * 61, AR))
        with pytest.raises(RequestError, match="memory for only 100 in total: shorten the prompt"):
            engine.submit(Request([1] * 100, AR))
        runs = [engine.submit(Request([1] * 60, AR)) for _ in range(2)]
        assert runs[1].num_ahead == 1
        assert all(folds.end(list(run)) in (End("limit"), End("eos")) for run in runs)


def test_a_small_models_one_thread_is_not_another_models(checkpoint, monkeypatch) -> None:
    """The page opens on mars-tiny while the chat model, loaded next to it later, is downloaded."""
    assert num_threads(checkpoint) == 1
    torch.set_num_threads(2)
    monkeypatch.setattr(backend, "_default_threads", cache(backend._default_threads.__wrapped__))
    with Engine(checkpoint) as engine:
        assert engine.submit(Request(prompt(checkpoint), AR)).wait(120)
        monkeypatch.setattr(backend, "SMALL_PARAMETERS", 0)
        torch.set_num_threads(1)  # its last step may have had two, where they were quicker
        with ThreadPoolExecutor(1) as other:
            actual = other.submit(lambda: (num_threads(checkpoint), torch.get_num_threads()))
            assert actual.result() == (2, 1)
    torch.set_num_threads(1)


def test_header_says_on_what_the_figures_were_measured(checkpoint: Checkpoint) -> None:
    request = Request(prompt(checkpoint), MARS)
    header = make_header(checkpoint, "Count 12 foxes", request, task={"kind": "x"}, name="a")
    assert (header.dtype, header.threads, header.name) == ("float32", 1, "a")
    assert header.prompt_ids == request.prompt_ids
    assert header.date.endswith("+00:00")
    assert "core" in device_name(torch.device("cpu"))
    assert versions()["torch"] == torch.__version__
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'version = "{versions()["mars-live"]}"' in project
