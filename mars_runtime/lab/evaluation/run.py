"""Evaluate a model on all cells of a grid. Stored results are not measured again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from mars_runtime.decoders import diffusion
from mars_runtime.decoders.cursor import decode
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.engine.backend import draft_models
from mars_runtime.engine.costs import measure_costs
from mars_runtime.errors import DecodeError
from mars_runtime.lab.evaluation.grid import Grid, GridCell
from mars_runtime.lab.evaluation.measure import Decode, Outcome, decode_in_batches, outcome_of
from mars_runtime.lab.evaluation.prompts import PromptSet
from mars_runtime.lab.evaluation.store import CellStore
from mars_runtime.model.files import fingerprint
from mars_runtime.model.load import Checkpoint
from mars_runtime.runs.events import Event
from mars_runtime.settings import DecodeSettings


@dataclass(frozen=True, slots=True)
class EvalModel:
    """The functions of a checkpoint that an evaluation needs. fills_blocks: whether it was trained
    for block diffusion.
    """

    name: str
    fingerprint: str
    dtype: str
    encode_prompt: Callable[[str], Sequence[int]]
    decode: Decode
    to_text: Callable[[Sequence[int]], str]
    fills_blocks: bool = False


def eval_model_of(checkpoint: Checkpoint) -> EvalModel:
    tokenizer, drafting = checkpoint.tokenizer, draft_models(checkpoint)

    @cache
    def costs(num_rows: int, threads: int) -> ForwardCosts:
        del threads  # the argument only makes the cache depend on the number of threads
        fewer = [2**power for power in range(num_rows.bit_length()) if 2**power < num_rows]
        return measure_costs(checkpoint, (*fewer, num_rows))

    def decode_batch(prompts: Sequence[Sequence[int]], settings: DecodeSettings) -> Iterable[Event]:
        if settings.facts.is_alone:
            return _filled(checkpoint, prompts, settings)
        known = costs(len(prompts), torch.get_num_threads()) if settings.is_auto else None
        return decode(
            *(checkpoint.model, tokenizer, prompts, lambda: settings, known),
            draft_models=drafting,
        )

    def to_text(tokens: Sequence[int]) -> str:
        return tokenizer.decode([token for token in tokens if token not in tokenizer.eos_ids])

    return EvalModel(
        name=checkpoint.name,
        fingerprint=fingerprint(checkpoint.weight_files),
        dtype=checkpoint.model.arithmetic,
        encode_prompt=tokenizer.encode_prompt,
        decode=decode_batch,
        to_text=to_text,
        fills_blocks=checkpoint.diffusion_size > 0,
    )


def _filled(
    checkpoint: Checkpoint, prompts: Sequence[Sequence[int]], settings: DecodeSettings
) -> Iterable[Event]:
    if len(prompts) > 1 or not checkpoint.diffusion_size:
        raise DecodeError(
            "Block diffusion needs a batch size of 1 and a checkpoint trained for block diffusion."
        )
    model, tokenizer, size = checkpoint.model, checkpoint.tokenizer, checkpoint.diffusion_size
    return diffusion.decode(model, tokenizer, prompts[0], lambda: settings, size)


def plan_cells(model: EvalModel, grid: Grid, prompt_sets: Sequence[PromptSet]) -> list[GridCell]:
    return [
        GridCell(
            checkpoint=model.name,
            fingerprint=model.fingerprint,
            dtype=model.dtype,
            family=prompts.family,
            prompts_id=prompts.prompts_id,
            num_prompts=len(prompts.tasks),
            settings=settings,
        )
        for settings in grid.settings()
        for prompts in prompt_sets
    ]


def evaluate_cell(
    model: EvalModel,
    cell: GridCell,
    prompts: PromptSet,
    batch_size: int,
    on_rows: Callable[[int], None] = lambda count: None,
) -> tuple[Outcome, ...]:
    """Decode and grade all prompts of a cell. Answers to open-ended requests are cut at a
    repetition loop, because loops are easy to predict and would inflate the figures.
    """
    ids = [model.encode_prompt(task.prompt) for task in prompts.tasks]
    shared = 1 if cell.settings.facts.is_alone else batch_size
    outputs = decode_in_batches(model.decode, ids, cell.settings, shared, on_rows)
    if prompts.is_open:
        outputs = [output.without_loop() for output in outputs]
    texts = [model.to_text(output.tokens) for output in outputs]
    return tuple(
        outcome_of(output, text, prompts.is_right(index, text, is_cut=not output.is_ended))
        for index, (output, text) in enumerate(zip(outputs, texts, strict=True))
    )


def evaluate(
    model: EvalModel,
    cells: Sequence[GridCell],
    prompt_sets: Sequence[PromptSet],
    store: CellStore,
    batch_size: int,
    on_rows: Callable[[int], None] = lambda count: None,
) -> Iterator[tuple[GridCell, tuple[Outcome, ...]]]:
    """Measure all cells without a stored result; store each outcome and yield every cell with its
    outcomes. on_rows: called with the number of prompts decoded or found in the store.
    """
    by_family = {prompts.family: prompts for prompts in prompt_sets}
    for cell in cells:
        outcomes = store.get(cell.key)
        if outcomes is None:
            prompts = by_family[cell.family]
            outcomes = evaluate_cell(model, cell, prompts, batch_size, on_rows)
            store.put(cell.key, outcomes, label=cell.label)
        else:
            on_rows(len(outcomes))
        yield cell, outcomes
