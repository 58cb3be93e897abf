"""Build the peers of a series: methods of this runtime, transformers and other engines.

Methods of this runtime are timed from the call to the last event and, on a GPU, until the GPU has
finished. Tokens are not converted to text.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from mars_runtime.events import RowStep, Step
from mars_runtime.lab.benchmark import plan
from mars_runtime.lab.benchmark.child import ChildEngine
from mars_runtime.lab.benchmark.elsewhere import (
    LOOKUP_TOKENS,
    AnswerEnd,
    ContinuousBatching,
    generate_ask,
    has_continuous_batching,
)
from mars_runtime.lab.benchmark.forward import now
from mars_runtime.lab.benchmark.paired import Ask, Chunk, PromptGroup, TimedAnswer, TimedRow
from mars_runtime.lab.benchmark.targets import Target
from mars_runtime.lab.evaluation.measure import Decode
from mars_runtime.model.config import CheckpointError
from mars_runtime.settings import DecodeSettings


class Peers:
    """Builds the peers of each batch size. All peers with ``generate`` share one loaded model.

    Use an instance as a context manager, which ends worker threads and child processes.
    """

    def __init__(
        self,
        target: Target,
        methods: Mapping[str, DecodeSettings],
        transformers: Sequence[str] = plan.TRANSFORMERS,
    ) -> None:
        has_text = target.tokenizer is not None
        self._target = target
        self._transformers = transformers
        self._methods = {
            name: settings for name, settings in methods.items() if has_text or not settings.is_auto
        }
        self._limit = next(iter(methods.values())).max_new_tokens
        self._decoding = AnswerEnd(target.eos_ids, self._limit)
        self._stack = ExitStack()

    @cached_property
    def _model(self) -> Any:
        return self._target.load_transformers()

    def __enter__(self) -> Peers:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def of(self, batch_size: int, longest: int) -> dict[str, Ask]:
        """Return the peers in transformers and in this runtime: name -> function that answers.

        Questions must have ``batch_size`` prompts of at most ``longest`` tokens.
        """
        is_cuda = self._target.device.type == "cuda"
        asks = {plan.GENERATE: self._generate()}
        if is_cuda:
            asks[plan.COMPILED] = self._generate(cache_implementation="static")
        # Prompt lookup needs real prompts; a model shape only has random ones.
        if batch_size == 1 and self._target.tokenizer is not None:
            asks[plan.LOOKUP] = self._generate(prompt_lookup_num_tokens=LOOKUP_TOKENS)
        if (is_cuda or batch_size > 1) and has_continuous_batching():
            asks[plan.BATCHING] = self._batching(batch_size, longest)
        asks = {name: ask for name, ask in asks.items() if name in self._transformers}
        decode, device = self._target.decode, self._target.device
        methods = self._methods.items()
        return asks | {name: runtime_ask(decode, settings, device) for name, settings in methods}

    def other_caches(self, settings: DecodeSettings, cache_blocks: Sequence[int]) -> dict[str, Ask]:
        """Return peers that decode with ``settings``, but without a KV cache or with a block cache.

        cache_blocks: block sizes of the block cache; each becomes one peer.
        """
        decode_with, device = self._target.decode_with, self._target.device
        if decode_with is None:
            return {}
        decodes = {f"{plan.BLOCK_CACHE} {n}": decode_with("block", n) for n in cache_blocks}
        decodes[plan.NO_CACHE] = decode_with("uncached")
        return {name: runtime_ask(decode, settings, device) for name, decode in decodes.items()}

    def engine(
        self, engine: plan.OtherEngine, interpreter: str, longest: int
    ) -> tuple[Ask, dict[str, str]]:
        """Start another engine; return a function that answers questions, and package versions.

        interpreter: path of a Python interpreter that has the engine's package. longest: maximum
        number of tokens of a prompt. Raises CheckpointError.
        """
        write = self._target.files.get(engine.reads)
        if write is None:
            raise CheckpointError(
                f"{engine.name} can only read {plan.READS[engine.reads]}. Remove {engine.option}."
            )
        folder = Path(self._stack.enter_context(TemporaryDirectory()))
        child = ChildEngine(engine, interpreter, write(folder), longest + self._limit)
        self._stack.enter_context(closing(child))
        return partial(child.ask, decoding=self._decoding), child.versions

    def _generate(self, **more: Any) -> Ask:
        """Return a peer that decodes with ``generate`` of transformers.

        The model is loaded for the first question, so a failure to load it appears in the warm-up.
        """

        def ask(question: PromptGroup) -> TimedAnswer:
            return generate_ask(self._model, self._decoding, **more)(question)

        return ask

    def _batching(self, batch_size: int, longest: int) -> Ask:
        """Return a peer that uses continuous batching. Its worker starts at the first question.

        Continuous batching can change the attention of its model, so it loads a separate model.
        """
        started: list[ContinuousBatching] = []

        def ask(question: PromptGroup) -> TimedAnswer:
            if not started:
                model = self._target.load_transformers()
                batching = ContinuousBatching(model, self._decoding, batch_size, longest)
                started.append(self._stack.enter_context(closing(batching)))
            return started[0].ask(question)

        return ask


def runtime_ask(decode: Decode, settings: DecodeSettings, device: torch.device) -> Ask:
    def ask(question: PromptGroup) -> TimedAnswer:
        steps: list[tuple[float, Step]] = []
        with torch.inference_mode():
            start = now(device)
            for event in decode(question.prompts, settings):
                if isinstance(event, Step):
                    steps.append((time.perf_counter() - start, event))
            seconds = now(device) - start
        rows: list[list[tuple[float, RowStep]]] = [[] for _ in question.prompts]
        for moment, step in steps:
            for row in step.rows:
                rows[row.row].append((moment, row))
        return TimedAnswer(tuple(map(_row, rows)), seconds, len(steps))

    return ask


def _row(steps: Sequence[tuple[float, RowStep]]) -> TimedRow:
    return TimedRow(
        tokens=tuple(token for _, step in steps for token in step.accepted),
        chunks=tuple(Chunk(moment, len(step.accepted)) for moment, step in steps),
        num_draft_forwards=sum(step.num_draft_forwards for _, step in steps),
    )
