"""The plan of a benchmark: its peers, questions and comparisons.

A run is a list of series; a series is one batch size with its peers and questions.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from mars_runtime import tasks
from mars_runtime.lab.benchmark.paired import PromptGroup
from mars_runtime.model.registry import is_chat
from mars_runtime.settings import AUTO, MASKED, BlockSize, DecodeSettings, Masked, describe
from mars_runtime.tasks import NATURAL

GENERATE = "transformers generate"
COMPILED = "transformers static cache"
LOOKUP = "transformers prompt lookup"
BATCHING = "transformers continuous batching"
TRANSFORMERS = (GENERATE, COMPILED, LOOKUP, BATCHING)
SHORT = {name.removeprefix("transformers ").replace(" ", "-"): name for name in TRANSFORMERS}
"""The names of transformers' peers on the command line."""
AR, NO_CACHE, BLOCK_CACHE = "AR", "no cache", "block cache"
MIXED = "mixed"
"""The family of a batch with prompts of several families."""

Reads = Literal["gguf", "folder"]
READS: dict[Reads, str] = {
    "gguf": "GGUF files and shapes in int8 or int4",
    "folder": "the weights of GGUF files in 4 bits",
}
"""What an engine can be given, in words."""


@dataclass(frozen=True, slots=True)
class OtherEngine:
    """Another engine, which runs in a child process.

    name: in tables. key: its argument on the command line with underscores, and that of the child.
    package: what its environment needs. reads: the GGUF file itself, or a folder of transformers
    with its weights as fp32, which the engine quantises again.
    """

    name: str
    key: str
    package: str
    reads: Reads = "gguf"

    @property
    def option(self) -> str:
        return f"--{self.key.replace('_', '-')}"


LLAMA_CPP = OtherEngine("llama.cpp", "llama_cpp", "llama-cpp-python")
OPENVINO = OtherEngine("OpenVINO GenAI", "openvino", "openvino-genai")
ONNXRUNTIME = OtherEngine("onnxruntime-genai", "onnxruntime", "onnxruntime-genai", "folder")
ENGINES = (LLAMA_CPP, OPENVINO, ONNXRUNTIME)

QUANTIZED = ("int8", "int4")
"""Types that transformers lacks: it computes such a shape in fp32, so slowly that it does so once.
"""
MIN_BATCHES = 4
PAPER_DRAFTS = 4  # K in section 4.6 of the paper
MASKED_BLOCK = 4
"""B of the methods with a fixed number of masks on requests; more masks are seldom right."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured.

    num_slow: number of questions of each family that transformers answers, once; None for all
    questions in every round.
    """

    families: tuple[str, ...]
    num_prompts: int
    num_rounds: int
    batch_sizes: tuple[int, ...]
    max_new_tokens: int
    threads: tuple[int, ...]
    num_slow: int | None


TASKS = Extent(
    families=tuple(tasks.all_families()),
    num_prompts=10,
    num_rounds=3,
    batch_sizes=(1, 8),
    max_new_tokens=96,
    threads=(1, 2),
    num_slow=None,
)
REQUESTS = Extent(
    families=tasks.KINDS,
    num_prompts=12,
    num_rounds=2,
    batch_sizes=(1,),
    max_new_tokens=64,
    threads=(2,),
    num_slow=2,
)
"""For a chat model, whose answers are long and with which transformers is many times slower."""


def default_for(checkpoint: str, families: Sequence[str] | None) -> Extent:
    """Return REQUESTS for kinds of requests, and for a chat model without given families."""
    if families is None:
        return REQUESTS if is_chat(checkpoint) else TASKS
    return REQUESTS if set(families) & set(tasks.KINDS) else TASKS


@dataclass(frozen=True, slots=True)
class BenchmarkPlan(Extent):
    """A validated plan.

    methods: those of this runtime, by name. engines: a Python for each engine that takes part.
    arguments: stored with the result. transformers: its peers that are measured.
    """

    checkpoint: str
    shape: str | None
    acceptance: str | None
    methods: Mapping[str, DecodeSettings]
    cache_blocks: tuple[int, ...]
    engines: Mapping[OtherEngine, str]
    seed: int
    device: str
    dtype: str
    load_before: float
    arguments: Mapping[str, Any]
    transformers: tuple[str, ...] = TRANSFORMERS

    @property
    def cursor(self) -> str | None:
        """The method that is also decoded with the block cache and without a cache: the first MARS
        method with a fixed B."""
        for name, one in self.methods.items():
            if one.method == "mars" and not one.lossless and isinstance(one.block_size, int):
                return name
        return None


def task_methods(
    taus: Sequence[float],
    block_sizes: Sequence[int],
    lossless_taus: Sequence[float],
    lossless_block_sizes: Sequence[int],
    max_new_tokens: int,
) -> dict[str, DecodeSettings]:
    """Return the methods for tasks by name, AR first; MARS and lossless MARS also with B chosen
    during decoding. Raises SettingsError."""
    methods = [DecodeSettings("ar", 1.0, 1, max_new_tokens=max_new_tokens)]
    for is_lossless, own_taus, sizes in (
        (False, taus, block_sizes),
        (True, lossless_taus, lossless_block_sizes),
    ):
        pairs: list[tuple[float, BlockSize]] = [(tau, size) for size in sizes for tau in own_taus]
        pairs += [(tau, AUTO) for tau in own_taus[:1]]
        methods += [
            DecodeSettings("mars", tau, size, lossless=is_lossless, max_new_tokens=max_new_tokens)
            for tau, size in pairs
        ]
    return {describe(one): one for one in methods}


def request_methods(max_new_tokens: int) -> dict[str, DecodeSettings]:
    """Return the methods for requests by name, AR first: masks, prompt lookup or both; masks after
    the last token or after every draft; not lossless. Raises SettingsError."""
    lossless = DecodeSettings(tau=0.0, lossless=True, max_new_tokens=max_new_tokens)
    chosen = replace(lossless, block_size=AUTO, mask_layout="every")
    methods = [
        DecodeSettings("ar", 1.0, 1, max_new_tokens=max_new_tokens),
        replace(lossless, block_size=MASKED_BLOCK),
        replace(lossless, block_size=MASKED_BLOCK, mask_layout="every"),
        chosen,
        replace(lossless, block_size=1, lookup=True),
        replace(chosen, lookup=True),
        DecodeSettings(tau=0.95, block_size=MASKED_BLOCK, max_new_tokens=max_new_tokens),
    ]
    return {describe(one): one for one in methods}


def speculative_methods(
    drafts: Mapping[str, bool], max_new_tokens: int
) -> dict[str, DecodeSettings]:
    """Return speculative decoding with the paper's K and τ, with and without masks in the target.

    drafts: whether each draft checkpoint was trained for masks and so is also fed masks (paper,
    section 4.6).
    """
    base = DecodeSettings("speculative", tau=0.95, block_size=PAPER_DRAFTS, mask_layout="every")
    combinations: dict[bool, tuple[Masked, ...]] = {False: ("none", "target"), True: MASKED[::-1]}
    methods = [
        replace(base, draft=name, masked=masked, max_new_tokens=max_new_tokens)
        for name, is_trained in drafts.items()
        for masked in combinations[is_trained]
    ]
    return {describe(one): one for one in methods}


def imposed(methods: Mapping[str, DecodeSettings]) -> dict[str, DecodeSettings]:
    """Return the methods of a shape, with names that say that the acceptance is imposed."""
    return {
        name if one.method == "ar" else f"{name}, acceptance imposed": one
        for name, one in methods.items()
    }


def comparisons(
    peers: Sequence[str], best_block: str | None = None, cursor: str | None = None
) -> list[tuple[str, str]]:
    """Return the pairs of a peer and its baseline that are reported.

    AR is compared with each peer of transformers, other methods with AR, all of this runtime with
    each engine, and one method with three caches: its own, the best block size, none.
    """
    engines = [engine.name for engine in ENGINES if engine.name in peers]
    others = [peer for peer in peers if is_ours(peer) and peer != AR]
    pairs = [(AR, peer) for peer in peers if peer in TRANSFORMERS]
    pairs += [(peer, AR) for peer in [*others, LOOKUP] if peer in peers]
    pairs += [(peer, engine) for engine in engines for peer in peers if is_ours(peer)]
    if best_block and cursor:
        pairs.append((cursor, best_block))
    if best_block and NO_CACHE in peers:
        pairs.append((best_block, NO_CACHE))
    return pairs


def questions(
    prompts: Mapping[str, Sequence[Sequence[int]]], batch_size: int, num_prompts: int, seed: int
) -> list[PromptGroup]:
    """Return questions of ``batch_size`` prompts each, from ``num_prompts`` of each family.

    Single prompts keep their family. Batches mix the families, as a server's requests do; natural
    text has one batch of its own. There is one mixed batch for every three of ``num_prompts``, at
    least MIN_BATCHES. Prompts repeat if there are too few.
    """
    prompts = {family: own[:num_prompts] for family, own in prompts.items()}
    if batch_size == 1:
        return [
            PromptGroup(family, (tuple(one),)) for family, own in prompts.items() for one in own
        ]
    rng = random.Random(seed)
    pools = {NATURAL: list(prompts.get(NATURAL, ()))}
    pools[MIXED] = [one for family, own in prompts.items() if family != NATURAL for one in own]
    found = []
    for family, wanted in ((MIXED, max(MIN_BATCHES, num_prompts // 3)), (NATURAL, 1)):
        pool = pools[family]
        rng.shuffle(pool)
        count = wanted if pool else 0
        for start in range(0, count * batch_size, batch_size):
            rows = [pool[at % len(pool)] for at in range(start, start + batch_size)]
            found.append(PromptGroup(family, tuple(tuple(row) for row in rows)))
    return found


def is_ours(peer: str) -> bool:
    """Whether this runtime decodes it."""
    return peer not in (*TRANSFORMERS, *(engine.name for engine in ENGINES))
