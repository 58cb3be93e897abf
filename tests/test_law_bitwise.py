"""Laws 9 and 13: in the native forward no bit of a position depends on its company or on threads.
Hidden states, logits and readings equal those of the same text read one token at a time; those of a
mask equal those of its group fed by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_models import CONFIGS, MASK_ID, TARGETS, native_model
from torch import Tensor

from mars_runtime.model.files import fingerprint
from mars_runtime.model.forward import Branches, Layout, SamplingMetadata
from mars_runtime.model.load import load_checkpoint
from mars_runtime.model.native.model import NativeModel
from mars_runtime.model.predictions import Draw
from mars_runtime.settings import METRICS
from tests.test_documents import shipped

CAPACITY = 160
FORBIDDEN = torch.tensor([0, MASK_ID, 77])


def ids_of(length: int, seed: int) -> Tensor:
    return torch.randint(5, 140, (1, length), generator=torch.Generator().manual_seed(seed))


@contextmanager
def on_threads(model: NativeModel, *numbers: int) -> Iterator[None]:
    """Give each part of a forward the next of these numbers of threads, in a cycle."""
    turn = cycle(numbers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "threads", SimpleNamespace(count=lambda most: next(turn)))
        yield


def read_alone(model: NativeModel, ids: Tensor) -> Tensor:
    """Hidden states [tokens, hidden] of AR: one token per forward."""
    cache = model.new_cache(1, CAPACITY)
    collected = []
    for token in ids[0]:
        collected.append(model.hidden(token.view(1, 1), cache)[0])
        cache.cursors[0] += 1
    return torch.cat(collected)


def masks_alone(model: NativeModel, ids: Tensor, length: int, count: int) -> Tensor:
    """Hidden states of ``count`` masks after the first ``length`` tokens, on their own."""
    cache = model.new_cache(1, CAPACITY)
    model.hidden(ids[:, :length], cache)
    cache.cursors[0] = length
    return model.hidden(torch.full((1, count), MASK_ID), cache)[0]


@dataclass(frozen=True)
class Case:
    """A row of a forward: a text, the position of its cursor, and what is fed after it."""

    seed: int
    cursor: int
    layout: Layout


@st.composite
def cases(draw: st.DrawFn) -> Case:
    num_pending = draw(st.integers(1, 6))
    num_groups = draw(st.integers(0, num_pending))
    groups = tuple(draw(st.integers(0, 4)) for _ in range(num_groups))
    return Case(draw(st.integers(0, 3)), draw(st.integers(0, 100)), Layout(num_pending, groups))


def feed(model: NativeModel, rows: list[Case]) -> Tensor:
    width = max(case.layout.num_fed for case in rows)
    cache = model.new_cache(len(rows), CAPACITY)
    fed = torch.full((len(rows), width), MASK_ID)
    for row, case in enumerate(rows):
        text = ids_of(110, case.seed)
        pending = text[0, case.cursor : case.cursor + case.layout.num_pending]
        fed[row, : len(pending)] = pending
        if case.cursor:
            model.hidden(text[:, : case.cursor], cache.row(row))
        cache.cursors[row] = case.cursor
    layouts = [case.layout for case in rows]
    is_causal = not any(any(layout.groups[:-1]) for layout in layouts)
    branches = None if is_causal else Branches.of(layouts, width)
    return model.hidden(fed, cache, branches)


def check_row(model: NativeModel, case: Case, actual: Tensor) -> None:
    text, pending = ids_of(110, case.seed), case.layout.num_pending
    real = read_alone(model, text[:, : case.cursor + pending])[case.cursor :]
    assert torch.equal(actual[:pending], real)
    at, first = pending, pending - len(case.layout.groups) + 1
    for root, count in enumerate(case.layout.groups, first):
        alone = masks_alone(model, text, case.cursor + root, 4)
        assert torch.equal(actual[at : at + count], alone[:count])
        at += count


@settings(max_examples=25)
@given(
    rows=st.lists(cases(), min_size=1, max_size=3),
    name=st.sampled_from(sorted(CONFIGS)),
    bits=st.sampled_from([4, 8]),
    threads=st.sampled_from([1, 2]),
)
def test_a_position_does_not_depend_on_its_company(
    rows: list[Case], name: str, bits: int, threads: int
) -> None:
    model = native_model(name, bits, has_adapter=True)
    with on_threads(model, threads):
        actual = feed(model, rows)
    for row, case in enumerate(rows):
        check_row(model, case, actual[row])


@pytest.mark.parametrize("target", sorted(TARGETS))
@pytest.mark.parametrize("bits", [4, 8])
def test_the_law_holds_on_every_kind_of_processor(target: str, bits: int) -> None:
    model = native_model("wide heads", bits, target=target, has_adapter=True)
    layouts = Layout(4, (3, 0, 2, 4)), Layout(1, ()), Layout(6, (4,))
    rows = [Case(0, 61, layouts[0]), Case(1, 0, layouts[1]), Case(2, 95, layouts[2])]
    actual = feed(model, rows)
    for row, case in enumerate(rows):
        check_row(model, case, actual[row])


@settings(max_examples=15)
@given(st.lists(st.integers(1, 90), min_size=1, max_size=4), st.sampled_from(sorted(CONFIGS)))
def test_a_prompt_may_be_read_in_any_pieces(pieces: list[int], name: str) -> None:
    model = native_model(name)
    ids = ids_of(min(sum(pieces), CAPACITY), 5)
    cache, actual, at = model.new_cache(1, CAPACITY), [], 0
    while at < ids.shape[1]:
        piece = ids[:, at : at + pieces[len(actual)]]
        actual.append(model.hidden(piece, cache)[0])
        at = cache.cursors[0] = at + piece.shape[1]
    assert torch.equal(torch.cat(actual), read_alone(model, ids))


@settings(max_examples=15)
@given(
    numbers=st.lists(st.integers(1, 4), min_size=2, max_size=5),
    name=st.sampled_from(sorted(CONFIGS)),
    bits=st.sampled_from([4, 8]),
)
def test_threads_may_change_from_forward_to_forward(
    numbers: list[int], name: str, bits: int
) -> None:
    model, ids = native_model(name, bits), ids_of(30, 7)
    with on_threads(model, 1):
        wanted = read_alone(model, ids)
        logits = model.logits(wanted.unsqueeze(0), slice(None))
    with on_threads(model, *numbers):
        actual = read_alone(model, ids)
        assert torch.equal(actual, wanted)
        assert torch.equal(model.logits(actual.unsqueeze(0), slice(None)), logits)
        assert torch.equal(model.hidden(ids, model.new_cache(1, CAPACITY))[0], wanted)


@settings(max_examples=15)
@given(
    name=st.sampled_from(sorted(CONFIGS)),
    count=st.integers(2, 40),
    metric=st.sampled_from(METRICS),
    threads=st.sampled_from([1, 2]),
    draw=st.sampled_from([None, Draw(0.8, 1, range(40))]),
)
def test_what_is_read_of_a_slot_does_not_depend_on_the_others(
    name: str, count: int, metric: str, threads: int, draw: Draw | None
) -> None:
    model = native_model(name)
    hidden = model.hidden(ids_of(2 * count, 6).view(2, count), model.new_cache(2, CAPACITY))
    sampling = SamplingMetadata(FORBIDDEN, [metric, metric])
    with on_threads(model, threads):
        together = model.predict(hidden, slice(0, count), replace(sampling, draws=[None, draw]))[0]
        logits = model.logits(hidden, slice(0, count))
    for slot in range(count):
        single = slice(slot, slot + 1)
        assert model.predict(hidden[:1], single, sampling.of([0])) == [[together[slot]]]
        assert torch.equal(model.logits(hidden[:1], single)[0, 0], logits[0, slot])


def test_the_law_holds_for_the_real_file(smollm2_file: object) -> None:
    checkpoint = load_checkpoint("mars-smollm2", device="cpu")
    model = checkpoint.model
    if not isinstance(model, NativeModel):
        pytest.skip("this machine has no C++ compiler")
    prompt = checkpoint.tokenizer.encode_prompt("Why is the sky blue?")
    ids = torch.tensor([prompt])
    alone = read_alone(model, ids)
    together = model.hidden(ids, model.new_cache(1, CAPACITY))[0]
    assert torch.equal(together, alone)
    assert model.is_bitwise
    assert fingerprint(checkpoint.weight_files) == shipped("mars-smollm2")
