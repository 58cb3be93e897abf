"""A real model on the leased engine: what it writes is what the ordinary engine writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from mars_runtime.decoders.baselines import decode_batch
from mars_runtime.engine import Engine, Request, RequestError
from mars_runtime.engine.backend import check_fits
from mars_runtime.engine.leased.engine import LeasedEngine
from mars_runtime.engine.leased.worker import SharedMemory, Worker, open_checkpoint
from mars_runtime.events import End, Event, Prefill, Step
from mars_runtime.model.load import load_checkpoint
from mars_runtime.settings import DecodeSettings
from tests.engine.forked_worker import ForkedWorkers

if TYPE_CHECKING:
    from mars_runtime.decoders.base import CausalModel, SettingsSource, Vocabulary
    from mars_runtime.engine.base import BaseEngine
    from mars_runtime.engine.run import Run
    from mars_runtime.model.load import Checkpoint

CAPACITY = 400
MARS = DecodeSettings(tau=0.6, block_size=8, max_new_tokens=40)
AR = DecodeSettings(method="ar", max_new_tokens=40)
LOSSLESS = replace(MARS, lossless=True, tau=0.0)
GROUPS = replace(LOSSLESS, block_size=4, groups="every", lookup=True)
SAMPLED = replace(MARS, temperature=0.8, seed=3)
Ask = Callable[["BaseEngine"], "list[Run]"]


@pytest.fixture(scope="module")
def tiny() -> Checkpoint:
    return load_checkpoint("mars-tiny", device="cpu")


@pytest.fixture(scope="module")
def prompt(tiny: Checkpoint) -> list[int]:
    return tiny.tokenizer.encode_prompt("Tom has 3 apples and buys 4 more. How many has he now?")


@pytest.fixture(scope="module")
def engines(tiny: Checkpoint) -> Iterator[list[BaseEngine]]:
    """The ordinary one, and one whose device is lent."""
    slots = SharedMemory(4)
    worker = Worker(slots, lambda name, costs: open_checkpoint(tiny, costs))
    workers = ForkedWorkers(worker.decode, num=1)
    check = partial(check_fits, tiny.model, capacity=CAPACITY)
    leased = LeasedEngine("mars-tiny", workers.lease, slots, check, CAPACITY)
    with Engine(tiny) as ordinary:
        ordinary.costs()
        yield [ordinary, leased]
    leased.close()
    workers.end()


def untimed(events: Iterator[Event] | list[Event]) -> list[Event]:
    """Without what differs between any two runs."""
    return [
        replace(event, seconds=0.0) if isinstance(event, (Prefill, Step)) else event
        for event in events
    ]


def both(engines: list[BaseEngine], ask: Ask) -> list[list[list[Event]]]:
    return [[untimed(run) for run in ask(engine)] for engine in engines]


@pytest.mark.parametrize("settings", [AR, MARS, LOSSLESS, GROUPS, SAMPLED])
def test_a_run_alone_is_the_ordinary_one_to_the_event(
    engines: list[BaseEngine], prompt: list[int], settings: DecodeSettings
) -> None:
    request = Request(prompt, settings, is_checked=True)
    one, other = both(engines, lambda engine: [engine.submit(request, is_alone=True)])
    assert one == other
    assert isinstance(one[0][-1], End)
    assert one[0][-1].reason in ("eos", "limit")


def test_a_race_is_the_ordinary_one_lane_by_lane(
    engines: list[BaseEngine], prompt: list[int]
) -> None:
    requests = [Request(prompt, LOSSLESS), Request(prompt, AR)]
    one, other = both(engines, lambda engine: engine.race(requests))
    assert [lane[1:] for lane in one] == [lane[1:] for lane in other]
    texts = [[token for step in lane if isinstance(step, Step) for token in step.rows[0].accepted]
             for lane in other]  # fmt: skip
    assert texts[0] == texts[1]


def decode_two(
    prompt: list[int], model: CausalModel, vocabulary: Vocabulary, settings: SettingsSource
) -> Iterator[Event]:
    return decode_batch(model, vocabulary, [prompt, prompt[:-4]], "cursor", settings, 2, 32)


def test_a_batch_is_the_ordinary_one(engines: list[BaseEngine], prompt: list[int]) -> None:
    decode = partial(decode_two, prompt)
    one, other = both(engines, lambda engine: [engine.solo(decode, MARS)])
    assert one == other
    assert len(one[0]) > 3


def test_the_costs_come_from_the_worker_and_let_b_be_chosen(
    engines: list[BaseEngine], prompt: list[int]
) -> None:
    leased = engines[1]
    request = Request(prompt, replace(MARS, block_size="auto"))
    run = leased.submit(request)
    end = list(run)[-1]
    assert isinstance(end, End)
    assert end.reason in ("eos", "limit")
    costs = leased.costs()
    assert costs is not None
    assert costs.seconds > 0


def test_what_does_not_fit_is_refused_here(engines: list[BaseEngine], prompt: list[int]) -> None:
    with pytest.raises(RequestError, match="ask for at most"):
        engines[1].submit(Request(prompt, replace(MARS, max_new_tokens=CAPACITY)))
    with pytest.raises(RequestError, match="token ids"):
        engines[1].submit(Request([10**6], MARS))
