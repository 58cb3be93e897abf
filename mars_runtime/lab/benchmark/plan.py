"""Who is to be measured on what, and who is compared with whom. Knows names and settings, no model.

A run is a list of series; a series is one batch size with its peers and questions.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mars_runtime.lab.benchmark.paired import Question
from mars_runtime.settings import AUTO, MASKED, BlockSize, DecodeSettings, Masked, describe
from mars_runtime.tasks import NATURAL

GENERATE = "transformers generate"
COMPILED = "transformers static cache"
LOOKUP = "transformers prompt lookup"
BATCHING = "transformers continuous batching"
TRANSFORMERS = (GENERATE, COMPILED, LOOKUP, BATCHING)
LLAMA_CPP = "llama.cpp"
AR, OFFICIAL, NO_CACHE, BLOCK_CACHE = "AR", "official sampler", "no cache", "block cache"
MIXED = "mixed"
"""The family of a batch whose prompts are of several families."""

GRID_TAUS, GRID_BLOCK_SIZES = (0.95, 0.8, 0.5), (2, 4, 8)
FEWEST_BATCHES = 4
PAPER_DRAFTS = 4  # K of its section 4.6
MASKS_AND_ONE = 4
"""B of the ways with fixed masks on requests: further masks are seldom right."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """``peer`` against ``baseline``. ``eta`` is asked where both are this runtime's."""

    peer: str
    baseline: str
    has_eta: bool = False


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


def comparisons(peers: Sequence[str]) -> list[Comparison]:
    """What a reader asks of these peers: AR against each of transformers', all else against AR,
    and everything here against llama.cpp."""
    found = [Comparison(AR, peer) for peer in peers if peer in TRANSFORMERS]
    for peer in peers:
        if peer not in (AR, LLAMA_CPP, *TRANSFORMERS):
            found.append(Comparison(peer, AR, has_eta=peer != OFFICIAL))
    if LOOKUP in peers:
        found.append(Comparison(LOOKUP, AR))
    if LLAMA_CPP in peers:
        found += [Comparison(peer, LLAMA_CPP) for peer in peers if is_ours(peer)]
    return found


def against_block(
    peers: Sequence[str], best_block: str | None, cursor: str | None
) -> list[Comparison]:
    """The same decoding under three caches: the cursor's, the best block size, none."""
    found = []
    if best_block and cursor:
        found.append(Comparison(cursor, best_block))
    if best_block and NO_CACHE in peers:
        found.append(Comparison(best_block, NO_CACHE))
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


def is_ours(peer: str) -> bool:
    """Whether this runtime decodes it."""
    return peer not in (*TRANSFORMERS, OFFICIAL, LLAMA_CPP)
