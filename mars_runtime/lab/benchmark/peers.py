"""This runtime's decoders as peers of a comparison: they answer questions and time themselves.

The clock runs from the call to the last event, on a GPU until its work is done; text is made by
nobody. Knows events; knows no other peer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from mars_runtime.events import RowStep, Step
from mars_runtime.lab.benchmark.answer import Answer, Chunk, Row
from mars_runtime.lab.benchmark.paired import Question
from mars_runtime.lab.evaluation.measure import Decode, num_offered
from mars_runtime.settings import DecodeSettings

Ask = Callable[[Question], Answer]


def runtime_ask(decode: Decode, settings: DecodeSettings, device: torch.device) -> Ask:
    """A batch of this runtime's decoder, from call to last event."""

    def ask(question: Question) -> Answer:
        steps: list[tuple[float, Step]] = []
        with torch.inference_mode():
            start = now(device)
            for event in decode(question.prompts, settings):
                if isinstance(event, Step):
                    steps.append((time.perf_counter() - start, event))
            seconds = now(device) - start
        return answer_of(steps, len(question.prompts), seconds)

    return ask


def answer_of(steps: Sequence[tuple[float, Step]], num_rows: int, seconds: float) -> Answer:
    """An answer from (moment, step) pairs; each step is one forward. Rows that wait in it (block
    cache) took no part: ``Answer.effective_tpf`` counts what that costs."""
    tokens: list[list[int]] = [[] for _ in range(num_rows)]
    chunks: list[list[Chunk]] = [[] for _ in range(num_rows)]
    num_draft_forwards = [0] * num_rows
    before: list[RowStep | None] = [None] * num_rows
    for moment, step in steps:
        for row in step.rows:
            tokens[row.row] += row.accepted
            offered = num_offered(row, before[row.row])
            chunks[row.row].append(Chunk(moment, len(row.accepted), offered))
            num_draft_forwards[row.row] += row.num_draft_forwards
            before[row.row] = row
    rows = tuple(
        Row(tuple(ids), tuple(own), drafting)
        for ids, own, drafting in zip(tokens, chunks, num_draft_forwards, strict=True)
    )
    return Answer(rows, seconds, len(steps))


def now(device: torch.device) -> float:
    """Seconds, once all work given to the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
