"""Makes the peers of a series: this runtime's ways, transformers' and llama.cpp.

The clock of this runtime's runs from the call to the last event, on a GPU until its work is done;
text is made by nobody. Times nothing else.
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
from mars_runtime.lab.benchmark.elsewhere import (
    LOOKUP_TOKENS,
    ContinuousBatching,
    Decoding,
    LlamaCpp,
    generate_ask,
    has_continuous_batching,
)
from mars_runtime.lab.benchmark.paired import Ask, Chunk, Question, TimedAnswer, TimedRow
from mars_runtime.lab.benchmark.targets import Target
from mars_runtime.lab.evaluation.measure import Decode, num_offered
from mars_runtime.lab.benchmark.forward import now
from mars_runtime.model.config import CheckpointError
from mars_runtime.settings import DecodeSettings


class Peers:
    """Peers by batch size, on models that are loaded once. Close it: workers must end."""

    def __init__(
        self,
        target: Target,
        ways: Mapping[str, DecodeSettings],
        transformers: Sequence[str] = plan.TRANSFORMERS,
    ) -> None:
        has_text = target.tokenizer is not None
        self._target = target
        self._transformers = transformers
        self._ways = {name: way for name, way in ways.items() if has_text or not way.is_auto}
        self._limit = next(iter(ways.values())).max_new_tokens
        self._decoding = Decoding(target.eos_ids, self._limit)
        self._stack = ExitStack()

    @cached_property
    def _model(self) -> Any:
        return self._target.load_transformers()

    def __enter__(self) -> Peers:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def of(self, batch_size: int, longest: int) -> dict[str, Ask]:
        """transformers' ways, then ours, for questions of ``batch_size`` prompts of at most
        ``longest`` tokens."""
        is_cuda = self._target.device.type == "cuda"
        asks = {plan.GENERATE: self._generate()}
        if is_cuda:
            asks[plan.COMPILED] = self._generate(cache_implementation="static")
        # What may be copied from a prompt is a matter of text, which a shape does not have.
        if batch_size == 1 and self._target.tokenizer is not None:
            asks[plan.LOOKUP] = self._generate(prompt_lookup_num_tokens=LOOKUP_TOKENS)
        if (is_cuda or batch_size > 1) and has_continuous_batching():
            asks[plan.BATCHING] = self._batching(batch_size, longest)
        asks = {name: ask for name, ask in asks.items() if name in self._transformers}
        decode, device = self._target.decode, self._target.device
        return asks | {name: runtime_ask(decode, way, device) for name, way in self._ways.items()}

    def other_caches(self, settings: DecodeSettings, cache_blocks: Sequence[int]) -> dict[str, Ask]:
        """The way of ``settings`` under the block cache, by its sizes, and under none."""
        decode_under, device = self._target.decode_under, self._target.device
        if decode_under is None:
            return {}
        decodes = {f"{plan.BLOCK_CACHE} {n}": decode_under("block", n) for n in cache_blocks}
        decodes[plan.NO_CACHE] = decode_under("uncached")
        return {name: runtime_ask(one, settings, device) for name, one in decodes.items()}

    def llama(self, interpreter: str, longest: int) -> tuple[Ask, dict[str, str]]:
        """llama.cpp, run by ``interpreter``, for prompts of at most ``longest`` tokens, and its
        versions; its process ends with these peers. Raises CheckpointError."""
        if self._target.gguf is None:
            raise CheckpointError(
                "llama.cpp reads GGUF files and shapes in int8 or int4: leave --llama-cpp out."
            )
        folder = Path(self._stack.enter_context(TemporaryDirectory()))
        child = LlamaCpp(interpreter, self._target.gguf(folder), longest + self._limit)
        self._stack.enter_context(closing(child))
        versions = {"llama_cpp_python": child.version, "llama.cpp": child.system}
        return partial(child.ask, decoding=self._decoding), versions

    def _generate(self, **more: Any) -> Ask:
        """``generate``. The model is loaded at the first question, so that a failure to load it is
        reported like any other of a warm-up."""

        def ask(question: Question) -> TimedAnswer:
            return generate_ask(self._model, self._decoding, **more)(question)

        return ask

    def _batching(self, batch_size: int, longest: int) -> Ask:
        """Made at the first question, so that a fault is told like any other of a warm-up. On a
        model of its own: it may change the model's attention."""
        made: list[ContinuousBatching] = []

        def ask(question: Question) -> TimedAnswer:
            if not made:
                model = self._target.load_transformers()
                found = ContinuousBatching(model, self._decoding, batch_size, longest)
                made.append(self._stack.enter_context(closing(found)))
            return made[0].ask(question)

        return ask


def runtime_ask(decode: Decode, settings: DecodeSettings, device: torch.device) -> Ask:
    """A batch of this runtime's decoder, from call to last event."""

    def ask(question: Question) -> TimedAnswer:
        steps: list[tuple[float, Step]] = []
        with torch.inference_mode():
            start = now(device)
            for event in decode(question.prompts, settings):
                if isinstance(event, Step):
                    steps.append((time.perf_counter() - start, event))
            seconds = now(device) - start
        return answer_of(steps, len(question.prompts), seconds)

    return ask


def answer_of(steps: Sequence[tuple[float, Step]], num_rows: int, seconds: float) -> TimedAnswer:
    """An answer from (moment, step) pairs; each step is one forward. Rows that wait in it (block
    cache) took no part: ``TimedAnswer.effective_tpf`` counts what that costs."""
    rows: list[list[tuple[float, RowStep]]] = [[] for _ in range(num_rows)]
    for moment, step in steps:
        for row in step.rows:
            rows[row.row].append((moment, row))
    return TimedAnswer(tuple(map(_row, rows)), seconds, len(steps))


def _row(steps: Sequence[tuple[float, RowStep]]) -> TimedRow:
    before = [None, *(step for _, step in steps[:-1])]
    return TimedRow(
        tokens=tuple(token for _, step in steps for token in step.accepted),
        chunks=tuple(
            Chunk(moment, len(step.accepted), num_offered(step, last))
            for (moment, step), last in zip(steps, before, strict=True)
        ),
        num_draft_forwards=sum(step.num_draft_forwards for _, step in steps),
    )
