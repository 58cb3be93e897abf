"""Laws of block diffusion: the cached decoder equals full recomputation, every forward fills a
position, nothing follows an end or the limit. tests/model/test_transformer.py compares with
transformers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from helpers import steps_of, tokens_of
from law_checkpoints import word_prompts

from mars_runtime.acceptance import accept_by_confidence
from mars_runtime.decoders import diffusion
from mars_runtime.model.forward import Branches
from mars_runtime.model.load import Checkpoint
from mars_runtime.runs.events import Event, RowStep, Step
from mars_runtime.settings import METRICS, DecodeSettings

USUAL = DecodeSettings("block_diffusion", tau=0.4, block_size=6, max_new_tokens=24)
TRAINED = 8


def run(
    checkpoint: Checkpoint, prompt: Sequence[int], settings: DecodeSettings, size: int = TRAINED
) -> list[Event]:
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    return list(diffusion.decode(model, tokenizer, prompt, lambda: settings, size))


def slowly(
    checkpoint: Checkpoint, prompt: Sequence[int], settings: DecodeSettings
) -> Iterator[tuple[dict[int, int], list[int]]]:
    """Yield the places that each forward takes, in the whole text, and the text that has left. The
    slow twin: each forward feeds the whole text, and the surest place is taken again and again.
    """
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    never = torch.tensor(
        [*tokenizer.forbidden_ids, *range(tokenizer.size, model.config.vocab_size)]
    )
    clean: list[int] = []
    while True:
        size = min(int(settings.block_size), settings.max_new_tokens - len(clean))
        block: dict[int, int] = {}
        end = size
        while len(block) < end:
            text = [*prompt, *clean]
            fed = text + [block.get(place, tokenizer.mask_id) for place in range(end)]
            tree, head = Branches.of_block(len(text), end), slice(len(text), len(fed))
            actual = model.forward(torch.tensor([fed]), model.new_cache(1, len(fed)), head, tree)
            odds = actual[0].float().index_fill(-1, never, -torch.inf).softmax(-1)
            best, ids = odds.max(-1)
            left = {place: best[place].item() for place in range(end) if place not in block}
            taken: dict[int, int] = {}
            while left and (not taken or max(left.values()) >= settings.tau):
                place = max(left, key=lambda item: (left[item], -item))
                taken[place] = int(ids[place])
                del left[place]
            block |= taken
            eos_ids = frozenset() if settings.ignore_eos else tokenizer.eos_ids
            ends = [place for place, token in block.items() if token in eos_ids]
            end = min([end, *(place + 1 for place in ends)])
            block = {place: token for place, token in block.items() if place < end}
            gone = next((place for place in range(end) if place not in block), end)
            newly_taken = {len(clean) + p: t for p, t in taken.items() if p < end}
            yield newly_taken, [*clean, *(block[place] for place in range(gone))]
        clean += [block[place] for place in range(end)]
        if clean[-1] in eos_ids or len(clean) >= settings.max_new_tokens:
            return


def filled(steps: Sequence[RowStep]) -> list[dict[int, int]]:
    return [{step.start + at: step.proposals[at].token for at in step.taken} for step in steps]


@pytest.mark.usefixtures("each_forward")
@pytest.mark.parametrize("block_size", [1, 2, 5, 8])
@pytest.mark.parametrize("tau", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("ignore_eos", [False, True])
def test_cached_equals_full_recomputation(
    small: Checkpoint, block_size: int, tau: float, ignore_eos: bool
) -> None:
    settings = replace(USUAL, block_size=block_size, tau=tau, ignore_eos=ignore_eos)
    for prompt in word_prompts(small, 2, seed=block_size):
        steps = steps_of(run(small, prompt, settings))
        wanted = list(slowly(small, prompt, settings))
        assert filled(steps) == [taken for taken, _ in wanted]
        text: list[int] = []
        for step, (_, left) in zip(steps, wanted, strict=True):
            text += step.accepted
            assert text == left


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_every_forward_takes_a_place_and_tokens_leave_in_order(
    small: Checkpoint, metric: str, temperature: float
) -> None:
    tokenizer = small.tokenizer
    settings = replace(USUAL, metric=metric, temperature=temperature, seed=4, max_new_tokens=20)
    for prompt in word_prompts(small, 6, seed=31):
        steps = steps_of(run(small, prompt, settings))
        seen: dict[int, int] = {}
        for step, taken in zip(steps, filled(steps), strict=True):
            assert taken
            assert not taken.keys() & seen.keys()
            seen |= taken
            for place, token in enumerate(step.accepted, step.start):
                assert seen[place] == token == step.proposals[place - step.start].token
        text = tokens_of([Step((step,)) for step in steps])[0]
        assert len(text) <= 20
        assert not tokenizer.eos_ids & set(text[:-1])
        assert not tokenizer.forbidden_ids & set(text)
        assert steps[-1].stop == ("eos" if text[-1] in tokenizer.eos_ids else "limit")
        assert all(step.stop in ("threshold", "block") for step in steps[:-1])


def test_what_a_forward_takes_at_the_ends_of_the_settings(small: Checkpoint) -> None:
    """B is at most the trained block; at tau 0 a block is a forward, at tau 1 a forward a token."""
    prompt = word_prompts(small, 1, seed=2)[0]
    for size in ("auto", 16, 8):
        steps = steps_of(run(small, prompt, replace(USUAL, block_size=size)))
        assert len(steps[0].proposals) == TRAINED
        assert steps[0].block_size == (TRAINED if size == "auto" else 0)
    bold = steps_of(run(small, prompt, replace(USUAL, tau=0.0)))
    assert [len(step.accepted) for step in bold[:-1]] == [6] * (len(bold) - 1)
    shy = steps_of(run(small, prompt, replace(USUAL, tau=1.0, metric="margin")))
    assert [len(step.taken) for step in shy] == [1] * len(shy)


def test_a_lowered_limit_ends_the_text_there(small: Checkpoint) -> None:
    prompt = word_prompts(small, 1, seed=5)[0]
    current, events = SimpleNamespace(settings=replace(USUAL, tau=1.0, metric="margin")), []
    shared = small.model, small.tokenizer
    for event in diffusion.decode(*shared, prompt, lambda: current.settings, TRAINED):
        events.append(event)
        if len(events) == 3:
            current.settings = replace(current.settings, max_new_tokens=4)
    assert len(tokens_of(events)[0]) <= 4


def test_the_surest_is_always_taken_and_others_in_order_of_confidence() -> None:
    assert accept_by_confidence([0.2, 0.9, 0.5, 0.95], 0.5) == [3, 1, 2]
    assert accept_by_confidence([0.2, 0.1], 0.5) == [0]
    assert accept_by_confidence([0.3, 0.3], 1.0) == [0]
    assert accept_by_confidence([], 0.5) == []
