"""What a benchmark is to measure: who, on what, and who is compared with whom.

A run is a list of series; a series is one batch size with its peers and questions. Knows names,
numbers and settings, no model.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mars_runtime import tasks
from mars_runtime.lab.benchmark.paired import Question
from mars_runtime.model.registry import is_chat
from mars_runtime.settings import AUTO, MASKED, BlockSize, DecodeSettings, Masked, describe
from mars_runtime.tasks import NATURAL

GENERATE = "transformers generate"
COMPILED = "transformers static cache"
LOOKUP = "transformers prompt lookup"
BATCHING = "transformers continuous batching"
TRANSFORMERS = (GENERATE, COMPILED, LOOKUP, BATCHING)
SHORT = {name.removeprefix("transformers ").replace(" ", "-"): name for name in TRANSFORMERS}
"""transformers' peers as the command line names them."""
LLAMA_CPP = "llama.cpp"
AR, NO_CACHE, BLOCK_CACHE = "AR", "no cache", "block cache"
MIXED = "mixed"
"""The family of a batch whose prompts are of several families."""

WHOLE = ("int8", "int4")
"""Types that transformers has not: it computes such a shape in fp32, many times slower, once."""

FEWEST_BATCHES = 4
PAPER_DRAFTS = 4  # K of its section 4.6
MASKS_AND_ONE = 4
"""B of the ways with fixed masks on requests: further masks are seldom right."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured.

    num_slow: transformers' ways answer so many questions of each family, once; None for all, in
        every round. num_first: tokens of a prompt whose first token is timed by itself; 0 for none.
    """

    families: tuple[str, ...]
    num_prompts: int
    num_rounds: int
    batch_sizes: tuple[int, ...]
    max_new_tokens: int
    threads: tuple[int, ...]
    num_slow: int | None
    num_first: int


TASKS = Extent(
    families=tuple(tasks.all_families()),
    num_prompts=10,
    num_rounds=3,
    batch_sizes=(1, 8),
    max_new_tokens=96,
    threads=(1, 2),
    num_slow=None,
    num_first=0,
)
REQUESTS = Extent(
    families=tasks.KINDS,
    num_prompts=12,
    num_rounds=2,
    batch_sizes=(1,),
    max_new_tokens=64,
    threads=(2,),
    num_slow=2,
    num_first=200,
)
"""Of a chat model. Its answers are long, so fewer are timed, and transformers' ways, many times
slower, answer some of them once."""


def default_for(checkpoint: str, families: Sequence[str] | None) -> Extent:
    """Of requests where some are asked for, or a chat model is asked without saying what."""
    if families is None:
        return REQUESTS if is_chat(checkpoint) else TASKS
    return REQUESTS if set(families) & set(tasks.KINDS) else TASKS


@dataclass(frozen=True, slots=True)
class BenchmarkPlan(Extent):
    """What is to be measured, checked.

    ways: this runtime's by name. llama_cpp: a Python
    with llama-cpp-python. told: the arguments, to be kept with the figures. transformers: those of
    its peers that are measured.
    """

    checkpoint: str
    shape: str | None
    acceptance: str | None
    ways: Mapping[str, DecodeSettings]
    cache_blocks: tuple[int, ...]
    llama_cpp: str | None
    seed: int
    device: str
    dtype: str
    load_before: float
    told: Mapping[str, Any]
    transformers: tuple[str, ...] = TRANSFORMERS

    @property
    def cursor(self) -> str | None:
        """The way that block cache and no cache decode too: the first MARS
        way with a fixed B."""
        for name, way in self.ways.items():
            if way.method == "mars" and not way.lossless and isinstance(way.block_size, int):
                return name
        return None


def runtime_ways(
    taus: Sequence[float],
    block_sizes: Sequence[int],
    lossless_taus: Sequence[float],
    lossless_block_sizes: Sequence[int],
    max_new_tokens: int,
) -> dict[str, DecodeSettings]:
    """This runtime's ways by name, AR first; with B chosen on the way (``auto``) once for MARS and
    once lossless. Raises SettingsError."""
    ways = [DecodeSettings("ar", 1.0, 1, max_new_tokens=max_new_tokens)]
    for is_lossless, ts, sizes in (
        (False, taus, block_sizes),
        (True, lossless_taus, lossless_block_sizes),
    ):
        pairs: list[tuple[float, BlockSize]] = [(tau, size) for size in sizes for tau in ts]
        pairs += [(tau, AUTO) for tau in ts[:1]]
        ways += [
            DecodeSettings("mars", tau, size, lossless=is_lossless, max_new_tokens=max_new_tokens)
            for tau, size in pairs
        ]
    return {describe(one): one for one in ways}


def request_ways(max_new_tokens: int) -> dict[str, DecodeSettings]:
    """The ways that are measured on requests by name, AR first: masks alone, text looked up alone,
    both; masks after the last token or after every one; unverified. Raises SettingsError."""
    size = MASKS_AND_ONE
    lossless = DecodeSettings(tau=0.0, lossless=True, max_new_tokens=max_new_tokens)
    chosen = replace(lossless, block_size=AUTO, groups="every")
    ways = [
        DecodeSettings("ar", 1.0, 1, max_new_tokens=max_new_tokens),
        replace(lossless, block_size=size),
        replace(lossless, block_size=size, groups="every"),
        chosen,
        replace(lossless, block_size=1, lookup=True),
        replace(chosen, lookup=True),
        DecodeSettings(tau=0.95, block_size=size, max_new_tokens=max_new_tokens),
    ]
    return {describe(one): one for one in ways}


def speculative_ways(drafts: Mapping[str, bool], max_new_tokens: int) -> dict[str, DecodeSettings]:
    """Speculative decoding with the paper's K and τ, the target without and with masks after every
    draft, by each of ``drafts``: name -> whether it was trained for masks, and so drafts by them as
    well as without (paper, section 4.6)."""
    spoken = DecodeSettings("speculative", tau=0.95, block_size=PAPER_DRAFTS, groups="every")
    combinations: dict[bool, tuple[Masked, ...]] = {False: ("none", "target"), True: MASKED[::-1]}
    ways = [
        replace(spoken, draft=name, masked=masked, max_new_tokens=max_new_tokens)
        for name, is_trained in drafts.items()
        for masked in combinations[is_trained]
    ]
    return {describe(one): one for one in ways}


def imposed(ways: Mapping[str, DecodeSettings]) -> dict[str, DecodeSettings]:
    """The ways of a shape, whose drafts mean nothing: their names say that what is accepted of them
    is imposed."""
    return {
        name if way.method == "ar" else f"{name}, acceptance imposed": way
        for name, way in ways.items()
    }


def comparisons(
    peers: Sequence[str], best_block: str | None = None, cursor: str | None = None
) -> list[tuple[str, str]]:
    """What a reader asks of these peers, as pairs of a peer and its baseline: AR against each of
    transformers', all else against AR, everything here against llama.cpp; and the same decoding
    under three caches: the cursor's, the best block size, none."""
    others = [peer for peer in peers if peer not in (AR, LLAMA_CPP, *TRANSFORMERS)]
    found = [(AR, peer) for peer in peers if peer in TRANSFORMERS]
    found += [(peer, AR) for peer in [*others, LOOKUP] if peer in peers]
    if LLAMA_CPP in peers:
        found += [(peer, LLAMA_CPP) for peer in peers if is_ours(peer)]
    if best_block and cursor:
        found.append((cursor, best_block))
    if best_block and NO_CACHE in peers:
        found.append((best_block, NO_CACHE))
    return found


def questions(
    prompts: Mapping[str, Sequence[Sequence[int]]], batch_size: int, num_prompts: int, seed: int
) -> list[Question]:
    """Questions of ``batch_size`` prompts each, from ``num_prompts`` of each family.

    One prompt at a time keeps its family. Batches mix the families, as requests do; natural text is
    batched apart, once. A mixed batch takes as long as many single prompts: there is one for every
    three of ``num_prompts``, at least FEWEST_BATCHES. Prompts are used again where they are too
    few.
    """
    prompts = {family: own[:num_prompts] for family, own in prompts.items()}
    if batch_size == 1:
        return [Question(family, (tuple(one),)) for family, own in prompts.items() for one in own]
    rng = random.Random(seed)
    pools = {NATURAL: list(prompts.get(NATURAL, ()))}
    pools[MIXED] = [one for family, own in prompts.items() if family != NATURAL for one in own]
    found = []
    for family, wanted in ((MIXED, max(FEWEST_BATCHES, num_prompts // 3)), (NATURAL, 1)):
        pool = pools[family]
        rng.shuffle(pool)
        count = wanted if pool else 0
        for start in range(0, count * batch_size, batch_size):
            rows = [pool[at % len(pool)] for at in range(start, start + batch_size)]
            found.append(Question(family, tuple(tuple(row) for row in rows)))
    return found


def first_question(questions: Sequence[Question], num_tokens: int) -> Question | None:
    """A prompt of exactly so many tokens: the beginning of all the questions' prompts in a row."""
    if num_tokens == 0:
        return None
    tokens = [token for question in questions for token in question.prompts[0]]
    return Question("first token", (tuple(tokens[:num_tokens]),))


def is_ours(peer: str) -> bool:
    """Whether this runtime decodes it."""
    return peer not in (*TRANSFORMERS, LLAMA_CPP)
