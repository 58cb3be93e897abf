"""Cached keys and values on the engine: which runs reuse them, which don't, and how it is
reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from mars_runtime.cache import BLOCK
from mars_runtime.decoders.cursor import decode
from mars_runtime.engine import CustomDecoderRequest, Engine, Request, Run
from mars_runtime.engine.backend import CheckpointBackend
from mars_runtime.engine.memory import PREFIX_CACHE_SHARE, Room, room_for, slot_bytes
from mars_runtime.model.load import Checkpoint, load_checkpoint
from mars_runtime.model.native.model import NativeModel
from mars_runtime.runs import folds
from mars_runtime.runs.events import Event, Prefill
from mars_runtime.settings import DecodeSettings

AR = DecodeSettings("ar", max_new_tokens=12)
LOSSLESS = DecodeSettings(
    tau=0.0, block_size=8, lossless=True, mask_layout="every", max_new_tokens=12
)


class Counting(CheckpointBackend):
    """Counts the prompt tokens that went through the model, and fails on request."""

    def __init__(self, checkpoint: Checkpoint, **options: Any) -> None:
        super().__init__(checkpoint, 2**26, **options)
        self.num_read, self.fails_at = 0, -1
        self._forward = checkpoint.model.forward
        checkpoint.model.forward = self.count  # type: ignore[method-assign]

    def count(self, tokens: Any, cache: Any, head: Any, branches: Any = None) -> Any:
        if head is None:
            self.num_read += tokens.shape[1]
            if self.num_read >= self.fails_at >= 0:
                raise RuntimeError
        return self._forward(tokens, cache, head, branches)

    def _warm_up(self) -> None:
        """Not for these tests: it takes seconds. One prompt, which must not be found later."""
        list(self.decode(Request(prompt_of(40), AR), lambda: AR))

    def fed(self) -> int:
        """Tokens of prompts since the last call."""
        count, self.num_read = self.num_read, 0
        return count


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    checkpoint = load_checkpoint("mars-tiny", device="cpu", dtype="int8")
    if not isinstance(checkpoint.model, NativeModel):
        pytest.skip("this machine has no C++ compiler")
    return checkpoint


@pytest.fixture
def backend(checkpoint: Checkpoint) -> Iterator[Counting]:
    made = Counting(checkpoint)
    yield made
    checkpoint.model.forward = made._forward  # type: ignore[method-assign]


@pytest.fixture
def engine(backend: Counting) -> Iterator[Engine]:
    with Engine(backend, max_runs=3) as made:
        made.costs()
        backend.fed()
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


def test_the_second_turn_computes_only_what_is_new(engine, backend, checkpoint) -> None:
    text, num_final = prompt_of(90), 0
    for turn in range(4):
        run = engine.submit(Request(text, AR))
        (tokens,) = finished([run])
        event = prefill(run)
        assert (event.num_tokens, event.num_reused) == (len(text) - 1, num_final // BLOCK * BLOCK)
        assert backend.fed() == event.num_tokens - event.num_reused
        assert tokens == alone(checkpoint, text, AR)
        backend.fed()
        num_final = len(text) + len(tokens) - 1  # the last token was never fed
        text = [*text, *tokens, *prompt_of(9, turn)]


def test_the_lanes_of_a_race_reuse_the_same(engine, backend, checkpoint) -> None:
    text = prompt_of(90)
    runs = engine.race([Request(text, LOSSLESS), Request(text, AR)])
    first = finished(runs)
    assert [prefill(run).num_reused for run in runs] == [0, 0]
    assert backend.fed() == 2 * 89
    longer = [*text, *first[1], *prompt_of(20, 3)]
    runs = engine.race([Request(longer, LOSSLESS), Request(longer, AR)])
    actual = finished(runs)
    assert [prefill(run).num_reused for run in runs] == [96, 96]
    assert backend.fed() == 2 * (len(longer) - 1 - 96)
    assert actual[0] == actual[1] == alone(checkpoint, longer, AR)
    runs = engine.race([Request(longer, AR), Request(prompt_of(90, 5), AR)])
    finished(runs)
    assert [prefill(run).num_reused for run in runs] == [0, 0]


def test_what_is_timed_by_itself_or_asks_so_is_read_whole(engine, backend) -> None:
    text = prompt_of(90)
    finished([engine.submit(Request(text, AR))])
    backend.fed()
    custom = CustomDecoderRequest(lambda *parts: decode(*parts[:2], [text], parts[2]), AR)
    whole = Request(text, AR, reuses=False)
    runs = [
        engine.submit(Request(text, AR), is_alone=True),
        engine.submit(whole),
        *engine.race([whole, Request(text, AR)]),
        *engine.race([Request(text, AR), custom]),
    ]
    finished(runs)
    assert {prefill(run).num_reused for run in runs} == {0}
    assert backend.fed() == len(runs) * 89
    again = engine.submit(Request(text, AR))
    finished([again])
    assert prefill(again).num_reused > 0


def test_what_is_kept_takes_a_share_of_the_memory_and_no_more(checkpoint: Checkpoint) -> None:
    num_bytes = 3000 * slot_bytes(checkpoint.model)
    budget = int(num_bytes * PREFIX_CACHE_SHARE)
    for keeps, left in ((True, num_bytes - budget), (False, num_bytes)):
        backend = CheckpointBackend(checkpoint, num_bytes, keeps=keeps)
        room = room_for(checkpoint.model, 8, left)
        assert Room(backend.reserve(8), backend.capacity) == room
    a_block = BLOCK * slot_bytes(checkpoint.model)
    assert checkpoint.model.new_cache(1, BLOCK).block(0, 0).nbytes == a_block
