"""Evaluate a checkpoint cell by cell, passing over what is already measured.

Knows the decoders only as a function (``measure.Decode``) and the tokenizer as two functions, so
tests run it with a scripted model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mars_runtime.lab.evaluation.measure import Decode, Outcome, decode_in_batches, judge
from mars_runtime.lab.evaluation.plan import Cell, Grid
from mars_runtime.lab.evaluation.prompts import PromptSet
from mars_runtime.lab.evaluation.store import CellStore
from mars_runtime.methods import METHODS


@dataclass(frozen=True, slots=True)
class Subject:
    """What is evaluated: how to turn a prompt into ids, ids into events, and tokens into text.

    to_text gets the accepted tokens as they came and leaves EOS out. fills_blocks: the weights were
    trained for block diffusion.
    """

    name: str
    fingerprint: str
    dtype: str
    encode_prompt: Callable[[str], Sequence[int]]
    decode: Decode
    to_text: Callable[[Sequence[int]], str]
    fills_blocks: bool = False


def plan_cells(subject: Subject, grid: Grid, prompt_sets: Sequence[PromptSet]) -> list[Cell]:
    """Every cell of a subject, AR first."""
    return [
        Cell(
            checkpoint=subject.name,
            fingerprint=subject.fingerprint,
            dtype=subject.dtype,
            family=prompts.family,
            prompts_id=prompts.prompts_id,
            num_prompts=len(prompts.tasks),
            settings=settings,
        )
        for settings in grid.settings()
        for prompts in prompt_sets
    ]


def evaluate_cell(
    subject: Subject,
    cell: Cell,
    prompts: PromptSet,
    batch_size: int,
    on_rows: Callable[[int], None] = lambda count: None,
) -> tuple[Outcome, ...]:
    """One outcome a prompt, in their order. Answers to open requests are cut where they begin to
    repeat themselves: a loop is easy to foresee and worth nothing."""
    ids = [subject.encode_prompt(task.prompt) for task in prompts.tasks]
    shared = 1 if METHODS[cell.settings.method].is_alone else batch_size
    outputs = decode_in_batches(subject.decode, ids, cell.settings, shared, on_rows)
    if prompts.is_open:
        outputs = [output.without_loop() for output in outputs]
    texts = [subject.to_text(output.tokens) for output in outputs]
    return tuple(
        judge(output, text, prompts.judge(index, text))
        for index, (output, text) in enumerate(zip(outputs, texts, strict=True))
    )


def evaluate(
    subject: Subject,
    cells: Sequence[Cell],
    prompt_sets: Sequence[PromptSet],
    store: CellStore,
    batch_size: int,
    on_rows: Callable[[int], None] = lambda count: None,
) -> Iterator[tuple[Cell, tuple[Outcome, ...]]]:
    """Each cell with its outcomes; a finished cell is in ``store`` before it is yielded.

    ``on_rows`` hears of every finished prompt, of those found in the store too.
    """
    by_family = {prompts.family: prompts for prompts in prompt_sets}
    for cell in cells:
        outcomes = store.get(cell)
        if outcomes is None:
            prompts = by_family[cell.family]
            outcomes = evaluate_cell(subject, cell, prompts, batch_size, on_rows)
            store.put(cell, outcomes)
        else:
            on_rows(len(outcomes))
        yield cell, outcomes
