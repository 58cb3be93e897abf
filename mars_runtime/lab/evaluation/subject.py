"""A checkpoint as evaluation and benchmark see it: three functions and a name.

The only file of this package that knows models, tokenizers and decoders.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import torch

from mars_runtime.acceptance import DecodeError
from mars_runtime.decoders import decode, diffusion
from mars_runtime.decoders.forward_costs import ForwardCosts
from mars_runtime.engine.backend import draft_models
from mars_runtime.engine.costs import measure_costs
from mars_runtime.events import Event
from mars_runtime.lab.evaluation.run import Subject
from mars_runtime.model.load import Checkpoint
from mars_runtime.provenance import fingerprint
from mars_runtime.settings import DecodeSettings

STEPS_PER_READ = 4


def subject_of(checkpoint: Checkpoint) -> Subject:
    """The checkpoint behind plain functions; every row is decoded greedily as its settings say."""
    tokenizer, speculation = checkpoint.tokenizer, draft_models(checkpoint)

    @cache
    def costs(num_rows: int, threads: int) -> ForwardCosts:
        """Measured at the first question of its kind: ask one before anything is timed."""
        del threads  # those in force, a key alone
        fewer = [2**power for power in range(num_rows.bit_length()) if 2**power < num_rows]
        return measure_costs(checkpoint, (*fewer, num_rows))

    def decode_batch(prompts: Sequence[Sequence[int]], settings: DecodeSettings) -> Iterable[Event]:
        if settings.method == "block_diffusion":
            return _filled(checkpoint, prompts, settings)
        known = costs(len(prompts), torch.get_num_threads()) if settings.is_auto else None
        # Nobody watches, so on a GPU the next forwards start before this one is read.
        model, ahead = checkpoint.model, STEPS_PER_READ
        return decode(
            *(model, tokenizer, prompts, lambda: settings, known),
            steps_per_read=ahead,
            draft_models=speculation,
        )

    def to_text(tokens: Sequence[int]) -> str:
        return tokenizer.decode([token for token in tokens if token not in tokenizer.eos_ids])

    return Subject(
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
    """Block diffusion, one prompt at a time. Raises DecodeError."""
    if len(prompts) > 1 or not checkpoint.diffusion_size:
        raise DecodeError("Block diffusion fills one prompt at a time, by a twin trained for it.")
    model, tokenizer, size = checkpoint.model, checkpoint.tokenizer, checkpoint.diffusion_size
    return diffusion.decode(model, tokenizer, prompts[0], lambda: settings, size)
