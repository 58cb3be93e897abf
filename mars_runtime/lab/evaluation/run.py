"""Evaluate a model on all cells. Stored outputs are not decoded again; all are judged again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import torch

from mars_runtime import tasks
from mars_runtime.decoders import diffusion
from mars_runtime.decoders.cursor import decode
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.decoders.methods import AUTO
from mars_runtime.engine.backend import draft_models
from mars_runtime.engine.costs import measure_costs
from mars_runtime.lab.evaluation.measure import Cell, CellStore, Decode, decode_in_batches
from mars_runtime.lab.evaluation.prompts import PromptSet
from mars_runtime.lab.evaluation.report import Outcome
from mars_runtime.model.files import fingerprint
from mars_runtime.model.load import Checkpoint
from mars_runtime.runs.events import Event
from mars_runtime.settings import DecodeSettings


@dataclass(frozen=True, slots=True)
class EvalModel:
    """largest: the largest B. fills_blocks: whether it was trained for block diffusion."""

    name: str
    fingerprint: str
    dtype: str
    encode_prompt: Callable[[str], Sequence[int]]
    decode: Decode
    to_text: Callable[[Sequence[int]], str]
    largest: int
    fills_blocks: bool = False

    def supports(self, settings: DecodeSettings) -> bool:
        if settings.facts.is_reference:
            return True
        size = settings.block_size
        is_trained = self.largest > 1 if size == AUTO else size <= self.largest
        return is_trained and settings.facts.is_alone == self.fills_blocks


def eval_model_of(checkpoint: Checkpoint) -> EvalModel:
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    drafting = draft_models(checkpoint)

    @cache
    def costs(num_rows: int, threads: int) -> ForwardCosts:
        del threads  # the argument only makes the cache depend on the number of threads
        return measure_costs(checkpoint, num_rows)

    def decode_batch(prompts: Sequence[Sequence[int]], settings: DecodeSettings) -> Iterable[Event]:
        if settings.facts.is_alone:
            size = checkpoint.diffusion_size
            return diffusion.decode(model, tokenizer, prompts[0], lambda: settings, size)
        known = costs(len(prompts), torch.get_num_threads()) if settings.is_auto else None
        return decode(*(model, tokenizer, prompts, lambda: settings, known), draft_models=drafting)

    def to_text(tokens: Sequence[int]) -> str:
        return tokenizer.decode([token for token in tokens if token not in tokenizer.eos_ids])

    return EvalModel(
        name=checkpoint.name,
        fingerprint=fingerprint(checkpoint.weight_files),
        dtype=model.arithmetic,
        encode_prompt=tokenizer.encode_prompt,
        decode=decode_batch,
        to_text=to_text,
        largest=checkpoint.diffusion_size or checkpoint.block_size,
        fills_blocks=checkpoint.diffusion_size > 0,
    )


def evaluate(
    model: EvalModel,
    methods: Sequence[DecodeSettings],
    prompt_sets: Sequence[PromptSet],
    store: CellStore,
    batch_size: int,
    on_rows: Callable[[int], None] = lambda count: None,
) -> Iterator[tuple[Cell, list[Outcome]]]:
    """Cut answers to open-ended requests at a repetition loop, which is easy to predict and would
    inflate the figures."""
    for settings, prompts in product(methods, prompt_sets):
        cell = Cell(
            checkpoint=model.name,
            fingerprint=model.fingerprint,
            dtype=model.dtype,
            family=prompts.family,
            prompts_id=prompts.prompts_id,
            num_prompts=len(prompts.tasks),
            settings=settings,
        )
        outputs = store.get(cell)
        if outputs is None:
            ids = [model.encode_prompt(task.prompt) for task in prompts.tasks]
            shared = 1 if cell.settings.facts.is_alone else batch_size
            rows = decode_in_batches(model.decode, ids, cell.settings, shared, on_rows)
            is_open = tasks.is_open(cell.family)
            outputs = tuple(row.without_loop() if is_open else row for row in rows)
            store.put(cell, outputs)
        else:
            on_rows(len(outputs))
        texts = (model.to_text(output.tokens) for output in outputs)
        judged = zip(outputs, prompts.tasks, texts, strict=True)
        yield (
            cell,
            [
                Outcome(output, tasks.verdict(task, text, is_cut=not output.is_ended))
                for output, task, text in judged
            ],
        )
