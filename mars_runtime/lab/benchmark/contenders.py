"""Builds the peers of a series: this runtime's ways, transformers', llama.cpp, the official.

Knows how each is made; times nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mars_runtime.lab.benchmark import official, plan
from mars_runtime.lab.benchmark.answer import Answer
from mars_runtime.lab.benchmark.llama_peer import LlamaCpp
from mars_runtime.lab.benchmark.paired import Question
from mars_runtime.lab.benchmark.peers import Ask, runtime_ask
from mars_runtime.lab.benchmark.transformers_peers import (
    ContinuousBatching,
    Decoding,
    generate_ask,
    has_continuous_batching,
    lookup_ask,
)
from mars_runtime.lab.evaluation.measure import Decode
from mars_runtime.model.config import CheckpointError
from mars_runtime.settings import DecodeSettings

if TYPE_CHECKING:
    import torch

    from mars_runtime.text import Tokenizer


@dataclass(frozen=True, slots=True)
class Target:
    """What is decoded by everybody.

    decode: this runtime's cursor cache. decode_block: the paper's block cache of so many tokens;
        decode_uncached: none. They are measured in batches, where there are any.
    load_transformers: the same weights in transformers' class, anew at each call.
    can_choose: whether B can be left to be chosen (``auto``), which asks for real acceptance.
    tokenizer: None for shapes without text, which the official sampler cannot decode.
    gguf: the file that the weights come from, where it is one that llama.cpp reads.
    """

    device: torch.device
    decode: Decode
    load_transformers: Callable[[], Any]
    eos_ids: tuple[int, ...]
    decode_block: Callable[[int], Decode] | None = None
    decode_uncached: Decode | None = None
    can_choose: bool = False
    tokenizer: Tokenizer | None = None
    gguf: Path | None = None


class Contenders:
    """Peers by batch size, on models that are loaded once. Close it: workers must end."""

    def __init__(self, target: Target, ways: Mapping[str, DecodeSettings]) -> None:
        self._target = target
        self._ways = {
            name: way for name, way in ways.items() if target.can_choose or not way.is_auto
        }
        self._limit = next(iter(ways.values())).max_new_tokens
        self._decoding = Decoding(target.eos_ids, self._limit)
        self._model = target.load_transformers()
        self._stack = ExitStack()

    def __enter__(self) -> Contenders:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def of(self, batch_size: int, longest: int) -> dict[str, Ask]:
        """transformers' ways, then ours, for questions of ``batch_size`` prompts of at most
        ``longest`` tokens."""
        device, is_cuda = self._target.device, self._target.device.type == "cuda"
        asks = {plan.GENERATE: generate_ask(self._model, self._decoding)}
        if is_cuda:
            static = {"cache_implementation": "static"}
            asks[plan.COMPILED] = generate_ask(self._model, self._decoding, **static)
        # What may be copied from a prompt is a matter of text, which a shape does not have.
        if batch_size == 1 and self._target.tokenizer is not None:
            asks[plan.LOOKUP] = lookup_ask(self._model, self._decoding)
        if (is_cuda or batch_size > 1) and has_continuous_batching():
            asks[plan.BATCHING] = self._batching(batch_size, longest)
        asks |= {
            name: runtime_ask(self._target.decode, way, device) for name, way in self._ways.items()
        }
        return asks

    def other_caches(self, settings: DecodeSettings, cache_blocks: Sequence[int]) -> dict[str, Ask]:
        """The way of ``settings`` under the block cache, by its sizes, and under none."""
        target, asks = self._target, {}
        if target.decode_block is not None:
            for size in cache_blocks:
                ask = runtime_ask(target.decode_block(size), settings, target.device)
                asks[f"{plan.BLOCK_CACHE} {size}"] = ask
        if target.decode_uncached is not None:
            asks[plan.NO_CACHE] = runtime_ask(target.decode_uncached, settings, target.device)
        return asks

    def official(self, repository: Path, settings: DecodeSettings, cache_block: int) -> Ask:
        """The official sampler with tau and B of ``settings``. Raises CheckpointError."""
        if self._target.tokenizer is None:
            raise CheckpointError("The official sampler needs a checkpoint: leave --shape out.")
        samplers = official.load_samplers(repository)
        return official.official_ask(
            samplers, self._model, self._target.tokenizer, settings, cache_block
        )

    def llama(self, interpreter: str, longest: int) -> tuple[Ask, LlamaCpp]:
        """llama.cpp, run by ``interpreter``, for prompts of at most ``longest`` tokens: the peer,
        and the process behind it, which ends with these contenders. Raises CheckpointError."""
        if self._target.gguf is None:
            raise CheckpointError("llama.cpp reads GGUF files alone: leave --llama-cpp out.")
        num_tokens = longest + self._limit
        child = LlamaCpp(interpreter, self._target.gguf, num_tokens)
        self._stack.enter_context(closing(child))
        return lambda question: child.ask(question, self._decoding), child

    def _batching(self, batch_size: int, longest: int) -> Ask:
        """Made at the first question, so that a fault is told like any other of a warm-up. On a
        model of its own: it may change the model's attention."""
        made: list[ContinuousBatching] = []

        def ask(question: Question) -> Answer:
            if not made:
                model = self._target.load_transformers()
                found = ContinuousBatching(model, self._decoding, batch_size, longest)
                made.append(self._stack.enter_context(closing(found)))
            return made[0].ask(question)

        return ask
