"""Plan a benchmark: its peers, questions and comparisons.

A benchmark consists of series. A series is one batch size, with the peers to measure and the
questions that they answer.
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
"""Name on the command line -> name of a peer in transformers."""
AR, NO_CACHE, BLOCK_CACHE = "AR", "no cache", "block cache"
MIXED = "mixed"
"""The family name of batches that mix prompts of several families."""

Reads = Literal["gguf", "folder"]
READS: dict[Reads, str] = {
    "gguf": "GGUF files and shapes in int8 or int4",
    "folder": "the weights of GGUF files in 4 bits",
}
"""Format that an engine reads -> a description of the weights that exist in this format."""


@dataclass(frozen=True, slots=True)
class OtherEngine:
    """Another engine, which decodes in a child process.

    - name: the name in tables.
    - key: the name in ``engine_child.ENGINES``. The command-line option is this name with dashes.
    - package: the package that the Python environment of the engine must have.
    - reads: format of the weights. ``gguf`` is a GGUF file. ``folder`` is a folder in transformers'
      layout with fp32 weights, which the engine quantises again.
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
"""Dtypes that transformers lacks. It decodes such models in fp32, which is slow."""
MIN_BATCHES = 4
PAPER_DRAFTS = 4  # K in section 4.6 of the paper
MASKED_BLOCK = 4
"""The fixed B for open-ended requests. With a larger B, the additional masks are rarely right."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The amount of work in a benchmark.

    num_slow: number of questions per family that transformers answers, in the first round only.
    With None, transformers answers all questions in every round.
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
"""The default extent for chat models, which give long answers and are slow in transformers."""


def default_for(checkpoint: str, families: Sequence[str] | None) -> Extent:
    """Return how much to measure by default: TASKS or REQUESTS.

    The result is REQUESTS if ``families`` contains a kind of request. If ``families`` is None, the
    result is REQUESTS for a chat model.
    """
    if families is None:
        return REQUESTS if is_chat(checkpoint) else TASKS
    return REQUESTS if set(families) & set(tasks.KINDS) else TASKS


@dataclass(frozen=True, slots=True)
class BenchmarkPlan(Extent):
    """A validated plan of a benchmark.

    - methods: name -> settings, for the methods of this runtime.
    - engines: other engine -> path of the Python interpreter that has its package.
    - load_before: load average of the machine before the start.
    - arguments: the command-line arguments to store with the result.
    - transformers: names of the peers in transformers to measure.
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
        """Name of the method that is also measured with the block cache and without a cache.

        This is the first MARS method with a fixed B that is not lossless.
        """
        for name, settings in self.methods.items():
            is_fixed = isinstance(settings.block_size, int)
            if settings.method == "mars" and not settings.lossless and is_fixed:
                return name
        return None


def task_methods(
    taus: Sequence[float],
    block_sizes: Sequence[int],
    lossless_taus: Sequence[float],
    lossless_block_sizes: Sequence[int],
    max_new_tokens: int,
) -> dict[str, DecodeSettings]:
    """Return the settings of the methods for tasks, by name: AR, MARS and lossless MARS.

    MARS and lossless MARS are also included with automatic B. Raises SettingsError.
    """
    methods = [DecodeSettings("ar", 1.0, 1, max_new_tokens=max_new_tokens)]
    for is_lossless, some_taus, sizes in (
        (False, taus, block_sizes),
        (True, lossless_taus, lossless_block_sizes),
    ):
        pairs: list[tuple[float, BlockSize]] = [(tau, size) for size in sizes for tau in some_taus]
        pairs += [(tau, AUTO) for tau in some_taus[:1]]
        methods += [
            DecodeSettings("mars", tau, size, lossless=is_lossless, max_new_tokens=max_new_tokens)
            for tau, size in pairs
        ]
    return {describe(settings): settings for settings in methods}


def request_methods(max_new_tokens: int) -> dict[str, DecodeSettings]:
    """Return the settings of the methods for open-ended requests, by name: AR, MARS, lossless MARS.

    Lossless MARS is included with masks after the last token, with masks after every draft, with
    prompt lookup, and with both masks and prompt lookup. Raises SettingsError.
    """
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
    return {describe(settings): settings for settings in methods}


def speculative_methods(
    drafts: Mapping[str, bool], max_new_tokens: int
) -> dict[str, DecodeSettings]:
    """Return settings of speculative decoding, by name, with the paper's K and τ (section 4.6).

    drafts: name of a draft checkpoint -> whether it was trained with masks. Methods with masks in
    the target are included for all draft models. Methods with masks in the draft model are included
    only if it was trained with masks.
    """
    base = DecodeSettings("speculative", tau=0.95, block_size=PAPER_DRAFTS, mask_layout="every")
    combinations: dict[bool, tuple[Masked, ...]] = {False: ("none", "target"), True: MASKED[::-1]}
    methods = [
        replace(base, draft=name, masked=masked, max_new_tokens=max_new_tokens)
        for name, is_trained in drafts.items()
        for masked in combinations[is_trained]
    ]
    return {describe(settings): settings for settings in methods}


def imposed(methods: Mapping[str, DecodeSettings]) -> dict[str, DecodeSettings]:
    """Add "acceptance imposed" to the names of all methods except AR.

    This marks results of a model shape: numbers of accepted tokens come from a histogram.
    """
    return {
        name if settings.method == "ar" else f"{name}, acceptance imposed": settings
        for name, settings in methods.items()
    }


def comparisons(
    peers: Sequence[str], best_block: str | None = None, cursor: str | None = None
) -> list[tuple[str, str]]:
    """Return the pairs (peer, baseline) to report.

    - AR is compared with each method of transformers.
    - The other methods of this runtime, and prompt lookup of transformers, are compared with AR.
    - All methods of this runtime are compared with llama.cpp and the other ``ENGINES``.
    - ``cursor`` is compared with ``best_block``, the peer with the fastest block cache.
    - ``best_block`` is compared with decoding without a cache.
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
    """Return questions of ``batch_size`` prompts each, from ``num_prompts`` prompts per family.

    With a batch size of 1 each question has the family of its prompt. Larger batches mix all
    families, as the requests of a server would; only natural text gets a separate batch. There are
    ``num_prompts // 3`` mixed batches, but at least MIN_BATCHES. Prompts repeat if there are too
    few.
    """
    prompts = {family: own[:num_prompts] for family, own in prompts.items()}
    if batch_size == 1:
        return [
            PromptGroup(family, (tuple(prompt),))
            for family, own in prompts.items()
            for prompt in own
        ]
    rng = random.Random(seed)
    pools = {NATURAL: list(prompts.get(NATURAL, ()))}
    pools[MIXED] = [p for family, own in prompts.items() if family != NATURAL for p in own]
    groups = []
    for family, wanted in ((MIXED, max(MIN_BATCHES, num_prompts // 3)), (NATURAL, 1)):
        pool = pools[family]
        rng.shuffle(pool)
        count = wanted if pool else 0
        for start in range(0, count * batch_size, batch_size):
            rows = [pool[at % len(pool)] for at in range(start, start + batch_size)]
            groups.append(PromptGroup(family, tuple(tuple(row) for row in rows)))
    return groups


def is_ours(peer: str) -> bool:
    """Return whether ``peer`` is a method of this runtime."""
    return peer not in (*TRANSFORMERS, *(engine.name for engine in ENGINES))
