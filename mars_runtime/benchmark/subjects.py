"""What a benchmark decodes: a checkpoint with held-out prompts, or a shape with random ones.

Knows how both are loaded; times nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mars_runtime.benchmark.contenders import Target
from mars_runtime.evaluation.measure import Decode
from mars_runtime.evaluation.prompts import load_prompts
from mars_runtime.events import Event
from mars_runtime.settings import DecodeSettings

if TYPE_CHECKING:
    from mars_runtime.benchmark.run import Order
    from mars_runtime.decoders.batch import BatchMethod
    from mars_runtime.model.load import Checkpoint


@dataclass(frozen=True, slots=True)
class Subject:
    """A model behind functions, and what it is asked.

    prompts: token ids by family, in the order of the families. facts: name, fingerprint, dtype and
        device, to be kept with the figures. note: what every table must say, or nothing.
    """

    target: Target
    model: Any
    prompts: Mapping[str, Sequence[Sequence[int]]]
    facts: Mapping[str, Any]
    note: str = ""


def load_subject(order: Order) -> Subject:
    """The checkpoint or shape that was asked for. Raises CheckpointError or PromptError."""
    return _checkpoint(order)


def _checkpoint(order: Order) -> Subject:
    # What was asked wrongly is told before anything heavy is loaded.
    sets = load_prompts(order.families, order.seed, order.num_prompts)
    from mars_runtime.evaluation.provenance import fingerprint
    from mars_runtime.evaluation.subject import dtype_name
    from mars_runtime.model.load import load_checkpoint

    checkpoint = load_checkpoint(order.checkpoint, device=order.device, dtype=order.dtype)
    tokenizer, model = checkpoint.tokenizer, checkpoint.model
    return Subject(
        target=checkpoint_target(checkpoint),
        model=model,
        prompts={
            one.family: [tokenizer.encode_prompt(task.prompt) for task in one.tasks] for one in sets
        },
        facts={
            "name": checkpoint.name,
            "fingerprint": fingerprint(Path(checkpoint.path)),
            "dtype": dtype_name(model.dtype),
            "device": str(model.device),
        },
    )


def checkpoint_target(checkpoint: Checkpoint) -> Target:
    """A loaded checkpoint behind the functions that peers are made of."""
    from mars_runtime.benchmark.transformers_peers import loader
    from mars_runtime.evaluation.subject import subject_of

    return Target(
        device=checkpoint.model.device,
        decode=subject_of(checkpoint).decode,
        decode_block=lambda size: _batch(checkpoint, "block", size),
        decode_uncached=_batch(checkpoint, "uncached"),
        load_transformers=loader(checkpoint),
        eos_ids=tuple(sorted(checkpoint.tokenizer.eos_ids)),
        tokenizer=checkpoint.tokenizer,
    )


def _batch(checkpoint: Checkpoint, method: BatchMethod, cache_block: int = 32) -> Decode:
    """A whole question in one batch, under another cache than the cursor's."""
    from mars_runtime.decoders.batch import decode_batch

    def decode(prompts: Sequence[Sequence[int]], settings: DecodeSettings) -> Iterable[Event]:
        model, tokenizer = checkpoint.model, checkpoint.tokenizer
        return decode_batch(
            model, tokenizer, prompts, method, lambda: settings, len(prompts), cache_block
        )

    return decode
