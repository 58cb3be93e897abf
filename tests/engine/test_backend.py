"""The engine on a real (random) checkpoint: the decoders' own output, timed, on one thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from mars_runtime.cache import BLOCK, BlockKVCache
from mars_runtime.decoders.cursor import decode
from mars_runtime.engine import CustomDecoderRequest, Engine, Request, RequestError, Run, backend
from mars_runtime.engine.backend import CheckpointBackend, num_threads
from mars_runtime.engine.header import make_header
from mars_runtime.engine.memory import PREFIX_CACHE_SHARE, Room, room_for, slot_bytes
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.model.native.model import NativeModel
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
        assert engine.max_running == 1
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


# Cached keys and values: which runs reuse them, and how it is reported.

SHORT = replace(AR, max_new_tokens=12)
EVERY = replace(SHORT, method="mars", tau=0.0, block_size=8, lossless=True, mask_layout="every")


class Counting(CheckpointBackend):
    """Counts the prompt tokens that went through the model."""

    def __init__(self, checkpoint: Checkpoint, **options: Any) -> None:
        super().__init__(checkpoint, 2**26, **options)
        self.num_read = 0
        self._forward = checkpoint.model.forward
        checkpoint.model.forward = self.count  # type: ignore[method-assign]

    def count(self, tokens: Any, cache: Any, head: Any, branches: Any = None) -> Any:
        if head is None:
            self.num_read += tokens.shape[1]
        return self._forward(tokens, cache, head, branches)

    def _warm_up(self) -> None:
        """Not for these tests: it takes seconds. One prompt, which must not be found later."""
        list(self.decode(Request(prompt_of(40), SHORT), lambda: SHORT))

    def fed(self) -> int:
        """Tokens of prompts since the last call."""
        count, self.num_read = self.num_read, 0
        return count


@pytest.fixture(scope="module")
def native() -> Checkpoint:
    checkpoint = load_checkpoint("mars-tiny", device="cpu", dtype="int8")
    if not isinstance(checkpoint.model, NativeModel):
        pytest.skip("this machine has no C++ compiler")
    return checkpoint


@pytest.fixture
def kept(native: Checkpoint) -> Iterator[Counting]:
    made = Counting(native)
    yield made
    native.model.forward = made._forward  # type: ignore[method-assign]


@pytest.fixture
def engine(kept: Counting) -> Iterator[Engine]:
    with Engine(kept, max_runs=3) as made:
        made.costs()
        kept.fed()
        yield made


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return [100 + (7 * place + seed) % 150 for place in range(length)]


def prefill(run: Run) -> Prefill:
    first = run.events_since(0)[0]
    return first


def finished(runs: Sequence[Run]) -> list[list[int]]:
    assert all(run.wait(120) for run in runs)
    return [folds.accepted_tokens(run.events_since(0)) for run in runs]


def alone(checkpoint: Checkpoint, prompt: Sequence[int], way: DecodeSettings) -> list[int]:
    events: list[Event] = list(
        decode(checkpoint.model, checkpoint.tokenizer, [prompt], lambda: way)
    )
    return folds.accepted_tokens(events)


def test_the_second_turn_computes_only_what_is_new(engine, kept, native) -> None:
    text, num_final = prompt_of(90), 0
    for turn in range(4):
        run = engine.submit(Request(text, SHORT))
        (tokens,) = finished([run])
        event = prefill(run)
        assert (event.num_tokens, event.num_reused) == (len(text) - 1, num_final // BLOCK * BLOCK)
        assert kept.fed() == event.num_tokens - event.num_reused
        assert tokens == alone(native, text, SHORT)
        kept.fed()
        num_final = len(text) + len(tokens) - 1  # the last token was never fed
        text = [*text, *tokens, *prompt_of(9, turn)]


def test_the_lanes_of_a_race_reuse_the_same(engine, kept, native) -> None:
    text = prompt_of(90)
    runs = engine.race([Request(text, EVERY), Request(text, SHORT)])
    first = finished(runs)
    assert [prefill(run).num_reused for run in runs] == [0, 0]
    assert kept.fed() == 2 * 89
    longer = [*text, *first[1], *prompt_of(20, 3)]
    runs = engine.race([Request(longer, EVERY), Request(longer, SHORT)])
    actual = finished(runs)
    assert [prefill(run).num_reused for run in runs] == [96, 96]
    assert kept.fed() == 2 * (len(longer) - 1 - 96)
    assert actual[0] == actual[1] == alone(native, longer, SHORT)
    runs = engine.race([Request(longer, SHORT), Request(prompt_of(90, 5), SHORT)])
    finished(runs)
    assert [prefill(run).num_reused for run in runs] == [0, 0]


def test_what_is_timed_by_itself_or_asks_so_is_read_whole(engine, kept) -> None:
    text = prompt_of(90)
    finished([engine.submit(Request(text, SHORT))])
    kept.fed()
    custom = CustomDecoderRequest(lambda *parts: decode(*parts[:2], [text], parts[2]), SHORT)
    whole = Request(text, SHORT, reuses=False)
    runs = [
        engine.submit(Request(text, SHORT), is_alone=True),
        engine.submit(whole),
        *engine.race([whole, Request(text, SHORT)]),
        *engine.race([Request(text, SHORT), custom]),
    ]
    finished(runs)
    assert {prefill(run).num_reused for run in runs} == {0}
    assert kept.fed() == len(runs) * 89
    again = engine.submit(Request(text, SHORT))
    finished([again])
    assert prefill(again).num_reused > 0


def test_what_is_kept_takes_a_share_of_the_memory_and_no_more(native: Checkpoint) -> None:
    num_bytes = 3000 * slot_bytes(native.model)
    budget = int(num_bytes * PREFIX_CACHE_SHARE)
    for keeps, left in ((True, num_bytes - budget), (False, num_bytes)):
        made = CheckpointBackend(native, num_bytes, keeps=keeps)
        room = room_for(native.model, 8, left)
        assert Room(made.reserve(8), made.capacity) == room
    a_block = BLOCK * slot_bytes(native.model)
    assert native.model.new_cache(1, BLOCK).block(0, 0).nbytes == a_block
