"""Laws 1 to 5, 8, 12 and 14 of decoding, fp32 on a CPU, on weights that are random, trained for
seconds in a fixture, or bundled. The laws on scripted models are in tests/decoders, the definitions
behind CHANGES in test_law_penalty.py."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import steps_of, tokens_of
from law_checkpoints import (
    BUNDLED,
    SAMPLED,
    draft_of,
    load,
    models_of,
    plain,
    run,
    task_prompts,
    transformers_greedy,
    word_prompts,
)

from mars_runtime.decoders.cursor import CursorBatch, decode
from mars_runtime.decoders.draft_model import DraftModels
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.decoders.methods import MAX_BLOCK_SIZE
from mars_runtime.engine import Engine, Request, costs
from mars_runtime.model.load import Checkpoint
from mars_runtime.runs.events import Event, RowStep, Step
from mars_runtime.settings import MASKED, METRICS, DecodeSettings
from tests import slow_twin

EACH_FORWARD = pytest.mark.usefixtures("each_forward")

EXACT: dict[str, dict[str, Any]] = {
    "masks": {"lossless": True},
    "mask groups": {"lossless": True, "mask_layout": "every"},
    "lookup": {"lossless": True, "lookup": True},
    "mask groups and lookup": {"lossless": True, "mask_layout": "every", "lookup": True},
    "auto": {"lossless": True, "mask_layout": "every", "lookup": True, "block_size": "auto"},
    "jacobi": {"method": "jacobi"},
    "speculative": {"method": "speculative"},
    "speculative mask groups": {"method": "speculative", "mask_layout": "every", "lookup": True},
}
"""Methods that write AR's text."""
FREE: dict[str, dict[str, Any]] = {
    "unverified": {},
    "by entropy": {"tau_policy": "entropy", "tau": 0.1},
    "by agreement": {"tau_policy": "agreement", "tau": 0.1, "agreement_target": 0.8},
}
"""Methods that write a text of their own."""

EARLY_END = ((1, 2.0), (2, 2.0))  # a bias towards EOS
ADDITIONS: dict[str, Any] = {
    "presence_penalty": 0.7,
    "frequency_penalty": 0.4,
    "logit_bias": ((3, 2.5), (5, -4.0), (7, 1.25), (40, -9.0), (70, -9.0), (115, -9.0)),
}
CHANGES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "drawn": {"temperature": 0.8, "seed": 3, "top_p": 0.9},
    "repetition": {"repetition_penalty": 1.3},
    "additions": ADDITIONS,
    "late end": {**ADDITIONS, "min_tokens": 12, "logit_bias": EARLY_END + ADDITIONS["logit_bias"]},
    "endless": {"ignore_eos": True, "logit_bias": EARLY_END},
    "drawn with all": {
        **ADDITIONS,
        **{"temperature": 0.8, "seed": 4, "top_k": 9, "min_p": 0.02, "repetition_penalty": 1.2},
    },
}
GRID = list(product((0.0, 0.5, 0.95), (2, 4, 8, 16)))  # tau, B
NUM_SAMPLED = 12  # of a bundled checkpoint, two of each family of tasks


def by_forward(ways: Iterable[str], changes: Iterable[str], padded: Iterable[str]) -> Any:
    """Cases of a method and a change, with padded forwards only of few changes."""
    ways = list(ways)
    cases = [*product(ways, changes, ["plain"]), *product(ways, padded, ["bucketed"])]
    names = ("way", "changes", "each_forward")
    by_case = pytest.mark.parametrize(names, cases, indirect=["each_forward"])
    return lambda test: EACH_FORWARD(by_case(test))


# Law 1: AR here equals transformers' greedy generate on the same weights, token for token. Law 12:
# also with a repetition penalty and a minimum number of tokens.


def check_law_1(checkpoint: Checkpoint, prompts: Any, limit: int, **changes: Any) -> None:
    ours = [plain(checkpoint, [prompt], limit, **changes)[0] for prompt in prompts]
    if "min_tokens" in changes:
        number, bias = changes["min_tokens"], changes["logit_bias"]
        theirs = [[[token], value] for token, value in bias]
        changes = {"min_new_tokens": number, "sequence_bias": theirs}
        assert min(map(len, ours)) > number
    assert ours == transformers_greedy(checkpoint, prompts, limit, **changes)


@EACH_FORWARD
@pytest.mark.parametrize(
    "changes", [{}, CHANGES["repetition"], {"min_tokens": 12, "logit_bias": EARLY_END}]
)
def test_law_1_ar_equals_transformers(small: Checkpoint, changes: dict[str, Any]) -> None:
    check_law_1(small, word_prompts(small, 20 if changes else 60), 16, **changes)


@pytest.mark.parametrize("name", SAMPLED)
def test_law_1_on_a_bundled_checkpoint(name: str) -> None:
    check_law_1(load(name), task_prompts(name, NUM_SAMPLED), 16)
    check_law_1(load(name), task_prompts(name, 40)[::7], 16, repetition_penalty=1.3)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUNDLED)
def test_law_1_on_whole_answers(name: str) -> None:
    check_law_1(load(name), task_prompts(name, 102), 200)
    check_law_1(load(name), task_prompts(name, 40), 24, repetition_penalty=1.3)


# Law 3: exact output equals AR output for every tau, B and metric. Law 12: with penalties too.


def check_law_3(
    checkpoint: Checkpoint,
    prompts: Sequence[Sequence[int]],
    limit: int,
    way: dict[str, Any],
    draft: Checkpoint | None = None,
    **changes: Any,
) -> float:
    """Decode each prompt with another tau, B and metric; return the tokens per forward."""
    num_tokens = num_forwards = 0
    for index, prompt in enumerate(prompts):
        tau, block_size = GRID[index % len(GRID)]
        rest = {"metric": METRICS[index % len(METRICS)], "masked": MASKED[index % len(MASKED)]}
        common = {"tau": tau, "block_size": block_size, "max_new_tokens": limit}
        settings = DecodeSettings(**{**common, **rest, **way, **changes})
        events = run(checkpoint, [prompt], settings, draft)
        tokens = tokens_of(events)
        assert tokens == plain(checkpoint, [prompt], limit, **changes), settings
        num_tokens += len(tokens[0])
        num_forwards += len(steps_of(events))
    return num_tokens / num_forwards


@by_forward(EXACT, CHANGES, padded=["greedy", "drawn with all"])
def test_law_3_exact_methods_write_what_ar_writes(
    small: Checkpoint, foreseeing: Checkpoint, way: str, changes: str
) -> None:
    changed, prompts = CHANGES[changes], word_prompts(foreseeing, 12, seed=21)
    if small is not foreseeing:
        check_law_3(small, prompts, 24, EXACT[way], foreseeing, **changed)
    tpf = check_law_3(foreseeing, prompts, 24, EXACT[way], small, **changed)
    assert tpf > (1.0 if way == "jacobi" else 1.02)  # by drafts, not for want of them
    usual = plain(foreseeing, prompts, 24)
    assert (plain(foreseeing, prompts, 24, **changed) == usual) == (changes == "greedy")


@pytest.mark.parametrize("name", SAMPLED)
def test_law_3_on_a_bundled_checkpoint(name: str) -> None:
    target, draft = load(name), load("ar-tiny" if name == "mars-tiny" else "mars-tiny")
    for way, changes in product(EXACT.values(), ({}, CHANGES["repetition"])):
        check_law_3(target, task_prompts(name, 2 if changes else 6), 20, way, draft, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUNDLED)
def test_law_3_on_whole_answers(name: str) -> None:
    for way in ("mask groups and lookup", "jacobi"):
        check_law_3(load(name), task_prompts(name, 108), 200, EXACT[way])


def test_what_drafts_more_takes_fewer_forwards(foreseeing: Checkpoint) -> None:
    prompts = word_prompts(foreseeing, 12, seed=12)
    common = DecodeSettings(tau=0.0, block_size=4, max_new_tokens=60)

    def count(**way: Any) -> tuple[int, int]:  # forwards of the target, and of the draft model
        runs = [run(foreseeing, [prompt], replace(common, **way), foreseeing) for prompt in prompts]
        steps = [step for events in runs for step in steps_of(events)]
        return len(steps), sum(step.num_draft_forwards for step in steps)

    last, every, both = (count(**EXACT[way])[0] for way in list(EXACT)[:4] if way != "lookup")
    assert both < every < last
    num_tokens = sum(map(len, plain(foreseeing, prompts, 60)))
    settings = {"method": "speculative", "block_size": 8, "tau": 0.5}
    drafted = {masked: count(masked=masked, **settings) for masked in MASKED}
    assert drafted["none"][0] < num_tokens / 3  # a draft like the target is nearly always right
    assert max(drafted["draft"][1], drafted["target"][1]) < drafted["none"][1]


# Law 2: the cursor cache changes nothing; a row of a ragged batch equals that row on its own.


def outline(step: RowStep) -> tuple[Any, ...]:
    tokens = tuple(slot.token for slot in step.proposals)
    checks = tuple(token for token, _ in step.checks)
    rest = step.groups, step.stop, step.num_draft_forwards, checks
    return step.start, tokens, step.accepted, step.drafts, step.guessed, rest


def check_same(ours: Sequence[RowStep], theirs: Sequence[RowStep]) -> None:
    assert list(map(outline, ours)) == list(map(outline, theirs))
    numbers = [[s.confidence for step in steps for s in step.proposals] for steps in (ours, theirs)]
    assert numbers[0] == pytest.approx(numbers[1], abs=1e-4)


def check_law_2(
    checkpoint: Checkpoint, prompts: Any, settings: DecodeSettings, draft: Checkpoint
) -> None:
    cached = run(checkpoint, prompts, settings, draft)
    model, tokenizer, source = checkpoint.model, checkpoint.tokenizer, partial(replace, settings)
    slow = list(slow_twin.decode(model, tokenizer, prompts, source, draft_of(draft)))
    for row in range(len(prompts)):
        check_same(steps_of(cached, row), steps_of(slow, row))


@by_forward(
    [way for way in (*FREE, *EXACT) if way != "auto"],
    ["greedy", "repetition", "late end", "endless"],
    padded=["greedy"],
)
def test_law_2_cached_equals_full_recomputation(
    small: Checkpoint, foreseeing: Checkpoint, way: str, changes: str
) -> None:
    for block_size in (1, 3, 8, 16) if changes == "greedy" else (5,):
        usual = DecodeSettings(tau=0.4, block_size=block_size, max_new_tokens=20)
        changed = {"masked": MASKED[block_size % 4], **(FREE | EXACT)[way], **CHANGES[changes]}
        prompts = word_prompts(foreseeing, 3, seed=block_size)
        check_law_2(foreseeing, prompts, replace(usual, **changed), small)


@EACH_FORWARD
def test_law_2_a_row_equals_the_row_alone_in_any_company(
    foreseeing: Checkpoint, small: Checkpoint
) -> None:
    """Rows join and leave a batch of three, each with settings of its own; one is cancelled."""
    base = DecodeSettings(tau=0.4, block_size=6, max_new_tokens=24)
    kinds: list[dict[str, Any]] = [
        *({"method": "ar"}, {"metric": "entropy", "block_size": 3}, *FREE.values()),
        *(way for name, way in EXACT.items() if name != "auto"),
        {"lossless": True, "tau": 0.0, **CHANGES["repetition"]},
        {"lossless": True, "metric": "margin", **CHANGES["drawn with all"]},
        {"method": "jacobi", **CHANGES["late end"]},
        {"temperature": 1.0, "seed": 5, "max_new_tokens": 7, "top_k": 3},
        {"method": "speculative", "masked": "none", "draft": "other", "repetition_penalty": 1.1},
    ]
    prompts, cancelled = word_prompts(foreseeing, len(kinds), seed=3), 6
    chosen = [replace(base, **kind) for kind in kinds]
    drafts = {"": draft_of(small), "other": draft_of(foreseeing)}
    models = DraftModels(drafts.__getitem__, MAX_BLOCK_SIZE)
    shared = foreseeing.model, foreseeing.tokenizer
    alone = [
        steps_of(decode(*shared, [prompt], lambda settings=settings: settings, draft_models=models))
        for prompt, settings in zip(prompts, chosen, strict=True)
    ]
    for order in (range(len(kinds)), random.Random(1).sample(range(len(kinds)), len(kinds))):
        batch = CursorBatch(*shared, num_rows=3, capacity=64, draft_models=models)
        waiting, actual_steps = list(order), defaultdict[int, list[RowStep]](list)
        while waiting or batch.rows:
            while waiting and len(batch.rows) < 3:
                number = waiting.pop(0)
                batch.add(number, prompts[number], lambda number=number: chosen[number])
            for step in batch.step().rows:
                actual_steps[step.row].append(step)
            if cancelled in batch.rows and len(actual_steps[cancelled]) > 3:
                batch.drop(cancelled)
        for number, steps in enumerate(alone):
            check_same(actual_steps[number], steps[:4] if number == cancelled else steps)


# Law 8: the block decoder, the cursor decoder and full recomputation propose the same tokens when
# tau lets only one through. The block decoder is a twin in the tests.


def check_law_8(checkpoint: Checkpoint, prompts: Sequence[Sequence[int]], **changes: Any) -> None:
    """By margin, because a probability can round to exactly 1 and let more through at tau = 1."""
    common = DecodeSettings(metric="margin", tau=1.0, block_size=6, max_new_tokens=20)
    settings, shared = replace(common, **changes), (checkpoint.model, checkpoint.tokenizer)
    wanted = plain(checkpoint, prompts, 20, **changes)
    cursor = run(checkpoint, prompts, settings)
    uncached = list(slow_twin.decode(*shared, prompts, lambda: settings))
    for row, prompt in enumerate(prompts):
        blocks = list(slow_twin.decode_blocks(*shared, prompt, settings, 7))
        assert [token for _, emitted in blocks for token in emitted] == wanted[row]
        assert max(len(proposals) for proposals, _ in blocks) > 1
        for events in (cursor, uncached):
            for (first, _), other in zip(blocks, steps_of(events, row), strict=True):
                pairs = zip(first, other.proposals, strict=False)
                assert all(ours.token == theirs.token for ours, theirs in pairs)
    for events in (cursor, uncached):
        assert tokens_of(events, len(prompts)) == wanted


@pytest.mark.parametrize("changes", ["greedy", "repetition", "late end", "endless"])
def test_law_8_one_token_a_forward(foreseeing: Checkpoint, changes: str) -> None:
    check_law_8(foreseeing, word_prompts(foreseeing, 6, seed=2), **CHANGES[changes])


@pytest.mark.parametrize("name", SAMPLED)
def test_law_8_on_a_bundled_checkpoint(name: str) -> None:
    check_law_8(load(name), task_prompts(name, 4))


# Law 4: the first token of a step is AR's; 1 to B a step; nothing after the end, nothing forbidden.


@EACH_FORWARD
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("block_size", [1, 3, 8])
def test_law_4_every_step(small: Checkpoint, block_size: int, temperature: float) -> None:
    tokenizer = small.tokenizer
    drawn = {"temperature": temperature, "seed": 6}
    settings = DecodeSettings(tau=0.3, block_size=block_size, max_new_tokens=20, **drawn)
    for prompt in word_prompts(small, 6, seed=6):
        tokens = list(prompt)
        steps = steps_of(run(small, [prompt], settings))
        for step in steps:
            assert 1 <= len(step.accepted) <= block_size
            assert plain(small, [tokens], 1, **drawn) == [[step.accepted[0]]]
            tokens += step.accepted
        new = tokens[len(prompt) :]
        assert len(new) <= 20
        assert not tokenizer.eos_ids & set(new[:-1])
        assert not tokenizer.forbidden_ids & set(new)
        assert max(new) < tokenizer.size
        assert steps[-1].stop == ("eos" if new[-1] in tokenizer.eos_ids else "limit")


def test_a_target_without_masks_is_fed_none(foreseeing: Checkpoint) -> None:
    prompt, models = word_prompts(foreseeing, 1, seed=26), models_of(draft_of(foreseeing, 1), 1)
    usual, shared = DecodeSettings("speculative"), (foreseeing.model, foreseeing.tokenizer)
    for step in steps_of(decode(*shared, prompt, lambda: usual, draft_models=models)):
        assert step.num_fed == step.num_pending
        assert step.num_draft_forwards == len(step.guessed)  # and the draft neither


# Law 5: changing settings in mid-run touches only later steps, and in exact methods no token.


@EACH_FORWARD
@pytest.mark.parametrize("change_at", [0, 1, 4])
def test_law_5_a_change_touches_only_later_steps(foreseeing: Checkpoint, change_at: int) -> None:
    first = DecodeSettings(tau=0.9, block_size=4, max_new_tokens=30)
    then = DecodeSettings(tau=0.0, block_size=8, max_new_tokens=30)
    prompt = word_prompts(foreseeing, 1, seed=9)
    whole = steps_of(run(foreseeing, prompt, first))
    current, steps = SimpleNamespace(settings=first), list[RowStep]()
    for event in decode(foreseeing.model, foreseeing.tokenizer, prompt, lambda: current.settings):
        steps += event.rows if isinstance(event, Step) else ()
        if len(steps) == change_at:
            current.settings = then
    assert steps[:change_at] == whole[:change_at]
    assert all(step.settings is then for step in steps[change_at:])
    assert len(steps[change_at].proposals) == 8
    assert len(steps[change_at].accepted) == 8 or steps[change_at].stop == "eos"


@EACH_FORWARD
@pytest.mark.parametrize("every", [1, 3])
def test_law_5_steering_among_exact_methods_changes_no_token(
    foreseeing: Checkpoint, small: Checkpoint, every: int
) -> None:
    """The draft model joins late, is exchanged for another, and has to catch up."""
    base = DecodeSettings(max_new_tokens=60, tau=0.0)
    drafts = {"": draft_of(small), "other": draft_of(foreseeing)}
    models = DraftModels(drafts.__getitem__, MAX_BLOCK_SIZE)
    ways = [replace(base, **way) for way in ({"method": "ar"}, *EXACT.values())]
    ways.insert(4, replace(base, method="speculative", draft="other", block_size=9, tau=0.5))
    ways = [way for way in ways if not way.is_auto]
    prompt, current = word_prompts(foreseeing, 1, seed=24), SimpleNamespace(settings=ways[0])
    events: list[Event] = []
    model, tokenizer = foreseeing.model, foreseeing.tokenizer
    for event in decode(model, tokenizer, prompt, lambda: current.settings, draft_models=models):
        events.append(event)
        current.settings = ways[len(events) // every % len(ways)]
    assert tokens_of(events) == plain(foreseeing, prompt, 60)
    assert len({step.settings for step in steps_of(events)}) > 4


# Law 14: on one engine the same prompt takes the same passes, whatever ran before.

AUTO = DecodeSettings(tau=0.0, block_size="auto", max_new_tokens=40)
ADAPTIVE = {
    "unverified": AUTO,
    "lossless": replace(AUTO, lossless=True),
    "groups and lookup": replace(AUTO, lossless=True, mask_layout="every", lookup=True),
}


def fed(steps: Iterable[RowStep]) -> list[tuple[object, ...]]:
    return [(step.num_pending, step.num_fed, step.groups, step.accepted) for step in steps]


def test_law_14_passes_do_not_depend_on_what_ran_before(
    foreseeing: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each prompt eight times, in turns, by itself and in an otherwise empty batch, with costs by
    which masks pay; those measured on a busy machine may say that none do.
    """
    given = ForwardCosts(4, {1: tuple(1.0 + 0.05 * width for width in range(16))})
    monkeypatch.setattr(costs, "stored_costs", lambda *_: given)
    prompts, passes = word_prompts(foreseeing, 3, seed=14), defaultdict(list)
    with Engine(foreseeing) as engine:
        for turn in range(8):
            for (way, settings), (number, prompt) in product(ADAPTIVE.items(), enumerate(prompts)):
                run = engine.submit(Request(prompt, settings), is_alone=bool(turn % 2))
                assert run.wait(120)
                passes[way, number].append(fed(steps_of(run.events_since(0))))
    for collected in passes.values():
        assert all(item == collected[0] for item in collected)
    assert any(len(collected[0]) < 40 for collected in passes.values())  # some masks were fed
