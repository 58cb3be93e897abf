"""What a captured step costs by its width: steps of places without rows, to be timed.

A step does the same work whether its rows are live or not, since all its shapes are fixed. Knows no
clock: whoever times it waits for the device.
"""

from __future__ import annotations

import torch

from mars_runtime.decoders.static.seats import CONTEXT_STEP, context_bucket
from mars_runtime.decoders.static.state import MAX_QUERIES, Shape, State
from mars_runtime.decoders.static.step import StaticModel, StaticStep
from mars_runtime.model.graphs import new_runner
from mars_runtime.model.shapes import ShapeVocabulary


class StepProbe:
    """Steps of ``num_rows`` rows whose attention reads ``context`` tokens and what is fed."""

    def __init__(self, model: StaticModel, num_rows: int, context: int) -> None:
        room = -(-(context + MAX_QUERIES) // CONTEXT_STEP) * CONTEXT_STEP
        self._num_rows, self._context, self._room = num_rows, context, room
        vocabulary = ShapeVocabulary(size=model.config.vocab_size, mask_id=None)
        with torch.inference_mode():
            state = State.new(num_rows, 1, model.device)
            self._step = StaticStep(model, vocabulary, model.new_cache(num_rows, room), state)
        self._runner = new_runner(model.device, state.changed)

    @torch.inference_mode()
    def run(self, num_queries: int) -> None:
        """Start one step that feeds ``num_queries`` tokens per row, at most MAX_QUERIES, and reads
        half of them, as with Q = 2B - 1. Captured at the first call of each width."""
        context = context_bucket(self._context + num_queries, self._room)
        shape = Shape(self._num_rows, num_queries, (num_queries + 1) // 2, context)
        self._runner.run(shape, lambda: self._step(shape))
