"""A checkpoint as evaluation and benchmark see it: three functions and a name.

The only file of this package that knows models, tokenizers and decoders.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import torch

from mars_runtime.decoders import decode
from mars_runtime.decoders.adaptive import ForwardCosts
from mars_runtime.engine.costs import measure_costs
from mars_runtime.events import Event
from mars_runtime.lab.evaluation.provenance import fingerprint
from mars_runtime.lab.evaluation.run import Subject
from mars_runtime.model.load import Checkpoint
from mars_runtime.settings import DecodeSettings

STEPS_PER_READ = 4


def subject_of(checkpoint: Checkpoint) -> Subject:
    """The checkpoint behind plain functions; every row is decoded greedily as its settings say."""
    tokenizer = checkpoint.tokenizer

    @cache
    def costs(num_rows: int, threads: int) -> ForwardCosts:
        """Measured at the first question of its kind: ask one before anything is timed."""
        del threads  # those in force, a key alone
        fewer = [2**power for power in range(num_rows.bit_length()) if 2**power < num_rows]
        return measure_costs(checkpoint, (*fewer, num_rows))

    def decode_batch(prompts: Sequence[Sequence[int]], settings: DecodeSettings) -> Iterable[Event]:
        known = costs(len(prompts), torch.get_num_threads()) if settings.is_auto else None
        # Nobody watches, so on a GPU the next forwards start before this one is read.
        model, ahead = checkpoint.model, STEPS_PER_READ
        return decode(model, tokenizer, prompts, lambda: settings, known, steps_per_read=ahead)

    def to_text(tokens: Sequence[int]) -> str:
        return tokenizer.decode([token for token in tokens if token not in tokenizer.eos_ids])

    return Subject(
        name=checkpoint.name,
        fingerprint=fingerprint(checkpoint.weight_files),
        dtype=checkpoint.model.arithmetic,
        encode_prompt=tokenizer.encode_prompt,
        decode=decode_batch,
        to_text=to_text,
    )
